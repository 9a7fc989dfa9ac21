//! The executor: batches are described, uploaded and queued while the GPU works, and waited for in order.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::error::CudaError;
use super::flight::{CudaStats, InFlight, Spare, Timeline, events};
use super::graphs::{Graphs, bucket, queue};
use super::memory::Pinned;
use super::mirror::Mirror;
use super::model::{CudaModel, Model};
use super::ops::Ops;
use super::options::CudaOptions;
use super::store::Store;
use super::transfer::Parked;
use super::upload::{Upload, items};
use crate::batch::{Batch, Outcome, RowOutcome, Stage};
use crate::executor::{Clock, Executor};
use crate::live::{ExitPolicy, LiveConfig, LiveExecutor, OutputToken, Transcripts};
use crate::models::gate::{GateMemory, Signal};
use crate::request::{Arrival, RequestId};
use crate::scheduler::{Finish, SchedulerConfig};
use crate::units::Depth;

/// Runs Ouro and Huginn on one GPU. Dropped and made on one thread.
#[derive(Debug)]
pub struct CudaExecutor {
    pub(super) ops: Ops,
    pub(super) model: Rc<Model>,
    pub(super) store: Store,
    pub(super) graphs: Graphs,
    pub(super) config: LiveConfig,
    pub(super) options: CudaOptions,
    pub(super) mirror: Mirror,
    pub(super) parked: BTreeMap<RequestId, Parked>,
    pub(super) spare: Spare,
    pub(super) stats: CudaStats,
    pub(super) transcripts: Transcripts,
    exits: ExitPolicy,
    /// By slot, the gate's memory of the token in the making.
    gates: Vec<GateMemory>,
    in_flight: VecDeque<InFlight>,
    timeline: Timeline,
}

impl CudaExecutor {
    /// A model ready to serve under a scheduler's settings: kernels compiled, caches placed, graphs recorded.
    ///
    /// # Errors
    /// A library is missing, something does not fit, or the gate decides too late for the overlap mode.
    pub fn new(model: &CudaModel, config: LiveConfig, options: CudaOptions) -> Result<Self, CudaError> {
        let model = model.0.clone();
        let (device, architecture) = (&model.device, &model.architecture);
        let scheduler = &config.scheduler;
        let boundary_layers = architecture.prelude_layers + architecture.coda_layers > 0;
        assert_eq!(scheduler.kv.boundary_layers, boundary_layers, "the scheduler was told of another model");
        let exits = ExitPolicy::new(config.exits.clone(), architecture, scheduler, model.has_lookahead_gate)?;
        let ops = Ops::new(device, architecture, scheduler.kv.block_tokens, options.batch_invariant)?;
        let slots = scheduler.max_num_seqs as usize;
        let blocks_max = scheduler.max_context_tokens.div_ceil(scheduler.kv.block_tokens) as usize;
        let mirror = Mirror::new(slots, scheduler.kv.layout.planes(scheduler.r_max), blocks_max);
        let store = Store::new(device, architecture, scheduler, (&mirror, bucket(slots)))?;
        let graphs = match options.graphs {
            true => Graphs::record(slots, (&ops, &*model, &store), (&config, &options))?,
            false => Graphs::none(),
        };
        Ok(Self {
            ops,
            model,
            store,
            graphs,
            options,
            mirror,
            parked: BTreeMap::new(),
            spare: Spare::default(),
            stats: CudaStats::default(),
            transcripts: Transcripts::default(),
            exits,
            gates: vec![GateMemory::default(); slots],
            in_flight: VecDeque::new(),
            timeline: Timeline::default(),
            config,
        })
    }

    /// What it did, beyond tokens.
    pub fn stats(&self) -> CudaStats {
        self.stats
    }

    /// Forgets transcripts, times and counts, for a measurement behind a warm-up. Panics if a batch is in flight.
    pub fn reset(&mut self) {
        assert!(self.in_flight.is_empty(), "a batch is in flight");
        self.stats = CudaStats::default();
        self.timeline = Timeline::default();
        self.transcripts = Transcripts::default();
    }

    /// Takes another mode, other exits and other prompts for the requests to come, and forgets what was; if memory or graphs would
    /// have to be others, changes nothing and returns false. Panics if a batch is in flight.
    ///
    /// # Errors
    /// The gate decides too late for the overlap mode.
    pub fn renew(&mut self, config: LiveConfig) -> Result<bool, CudaError> {
        let same_scheduler =
            SchedulerConfig { mode: self.config.scheduler.mode, ..config.scheduler } == self.config.scheduler;
        let same_model_input =
            config.initial_state == self.config.initial_state && config.keep_logits == self.config.keep_logits;
        if !same_scheduler || !same_model_input {
            return Ok(false);
        }
        let (exits, model) = (config.exits.clone(), &self.model);
        self.exits = ExitPolicy::new(exits, &model.architecture, &config.scheduler, model.has_lookahead_gate)?;
        self.config = config;
        self.reset();
        Ok(true)
    }

    /// Fills every KV pool with unit noise, for measuring decode steps on a context that no prompt made.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill_kv_with_noise(&self, seed: u64) -> Result<(), CudaError> {
        for pool in [&self.store.core, &self.store.boundary] {
            let numbers = pool.buffer.bytes() as u64 / 2;
            if numbers > 0 {
                self.ops.fill_noise(pool.buffer.address(), numbers, seed)?;
            }
        }
        // Every token counts as having left at full depth.
        let depths = vec![self.config.scheduler.r_max.0; self.store.depths.bytes()];
        self.store.depths.write(&self.ops.device, 0, &depths)
    }

    /// Describes a decode batch in pinned memory and queues its stage.
    fn queue_decode(&mut self, batch: &Batch, appended: &[[i32; 4]], upload: &mut Pinned) -> Result<(), CudaError> {
        let rows: Vec<[i32; 4]> =
            batch.rows.iter().map(|row| [row.slot.0 as i32, row.position as i32, i32::from(row.depth.0), -1]).collect();
        let keys: Vec<[i32; 2]> = batch.rows.iter().map(|row| [row.request.0 as i32, row.token as i32]).collect();
        let items = items(batch.rows.iter().map(|row| (row.slot.0, row.position, row.depth.0)));
        let mut out = Upload::new(upload);
        out.put(&rows);
        out.seek(self.store.places.keys());
        out.put(&keys);
        out.seek(self.store.places.items());
        out.put(&items);
        let appended_at = out.put(appended);
        let bytes = out.finish(rows.len(), items.len(), appended.len(), appended_at);
        self.store.upload.upload(&self.ops.device, upload, bytes)?;
        match self.graphs.get(batch.stage, rows.len()) {
            Some(graph) => {
                self.stats.graph_launches += 1;
                self.ops.device.launch_graph(graph)
            }
            None => {
                self.stats.eager_fallbacks += 1;
                let count = bucket(rows.len());
                queue(batch.stage, count, (&self.ops, &*self.model, &self.store), (&self.config, &self.options))
            }
        }
    }

    /// Rows of a batch that make a token, in order.
    fn speakers(batch: &Batch) -> usize {
        match batch.stage {
            Stage::Prefill => batch.rows.iter().filter(|row| row.ends_prompt).count(),
            Stage::Coda | Stage::Forward => batch.rows.len(),
            _ => 0,
        }
    }

    /// Bytes of the results that the host needs; 0 for none.
    fn readback_bytes(&self, batch: &Batch) -> usize {
        match batch.stage {
            Stage::Core if self.exits.gate().is_some() => self.store.signals_at() + 8 * batch.rows.len(),
            _ => Self::speakers(batch) * 4,
        }
    }

    /// Waits for every batch in flight, so that the host knows all tokens.
    pub(super) fn drain(&mut self, clock: &dyn Clock) -> Result<(), CudaError> {
        if self.in_flight.iter().any(|flight| flight.outcome.is_none()) {
            self.stats.drains += 1;
        }
        let mut in_flight = std::mem::take(&mut self.in_flight);
        let landed = in_flight.iter_mut().try_for_each(|flight| self.land(flight, clock));
        self.in_flight = in_flight;
        landed
    }

    /// Waits for a batch and takes its results in.
    fn land(&mut self, flight: &mut InFlight, clock: &dyn Clock) -> Result<(), CudaError> {
        if flight.outcome.is_some() {
            return Ok(());
        }
        flight.end.wait()?;
        // Behind the wait: the timeline may not be ahead of it.
        let now = clock.now();
        let (start, end) = events(&self.ops.device)?;
        let (start, end) = (std::mem::replace(&mut flight.start, start), std::mem::replace(&mut flight.end, end));
        let (started, finished) = self.timeline.place((&start, end), now, &mut self.stats)?;
        let rows = self.outcomes(flight)?;
        let batch = flight.batch.clone();
        flight.outcome = Some(Outcome { batch, started, finished, rows });
        Ok(())
    }

    fn outcomes(&mut self, flight: &InFlight) -> Result<Vec<RowOutcome>, CudaError> {
        let batch = &flight.batch;
        match batch.stage {
            Stage::Core => (0..batch.rows.len()).map(|row| self.looped(flight, row)).collect(),
            Stage::Prefill | Stage::Coda | Stage::Forward => {
                let mut speaker = 0;
                let r_max = self.config.scheduler.r_max;
                let mut outcomes = Vec::with_capacity(batch.rows.len());
                for row in &batch.rows {
                    if batch.stage == Stage::Prefill && !row.ends_prompt {
                        outcomes.push(RowOutcome::default());
                        continue;
                    }
                    let depth = if batch.stage == Stage::Forward { r_max } else { row.depth };
                    outcomes.push(self.spoke(flight, speaker, (row.request, row.token), depth)?);
                    speaker += 1;
                }
                Ok(outcomes)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// What may be known of a core row's exit.
    fn looped(&mut self, flight: &InFlight, index: usize) -> Result<RowOutcome, CudaError> {
        let row = &flight.batch.rows[index];
        let memory = &mut self.gates[row.slot.index()];
        if row.depth == Depth::FIRST {
            *memory = GateMemory::default();
        }
        if let (Some(gate), Some(readback)) = (self.exits.gate(), &flight.readback) {
            let at = self.store.signals_at() + 8 * index;
            let [first, second]: [f32; 2] = bytemuck::pod_read_unaligned(&readback.bytes()[at..at + 8]);
            let signal = match gate.signal {
                Signal::Hazard | Signal::Distance => first,
                Signal::NextHazard => {
                    if row.depth == Depth::FIRST {
                        gate.survive(memory, first);
                    }
                    second
                }
            };
            gate.observe(memory, row.depth, signal);
        }
        Ok(RowOutcome { leaves_after: self.exits.reveal(row, memory)?, finished: false })
    }

    /// Takes in the token of a batch's speaker number `speaker`.
    fn spoke(
        &mut self,
        flight: &InFlight,
        speaker: usize,
        (request, token): (RequestId, u32),
        depth: Depth,
    ) -> Result<RowOutcome, CudaError> {
        let readback = flight.readback.as_ref().expect("a batch that makes tokens reads them back");
        let chosen: u32 = bytemuck::pod_read_unaligned(&readback.bytes()[4 * speaker..4 * speaker + 4]);
        if chosen == u32::MAX {
            return Err(CudaError::NotFinite { request, token });
        }
        let ends = self.config.scheduler.finish == Finish::Eos
            && match self.config.eos {
                Some(eos) => chosen == eos,
                None => self.transcripts.is_last(request, token),
            };
        let vocab = self.model.architecture.vocab as usize * 4;
        let logits = flight.logits.as_ref().map(|logits| {
            bytemuck::pod_collect_to_vec::<u8, f32>(&logits.bytes()[speaker * vocab..(speaker + 1) * vocab])
        });
        self.transcripts.push(request, token, OutputToken { token: chosen, depth, logits }, ends);
        Ok(RowOutcome { leaves_after: None, finished: ends })
    }
}

impl Executor for CudaExecutor {
    type Error = CudaError;

    fn arrive(&mut self, arrival: &Arrival) {
        self.transcripts.arrive(arrival);
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), CudaError> {
        let vocab = self.model.architecture.vocab as u32;
        for (_, request) in &batch.admitted {
            self.transcripts.admit(request, &self.config.prompts, vocab)?;
        }
        if self.needs_tokens(&batch) {
            self.drain(clock)?;
        }
        let appended = self.mirror.apply(&batch);
        let mut upload = self.spare.take(self.store.upload_bytes())?;
        let (start, end) = events(&self.ops.device)?;
        let mut held = Vec::new();
        self.ops.device.record(&start)?;
        match batch.stage {
            Stage::Prelude | Stage::Core | Stage::Coda | Stage::Forward => {
                self.queue_decode(&batch, &appended, &mut upload)?;
            }
            Stage::Prefill => self.queue_prefill(&batch, &appended, &mut upload)?,
            Stage::Offload => self.queue_offload(&batch, &mut upload)?,
            Stage::Restore => held = self.queue_restore(&batch, &appended, &mut upload)?,
        }
        let bytes = self.readback_bytes(&batch);
        let readback = match bytes {
            0 => None,
            _ => {
                let pinned = self.spare.take(self.store.results.bytes())?;
                self.store.results.download(&self.ops.device, &pinned, bytes)?;
                self.stats.readbacks += 1;
                Some(pinned)
            }
        };
        let speakers = Self::speakers(&batch);
        let logits = match self.config.keep_logits && speakers > 0 {
            false => None,
            true => {
                let bytes = speakers * vocab as usize * 4;
                let pinned = self.spare.take(bytes)?;
                self.store.logits.download(&self.ops.device, &pinned, bytes)?;
                Some(pinned)
            }
        };
        self.ops.device.record(&end)?;
        self.in_flight.push_back(InFlight { batch, upload, readback, logits, start, end, held, outcome: None });
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, CudaError> {
        let mut flight = self.in_flight.pop_front().expect("a batch was launched before it is waited for");
        self.land(&mut flight, clock)?;
        self.spare.give(flight.upload);
        flight.readback.into_iter().chain(flight.logits).chain(flight.held).for_each(|buffer| self.spare.give(buffer));
        Ok(flight.outcome.expect("landed above"))
    }
}

impl LiveExecutor for CudaExecutor {
    fn transcripts(&self) -> &Transcripts {
        &self.transcripts
    }

    fn exit_label(&self) -> &'static str {
        self.exits.label()
    }
}
