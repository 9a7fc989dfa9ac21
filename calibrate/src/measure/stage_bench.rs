//! One executor with a filled cache, driven by scripted batches in place of a scheduler.
//!
//! The cache is filled once. A decode row with L entries then runs at position L - 1 and writes its KV over what is there, so
//! that every batch size and context is timed on the same sequences, and at exactly those entries.

use engine::batch::Stage;
use engine::executor::{Clock, Executor};
use engine::scheduler::SchedulerConfig;
use engine::units::{Depth, Nanos};

use super::config::FILL_TOKENS;
use super::plan::MeasurementPlan;
use super::samples::Samples;
use super::scripted_batches::{Positions, ScriptedBatches};
use super::timer::{Timer, is_disturbed};
use crate::contexts::contexts;
use crate::measurements::Times;

/// Prompt tokens of one sequence in such a batch.
const FILL_CHUNK: u32 = 128;

/// Timed launches of a kind that takes long, or that no simulation is sensitive to.
const LAUNCHES: u32 = 3;

/// A launch: a stage, and the depth of its rows.
type Step = (Stage, Depth);

/// An executor, and the batches that it is timed with.
#[derive(Debug)]
pub(super) struct StageBench<E> {
    executor: E,
    depth: Depth,
    batches: ScriptedBatches,
    queued: u32,
}

impl<E: Executor> StageBench<E> {
    /// Takes over an executor that was made for `config`; its cache is empty.
    pub(super) fn new(mut executor: E, config: &SchedulerConfig, plan: &MeasurementPlan) -> Self {
        let batches = ScriptedBatches::new(plan);
        for submission in batches.submissions() {
            executor.submit(&submission).expect("it asks for nothing special");
        }
        Self { executor, depth: config.r_max, batches, queued: plan.queued }
    }

    /// Prefills every sequence to its length.
    pub(super) fn fill(&mut self, clock: &mut dyn Clock) -> Result<(), E::Error> {
        loop {
            let chunks = self.batches.unfilled(FILL_TOKENS, FILL_CHUNK);
            if chunks.is_empty() {
                return Ok(());
            }
            self.run(&[(Stage::Prefill, self.depth)], &chunks, clock)?;
            self.batches.fill(&chunks);
        }
    }

    /// Whole decode steps of `batch` sequences at a context.
    pub(super) fn forward(
        &mut self,
        batch: u32,
        context: u32,
        plan: &MeasurementPlan,
        timer: &mut Timer<'_>,
    ) -> Result<Times, E::Error> {
        let steps = [(Stage::Forward, self.depth)];
        let samples = self.sample((plan.warm_up, plan.tokens), &steps, &decode_rows(batch, context), timer)?;
        Ok(Samples::times(&samples))
    }

    /// Decode steps in stages: the times of core, prelude and coda, each as a launch of its own.
    pub(super) fn stages(
        &mut self,
        batch: u32,
        context: u32,
        plan: &MeasurementPlan,
        timer: &mut Timer<'_>,
    ) -> Result<[Times; 3], E::Error> {
        let mut steps = vec![(Stage::Prelude, Depth::FIRST)];
        steps.extend((1..=self.depth.0).map(|depth| (Stage::Core, Depth(depth))));
        steps.push((Stage::Coda, self.depth));
        let samples = self.sample((plan.warm_up, plan.tokens), &steps, &decode_rows(batch, context), timer)?;
        let coda = samples.len() - 1;
        Ok([&samples[1..coda], &samples[..1], &samples[coda..]].map(Samples::times))
    }

    /// A prompt chunk of each of `batch` sequences, over what they hold already.
    pub(super) fn prefill(
        &mut self,
        batch: u32,
        context: u32,
        tokens: u32,
        timer: &mut Timer<'_>,
    ) -> Result<Times, E::Error> {
        let rows: Vec<_> = (0..batch).map(|slot| Positions { slot, first: context, count: tokens }).collect();
        let samples = self.sample((1, LAUNCHES), &[(Stage::Prefill, self.depth)], &rows, timer)?;
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
    pub(super) fn offload(&mut self, context: u32, timer: &mut Timer<'_>) -> Result<Times, E::Error> {
        let slot = self.batches.slot_with(context).expect("a plan offloads a sequence that it holds");
        // Each move by itself: those in flight at once would need pinned memory for each.
        let queued = std::mem::take(&mut self.queued);
        // A sequence comes back with the token that it made last, so it must have made one.
        self.run(&[(Stage::Forward, self.depth)], &[one_token(slot, context - 1)], timer.clock)?;
        let steps = [(Stage::Offload, self.depth), (Stage::Restore, self.depth)];
        let samples = self.sample((1, LAUNCHES), &steps, &[Positions { slot, first: 0, count: context }], timer)?;
        self.queued = queued;
        Ok(Samples::times(&samples))
    }

    /// Times a sequence of launches again and again, until enough were undisturbed: samples for each launch of it.
    ///
    /// What is timed by itself is launched in bursts of one repetition; where launches queue, one burst has them all.
    fn sample(
        &mut self,
        (warm_up, wanted): (u32, u32),
        steps: &[Step],
        rows: &[Positions],
        timer: &mut Timer<'_>,
    ) -> Result<Vec<Samples>, E::Error> {
        let mut samples: Vec<_> = steps.iter().map(|_| Samples::new(warm_up, wanted)).collect();
        let repetitions = if self.queued == 0 { 1 } else { (warm_up + wanted) as usize };
        let burst = steps.repeat(repetitions);
        while samples.iter_mut().map(|samples| samples.want_more(timer)).filter(|&more| more).count() > 0 {
            let (times, disturbed) = self.burst(&burst, rows, timer)?;
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
        steps: &[Step],
        rows: &[Positions],
        timer: &mut Timer<'_>,
    ) -> Result<(Vec<Nanos>, bool), E::Error> {
        let waited = timer.run_delay();
        let Positions { slot, first, .. } = rows[0];
        self.run(&[(Stage::Prelude, Depth::FIRST)], &[one_token(slot, first)], timer.clock)?;
        let started = timer.clock.now();
        let times = self.run(steps, rows, timer.clock)?;
        let took = timer.clock.now() - started;
        Ok((times, is_disturbed(timer.run_delay().saturating_sub(waited), took)))
    }

    /// Launches the same rows through stages, as many queued as the plan asks for: how long each took the device.
    fn run(&mut self, steps: &[Step], rows: &[Positions], clock: &mut dyn Clock) -> Result<Vec<Nanos>, E::Error> {
        let mut times = Vec::with_capacity(steps.len());
        let mut launched = 0;
        while times.len() < steps.len() {
            if launched < steps.len() && launched <= times.len() + self.queued as usize {
                let batch = self.batches.batch(steps[launched], rows);
                self.executor.launch(batch, clock)?;
                launched += 1;
            } else {
                let outcome = self.executor.wait(clock)?;
                times.push(outcome.finished - outcome.started);
            }
        }
        Ok(times)
    }
}

/// The sequences' token at their contexts' last positions.
fn decode_rows(batch: u32, context: u32) -> Vec<Positions> {
    (0..).zip(contexts(batch, context)).map(|(slot, entries)| one_token(slot, entries - 1)).collect()
}

fn one_token(slot: u32, first: u32) -> Positions {
    Positions { slot, first, count: 1 }
}
