//! One executor with a filled cache, driven by scripted batches in place of a scheduler.
//!
//! The cache is filled once, by prefill. A decode row at context L then runs at position L - 1 and writes its KV over what
//! is there, so that every batch size and context is timed on the same sequences, and at exactly that context.

use std::sync::Arc;

use engine::architecture::Architecture;
use engine::batch::{AppendedBlock, Batch, Plane, Row, Slot, Stage};
use engine::executor::{Clock, ExitSource};
use engine::live::{Exits, LiveConfig, LiveExecutor, Prompts};
use engine::models::initial_state::InitialState;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, Pressure, SchedulerConfig};
use engine::units::{Depth, Nanos};

use super::plan::Plan;
use super::watch::{Samples, Times, Watch, is_disturbed};

/// Prompt tokens in a batch that fills the cache.
const FILL_TOKENS: u32 = 2048;

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
    planes: Vec<Plane>,
    sequences: Vec<Sequence>,
    next_batch: u64,
    next_core_block: u32,
    next_boundary_block: u32,
}

/// A sequence in the slot of its own number.
#[derive(Debug)]
struct Sequence {
    request: Request,
    resident: bool,
    filled: u32,
    /// Output tokens so far, which is also the index of the next.
    generated: u32,
    blocks: Vec<(Plane, u32)>,
}

/// Every token runs all loops.
struct FullDepth(Depth);

impl ExitSource for FullDepth {
    fn exit_depth(&self, _: RequestId, _: u32) -> Depth {
        self.0
    }
}

/// What an executor must be able to hold for sequences of the given lengths, at a full depth that may differ from the model's.
pub(super) fn live_config(plan: &Plan, model: &Architecture, held_tokens: &[u32], depth: Depth) -> LiveConfig {
    let blocks: u32 = held_tokens.iter().map(|tokens| tokens.div_ceil(plan.block_tokens)).sum();
    let slots = held_tokens.len() as u32;
    let scheduler = SchedulerConfig {
        mode: Mode::NoRefill,
        overlap: Overlap::Synchronous,
        finish: Finish::Length,
        max_num_seqs: slots,
        max_num_batched_tokens: FILL_TOKENS.max(plan.max_prefill_tokens),
        min_free_slots: 1,
        max_context_tokens: held_tokens.iter().copied().max().unwrap_or(1),
        r_max: depth,
        r_min: depth,
        kv: KvConfig {
            layout: plan.layout,
            blocks: blocks * u32::from(plan.layout.planes(depth)),
            block_tokens: plan.block_tokens,
            headroom_blocks: 0,
            pressure: Pressure::Reserve,
            boundary_layers: model.prelude_layers + model.coda_layers > 0,
        },
    };
    LiveConfig {
        scheduler,
        exits: Exits::Replay(Arc::new(FullDepth(depth))),
        prompts: Prompts::Random { seed: 0 },
        eos: None,
        initial_state: InitialState::Zero,
        keep_logits: false,
    }
}

impl<E: LiveExecutor> Rig<E> {
    /// Takes over an executor that was made for [`live_config`]; its cache is empty.
    pub(super) fn new(mut executor: E, config: &SchedulerConfig, held_tokens: &[u32]) -> Self {
        let sequence = |(id, &tokens): (u32, &u32)| {
            let request = Request {
                id: RequestId(id),
                arrival: Nanos::ZERO,
                prompt_tokens: tokens,
                max_output_tokens: u32::MAX - tokens,
            };
            executor.arrive(&Arrival { request, output_tokens: request.max_output_tokens });
            Sequence { request, resident: false, filled: 0, generated: 0, blocks: Vec::new() }
        };
        let sequences = (0..).zip(held_tokens).map(sequence).collect();
        let core = (0..config.kv.layout.planes(config.r_max)).map(Plane::Core);
        Self {
            sequences,
            depth: config.r_max,
            block_tokens: config.kv.block_tokens,
            planes: core.chain(config.kv.boundary_layers.then_some(Plane::Boundary)).collect(),
            next_batch: 0,
            next_core_block: 0,
            next_boundary_block: 0,
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
            self.run(Stage::Prefill, &chunks, self.depth, clock)?;
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
        let rows = decode_rows(batch, context);
        let depth = self.depth;
        self.sample(plan.warm_up, plan.tokens, &rows, watch, |rig, clock| rig.run(Stage::Forward, &rows, depth, clock))
    }

    /// Decode steps in stages: the times of core, prelude and coda, each as a launch of its own.
    pub(super) fn stages(
        &mut self,
        batch: u32,
        context: u32,
        plan: &Plan,
        watch: &mut Watch<'_>,
    ) -> Result<[Times; 3], E::Error> {
        let rows = decode_rows(batch, context);
        let samples = || Samples::new(plan.warm_up, plan.tokens);
        let (mut prelude, mut core, mut coda) = (samples(), samples(), samples());
        while [&mut prelude, &mut core, &mut coda].into_iter().any(|samples| samples.want_more(watch)) {
            let (times, disturbed) = self.burst(&rows, watch, |rig, clock| {
                let mut times = vec![rig.run(Stage::Prelude, &rows, Depth::FIRST, clock)?];
                for depth in 1..=rig.depth.0 {
                    times.push(rig.run(Stage::Core, &rows, Depth(depth), clock)?);
                }
                times.push(rig.run(Stage::Coda, &rows, rig.depth, clock)?);
                Ok(times)
            })?;
            let last = times.len() - 1;
            prelude.add(times[0], disturbed);
            times[1..last].iter().for_each(|&time| core.add(time, disturbed));
            coda.add(times[last], disturbed);
        }
        Ok([core, prelude, coda].map(|samples| samples.times()))
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
        let depth = self.depth;
        self.sample(1, LAUNCHES, &rows, watch, |rig, clock| rig.run(Stage::Prefill, &rows, depth, clock))
    }

    /// The first `batch` sequences, which hold equally much, out to host memory and back: the time of one way.
    pub(super) fn offload(&mut self, batch: u32, watch: &mut Watch<'_>) -> Result<Times, E::Error> {
        let rows: Vec<_> = (0..batch).map(|slot| (slot, 0, self.sequences[slot as usize].filled)).collect();
        let depth = self.depth;
        self.sample(1, LAUNCHES, &rows, watch, |rig, clock| {
            let out = rig.run(Stage::Offload, &rows, depth, clock)?;
            for &(slot, ..) in &rows {
                rig.sequences[slot as usize].resident = false;
            }
            let back = rig.run(Stage::Restore, &rows, depth, clock)?;
            Ok(Nanos(u64::midpoint(out.0, back.0)))
        })
    }

    /// Bursts of one time each, until enough were calm.
    fn sample(
        &mut self,
        warm_up: u32,
        wanted: u32,
        rows: &[Rows],
        watch: &mut Watch<'_>,
        mut launch: impl FnMut(&mut Self, &mut dyn Clock) -> Result<Nanos, E::Error>,
    ) -> Result<Times, E::Error> {
        let mut samples = Samples::new(warm_up, wanted);
        while samples.want_more(watch) {
            let (time, disturbed) = self.burst(rows, watch, &mut launch)?;
            samples.add(time, disturbed);
        }
        Ok(samples.times())
    }

    /// Launches back to back, and whether they had to wait for a core.
    ///
    /// Asking that takes so long that an executor's threads fall asleep. In a live run they do not: the next batch comes
    /// within microseconds. So a prelude of one row goes ahead to wake them, untimed.
    fn burst<T>(
        &mut self,
        rows: &[Rows],
        watch: &mut Watch<'_>,
        launches: impl FnOnce(&mut Self, &mut dyn Clock) -> Result<T, E::Error>,
    ) -> Result<(T, bool), E::Error> {
        let waited = watch.waited();
        let (slot, position, _) = rows[0];
        self.run(Stage::Prelude, &[(slot, position, 1)], Depth::FIRST, watch.clock)?;
        let started = watch.clock.now();
        let result = launches(self, watch.clock)?;
        let took = watch.clock.now() - started;
        Ok((result, is_disturbed(watch.waited().saturating_sub(waited), took)))
    }

    /// Runs a batch and says how long it took the device.
    fn run(&mut self, stage: Stage, rows: &[Rows], depth: Depth, clock: &mut dyn Clock) -> Result<Nanos, E::Error> {
        let mut batch =
            Batch { id: self.next_batch, stage, rows: Vec::new(), admitted: Vec::new(), appended: Vec::new() };
        self.next_batch += 1;
        for &(slot, position, tokens) in rows {
            self.hold(slot, position + tokens, &mut batch);
            let sequence = &mut self.sequences[slot as usize];
            let (request, token) = (sequence.request.id, sequence.generated);
            // A prompt that is gone over again ends again: in a real run most prefill batches make tokens.
            let ends_prompt = stage == Stage::Prefill && sequence.filled == sequence.request.prompt_tokens;
            let speaks = ends_prompt || matches!(stage, Stage::Coda | Stage::Forward);
            sequence.generated += u32::from(speaks);
            batch.rows.push(Row { slot: Slot(slot), request, token, position, tokens, depth, ends_prompt });
        }
        self.executor.launch(batch, clock)?;
        let outcome = self.executor.wait(clock)?;
        Ok(outcome.finished - outcome.started)
    }

    /// Admits a sequence that has no slot and appends the blocks that it lacks.
    fn hold(&mut self, slot: u32, tokens: u32, batch: &mut Batch) {
        let sequence = &mut self.sequences[slot as usize];
        if !sequence.resident {
            sequence.resident = true;
            batch.admitted.push((Slot(slot), sequence.request));
            // One that returns gets its own blocks back.
            let held = sequence.blocks.iter();
            batch.appended.extend(held.map(|&(plane, block)| AppendedBlock { slot: Slot(slot), plane, block }));
        }
        let held = (sequence.blocks.len() / self.planes.len()) as u32;
        for _ in held..tokens.div_ceil(self.block_tokens) {
            for &plane in &self.planes {
                let next = match plane {
                    Plane::Boundary => &mut self.next_boundary_block,
                    Plane::Core(_) => &mut self.next_core_block,
                };
                sequence.blocks.push((plane, *next));
                batch.appended.push(AppendedBlock { slot: Slot(slot), plane, block: *next });
                *next += 1;
            }
        }
    }
}

/// The sequences' token at the context's last position.
fn decode_rows(batch: u32, context: u32) -> Vec<Rows> {
    (0..batch).map(|slot| (slot, context - 1, 1)).collect()
}
