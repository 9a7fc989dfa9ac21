//! One executor with a filled cache, driven by scripted batches in place of a scheduler.
//!
//! The cache is filled once. A decode row with L entries then runs at position L - 1 and writes its KV over what is there, so
//! that every batch size and context is timed on the same sequences, and at exactly those entries.

use engine::batch::{Batch, Emits, Input, Row, Slot, Span, Stage, TableEdit};
use engine::executor::{Clock, Executor};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::SchedulerConfig;
use engine::units::{Depth, Nanos};

use super::config::FILL_TOKENS;
use super::plan::Plan;
use super::room::Pages;
use super::watch::{Samples, Times, Watch, is_disturbed};
use crate::contexts::contexts;

/// Prompt tokens of one sequence in such a batch.
const FILL_CHUNK: u32 = 128;

/// Timed launches of a kind that takes long, or that no simulation is sensitive to.
const LAUNCHES: u32 = 3;

/// A sequence's slot, position and tokens in a batch.
type Rows = (u32, u32, u32);

/// An executor and what its sequences hold.
#[derive(Debug)]
pub(super) struct Rig<E> {
    executor: E,
    depth: Depth,
    block_tokens: u32,
    pages: Pages,
    sequences: Vec<Sequence>,
    next_batch: u64,
    queued: u32,
}

/// A sequence in the slot of its own number.
#[derive(Debug)]
struct Sequence {
    request: Request,
    resident: bool,
    filled: u32,
    /// Output tokens so far, which is also the index of the next.
    generated: u32,
    pages: u32,
}

impl<E: Executor> Rig<E> {
    /// Takes over an executor that was made for [`live_config`]; its cache is empty.
    pub(super) fn new(mut executor: E, config: &SchedulerConfig, plan: &Plan) -> Self {
        let held_tokens = plan.held_tokens();
        let sequence = |(id, &tokens): (u32, &u32)| {
            let request = Request {
                id: RequestId(id),
                arrival: Nanos::ZERO,
                prompt_tokens: tokens,
                max_output_tokens: u32::MAX - tokens,
            };
            let arrival = Arrival { request, output_tokens: request.max_output_tokens, cancel_after: None };
            executor.submit(&arrival.into()).expect("it asks for nothing special");
            let filled = if plan.filled { tokens } else { 0 };
            Sequence { request, resident: false, filled, generated: 0, pages: 0 }
        };
        let sequences = (0..).zip(&held_tokens).map(sequence).collect();
        Self {
            pages: Pages::new(plan),
            sequences,
            depth: config.r_max,
            block_tokens: config.kv.block_tokens,
            next_batch: 0,
            queued: plan.queued,
            executor,
        }
    }

    /// Prefills every sequence to its length.
    pub(super) fn fill(&mut self, clock: &mut dyn Clock) -> Result<(), E::Error> {
        loop {
            let mut room = FILL_TOKENS;
            let mut chunks = Vec::new();
            for (slot, sequence) in (0..).zip(&self.sequences) {
                let tokens = (sequence.request.prompt_tokens - sequence.filled).min(FILL_CHUNK).min(room);
                if tokens > 0 {
                    room -= tokens;
                    chunks.push((slot, sequence.filled, tokens));
                }
            }
            if chunks.is_empty() {
                return Ok(());
            }
            self.run(&[(Stage::Prefill, self.depth)], &chunks, clock)?;
            for (slot, position, tokens) in chunks {
                self.sequences[slot as usize].filled = position + tokens;
            }
        }
    }

    /// Whole decode steps of `batch` sequences at a context.
    pub(super) fn forward(
        &mut self,
        batch: u32,
        context: u32,
        plan: &Plan,
        watch: &mut Watch<'_>,
    ) -> Result<Times, E::Error> {
        let steps = [(Stage::Forward, self.depth)];
        let samples = self.sample((plan.warm_up, plan.tokens), &steps, &decode_rows(batch, context), watch)?;
        Ok(Samples::times(&samples))
    }

    /// Decode steps in stages: the times of core, prelude and coda, each as a launch of its own.
    pub(super) fn stages(
        &mut self,
        batch: u32,
        context: u32,
        plan: &Plan,
        watch: &mut Watch<'_>,
    ) -> Result<[Times; 3], E::Error> {
        let mut steps = vec![(Stage::Prelude, Depth::FIRST)];
        steps.extend((1..=self.depth.0).map(|depth| (Stage::Core, Depth(depth))));
        steps.push((Stage::Coda, self.depth));
        let samples = self.sample((plan.warm_up, plan.tokens), &steps, &decode_rows(batch, context), watch)?;
        let coda = samples.len() - 1;
        Ok([&samples[1..coda], &samples[..1], &samples[coda..]].map(Samples::times))
    }

    /// A prompt chunk of each of `batch` sequences, over what they hold already.
    pub(super) fn prefill(
        &mut self,
        batch: u32,
        context: u32,
        tokens: u32,
        watch: &mut Watch<'_>,
    ) -> Result<Times, E::Error> {
        let rows: Vec<_> = (0..batch).map(|slot| (slot, context, tokens)).collect();
        let samples = self.sample((1, LAUNCHES), &[(Stage::Prefill, self.depth)], &rows, watch)?;
        Ok(Samples::times(&samples))
    }

    /// Decode steps without a break for so long.
    pub(super) fn settle(
        &mut self,
        (batch, context): (u32, u32),
        time: Nanos,
        clock: &mut dyn Clock,
    ) -> Result<(), E::Error> {
        let end = clock.now() + time;
        while clock.now() < end {
            self.run(&[(Stage::Forward, self.depth); 8], &decode_rows(batch, context), clock)?;
        }
        Ok(())
    }

    /// A sequence that holds `context` tokens out to host memory and back: the time of one way.
    pub(super) fn offload(&mut self, context: u32, watch: &mut Watch<'_>) -> Result<Times, E::Error> {
        let slot = self.sequences.iter().position(|sequence| sequence.request.prompt_tokens == context);
        let slot = slot.expect("a plan offloads a sequence that it holds") as u32;
        // Each move by itself: those in flight at once would need pinned memory for each.
        let queued = std::mem::take(&mut self.queued);
        // A sequence comes back with the token that it made last, so it must have made one.
        self.run(&[(Stage::Forward, self.depth)], &[(slot, context - 1, 1)], watch.clock)?;
        let steps = [(Stage::Offload, self.depth), (Stage::Restore, self.depth)];
        let samples = self.sample((1, LAUNCHES), &steps, &[(slot, 0, context)], watch)?;
        self.queued = queued;
        Ok(Samples::times(&samples))
    }

    /// Times a sequence of launches again and again, until enough were calm: samples for each launch of it.
    ///
    /// What is timed by itself is launched in bursts of one repetition; where launches queue, one burst has them all.
    fn sample(
        &mut self,
        (warm_up, wanted): (u32, u32),
        steps: &[(Stage, Depth)],
        rows: &[Rows],
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Samples>, E::Error> {
        let mut samples: Vec<_> = steps.iter().map(|_| Samples::new(warm_up, wanted)).collect();
        let repetitions = if self.queued == 0 { 1 } else { (warm_up + wanted) as usize };
        let burst = steps.repeat(repetitions);
        while samples.iter_mut().map(|samples| samples.want_more(watch)).filter(|&more| more).count() > 0 {
            let (times, disturbed) = self.burst(&burst, rows, watch)?;
            for times in times.chunks_exact(steps.len()) {
                samples.iter_mut().zip(times).for_each(|(samples, &time)| samples.add(time, disturbed));
            }
        }
        Ok(samples)
    }

    /// Launches back to back, and whether they had to wait for a core.
    ///
    /// Asking that takes so long that an executor's threads fall asleep. In a live run they do not: the next batch comes
    /// within microseconds. So a prelude of one row goes ahead to wake them, untimed.
    fn burst(
        &mut self,
        steps: &[(Stage, Depth)],
        rows: &[Rows],
        watch: &mut Watch<'_>,
    ) -> Result<(Vec<Nanos>, bool), E::Error> {
        let waited = watch.waited();
        let (slot, position, _) = rows[0];
        self.run(&[(Stage::Prelude, Depth::FIRST)], &[(slot, position, 1)], watch.clock)?;
        let started = watch.clock.now();
        let times = self.run(steps, rows, watch.clock)?;
        let took = watch.clock.now() - started;
        Ok((times, is_disturbed(watch.waited().saturating_sub(waited), took)))
    }

    /// Launches the same rows through stages, with so many queued as the plan says, and says how long each took the device.
    fn run(&mut self, steps: &[(Stage, Depth)], rows: &[Rows], clock: &mut dyn Clock) -> Result<Vec<Nanos>, E::Error> {
        let mut times = Vec::with_capacity(steps.len());
        let mut launched = 0;
        while times.len() < steps.len() {
            if launched < steps.len() && launched <= times.len() + self.queued as usize {
                let batch = self.batch(steps[launched], rows);
                self.executor.launch(batch, clock)?;
                launched += 1;
            } else {
                let outcome = self.executor.wait(clock)?;
                times.push(outcome.finished - outcome.started);
            }
        }
        Ok(times)
    }

    fn batch(&mut self, (stage, depth): (Stage, Depth), rows: &[Rows]) -> Batch {
        let mut batch = Batch { id: self.next_batch, stage, rows: Vec::new(), edits: Vec::new() };
        self.next_batch += 1;
        for &(slot, position, tokens) in rows {
            self.hold(slot, position + tokens, &mut batch);
            let sequence = &mut self.sequences[slot as usize];
            sequence.resident = stage != Stage::Offload;
            let (request, token) = (sequence.request.id, sequence.generated);
            // A prompt that is gone over again ends again: in a real run most prefill batches make tokens.
            let ends_prompt = stage == Stage::Prefill && sequence.filled == sequence.request.prompt_tokens;
            let emits =
                if ends_prompt || matches!(stage, Stage::Coda | Stage::Forward) { Emits::Last } else { Emits::Nothing };
            sequence.generated += u32::from(emits == Emits::Last);
            let input = match stage {
                Stage::Prefill => Input::Given,
                Stage::Prelude | Stage::Forward => Input::Sampled,
                Stage::Core | Stage::Coda | Stage::Offload | Stage::Restore => Input::Carried,
            };
            let span = Span { first: position, count: tokens };
            batch.rows.push(Row { slot: Slot(slot), request, epoch: 0, token, span, depth, input, emits });
        }
        batch
    }

    /// Admits a sequence that has no slot and appends the pages that it lacks.
    fn hold(&mut self, slot: u32, tokens: u32, batch: &mut Batch) {
        let sequence = &mut self.sequences[slot as usize];
        let mut held = sequence.pages;
        if !sequence.resident {
            batch.edits.push(TableEdit::Admit(Slot(slot), sequence.request));
            // One that returns gets its own pages back.
            held = 0;
        }
        sequence.pages = tokens.div_ceil(self.block_tokens).max(sequence.pages);
        // Slots that are never in one batch share pages, and what one wrote there the other still reads.
        let added = held..sequence.pages;
        batch.edits.extend(added.map(|index| TableEdit::Adopt(Slot(slot), self.pages.of(slot, index))));
    }
}

/// The sequences' token at their contexts' last positions.
fn decode_rows(batch: u32, context: u32) -> Vec<Rows> {
    (0..).zip(contexts(batch, context)).map(|(slot, entries)| (slot, entries - 1, 1)).collect()
}
