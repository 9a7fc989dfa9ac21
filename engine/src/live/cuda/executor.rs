//! The device: work is described, uploaded and queued while the GPU works, and waited for in order.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::compile::For;
use super::error::{CudaError, CudaRunError};
use super::flight::{CudaStats, InFlight, Spare, Timeline, events};
use super::graphs::{Decode, Graphs, bucket, queue};
use super::memory::Pinned;
use super::model::{CudaModel, DeviceModel};
use super::ops::Ops;
use super::options::CudaOptions;
use super::scores::{Piece, told};
use super::store::Store;
use super::transfer::Parked;
use super::upload::{BannedLists, Draw, Upload, items, rows};
use crate::batch::Stage;
use crate::executor::Clock;
use crate::live::{Backend, Live, LiveConfig, LiveError, Ran, Tables, Work};
use crate::models::criterion::Criterion;
use crate::request::RequestId;
use crate::scheduler::SchedulerConfig;

/// Runs Ouro and Huginn on one GPU.
pub type CudaExecutor = Live<CudaBackend>;

/// One GPU with a model on it. Dropped and made on one thread.
#[derive(Debug)]
pub struct CudaBackend {
    pub(super) ops: Ops,
    pub(super) model: Rc<DeviceModel>,
    pub(super) store: Store,
    pub(super) config: LiveConfig,
    /// What rows are judged by after a loop: other kernels, memory and graphs.
    pub(super) criterion: Criterion,
    pub(super) tables: Tables,
    pub(super) parked: BTreeMap<RequestId, Parked>,
    pub(super) spare: Spare,
    pub(super) stats: CudaStats,
    graphs: Graphs,
    in_flight: VecDeque<InFlight>,
    timeline: Timeline,
}

impl Live<CudaBackend> {
    /// A model ready to serve under a scheduler's settings: kernels compiled, caches placed, graphs recorded.
    ///
    /// # Errors
    /// A library is missing, something does not fit, or the gate decides too late for the overlap mode or is none that the model
    /// can have.
    pub fn new(model: &CudaModel, config: LiveConfig, options: CudaOptions) -> Result<Self, CudaRunError> {
        let model = model.0.clone();
        let backend = CudaBackend::new(model.clone(), config.clone(), options).map_err(LiveError::Device)?;
        Ok(Self::on(backend, &model.architecture, config, model.has_lookahead_gate)?)
    }

    /// What it did, beyond tokens.
    pub fn stats(&self) -> CudaStats {
        self.backend.stats
    }

    /// Forgets requests, times and counts, for a measurement behind a warm-up. Panics if a batch is in flight.
    pub fn reset(&mut self) {
        self.clear();
        self.backend.stats = CudaStats::default();
        self.backend.timeline = Timeline::default();
    }

    /// Takes another mode, other exits and other prompts for the requests to come, and forgets what was; if memory or graphs
    /// would have to be others, changes nothing and returns false. Panics if a batch is in flight.
    ///
    /// # Errors
    /// The gate decides too late for the overlap mode.
    pub fn renew(&mut self, config: LiveConfig) -> Result<bool, CudaRunError> {
        let now = self.config();
        let same_scheduler = SchedulerConfig { mode: now.scheduler.mode, ..config.scheduler } == now.scheduler;
        let same_memory = config.initial_state == now.initial_state
            && config.keep_logits == now.keep_logits
            && config.window == now.window
            && config.exits.criterion(&self.backend.model.architecture) == self.backend.criterion;
        if !same_scheduler || !same_memory {
            return Ok(false);
        }
        let model = self.backend.model.clone();
        self.backend.config = config.clone();
        self.configure(config, &model.architecture, model.has_lookahead_gate)?;
        self.reset();
        Ok(true)
    }

    /// The last executor of a model if it can be renewed, or a new one. One that fails is not used again, and the last is gone
    /// before the next is made: there may be no memory for both.
    ///
    /// # Errors
    /// As [`Self::new`] and [`Self::renew`].
    pub fn renewed(
        last: Option<Box<Self>>,
        model: &CudaModel,
        config: LiveConfig,
        options: CudaOptions,
    ) -> Result<Box<Self>, CudaRunError> {
        if let Some(mut executor) = last
            && executor.renew(config.clone())?
        {
            return Ok(executor);
        }
        Ok(Box::new(Self::new(model, config, options)?))
    }

    /// Fills every KV pool with unit noise, for measuring decode steps on a context that no prompt made.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill_kv_with_noise(&self, seed: u64) -> Result<(), CudaRunError> {
        self.backend.fill_kv_with_noise(seed).map_err(LiveError::Device)
    }
}

impl CudaBackend {
    fn new(model: Rc<DeviceModel>, config: LiveConfig, options: CudaOptions) -> Result<Self, CudaError> {
        let (device, architecture) = (&model.device, &model.architecture);
        let scheduler = &config.scheduler;
        assert_eq!(
            scheduler.kv.boundary_layers,
            architecture.has_boundary_layers(),
            "the scheduler was told of another model"
        );
        let criterion = config.exits.criterion(architecture);
        let compiled = For { architecture, block_tokens: scheduler.kv.block_tokens, criterion };
        let ops = Ops::new(device, compiled, options.batch_invariant)?;
        let rows = (scheduler.max_num_seqs * config.window) as usize;
        let store = Store::new(device, architecture, &config, bucket(rows))?;
        let graphs = match options.graphs {
            true => Graphs::record(rows, (&ops, &*model, &store), &config)?,
            false => Graphs::none(),
        };
        Ok(Self {
            tables: Tables::new(scheduler.kv.block_tokens, scheduler.max_num_seqs),
            ops,
            model,
            store,
            graphs,
            parked: BTreeMap::new(),
            spare: Spare::default(),
            stats: CudaStats::default(),
            in_flight: VecDeque::new(),
            timeline: Timeline::default(),
            criterion,
            config,
        })
    }

    fn fill_kv_with_noise(&self, seed: u64) -> Result<(), CudaError> {
        for pool in [&self.store.kv.core, &self.store.kv.boundary] {
            let numbers = pool.buffer.bytes() as u64 / 2;
            if numbers > 0 {
                self.ops.fill_noise(pool.buffer.address(), numbers, seed)?;
            }
        }
        // Every token counts as having left at full depth.
        let depths = vec![self.config.scheduler.r_max.0; self.store.kv.depths.bytes()];
        self.store.kv.depths.write(&self.ops.device, 0, &depths)
    }

    /// Makes the edits in the host's tables and gives the device's new entries: index, page.
    fn entries(&mut self, work: &Work) -> Vec<[i32; 4]> {
        let pages_max = self.store.kv.pages_max;
        let added = work.edits.iter().filter_map(|edit| self.tables.apply(edit));
        let entry = |entry: crate::live::TableEntry| {
            assert!(entry.index < pages_max, "a table grows beyond max_context_tokens");
            [(entry.slot.index() * pages_max + entry.index) as i32, entry.page.0 as i32, 0, 0]
        };
        added.map(entry).collect()
    }

    /// Describes decode rows in pinned memory and queues their stage.
    fn queue_decode(&mut self, work: &Work, entries: &[[i32; 4]], upload: &mut Pinned) -> Result<(), CudaError> {
        let items = items(&work.lanes);
        let (draws_at, items_at) = (self.store.offsets.draws(), self.store.offsets.items());
        let behind_items = (items_at + size_of_val(items.as_slice())).next_multiple_of(16);
        let mut banned = BannedLists::new(behind_items - draws_at);
        // A row that emits nothing draws for nobody.
        let mut draws = vec![Draw { place: -1, ..Draw::default() }; work.lanes.len()];
        work.draws.iter().for_each(|draw| draws[draw.lane as usize] = banned.draw(draw));
        let mut out = Upload::new(upload);
        out.put(&rows(&work.lanes));
        out.seek(draws_at);
        out.put(&draws);
        out.seek(items_at);
        out.put(&items);
        banned.put(&mut out, draws_at);
        let entries_at = out.put(entries);
        let bytes = out.finish(work.lanes.len(), items.len(), entries.len(), entries_at);
        self.store.scratch.upload.upload(&self.ops.device, upload, bytes)?;
        let decode = Decode::of(work, self.criterion);
        match self.graphs.get(decode, work.lanes.len()).filter(|_| !work.spans) {
            Some(graph) => {
                self.stats.graph_launches += 1;
                self.ops.device.launch_graph(graph)
            }
            None => {
                self.stats.eager_fallbacks += 1;
                let count = bucket(work.lanes.len());
                queue((decode, work.spans), count, (&self.ops, &*self.model, &self.store), &self.config)
            }
        }
    }

    /// What came of work whose end has passed.
    fn read(&self, flight: &InFlight) -> Ran {
        let mut ran = Ran::default();
        if let Some(readback) = &flight.readback {
            let at = self.store.signals_at();
            let pairs = readback.bytes()[at..].chunks_exact(8).take(flight.signals);
            ran.signals = pairs.map(bytemuck::pod_read_unaligned).collect();
            let chosen = |&row: &usize| bytemuck::pod_read_unaligned(&readback.bytes()[4 * row..4 * row + 4]);
            ran.chosen = flight.drawn.iter().map(chosen).collect();
        }
        if let Some(logits) = &flight.logits {
            let bytes = self.model.architecture.vocab as usize * 4;
            let of = |&row: &usize| bytemuck::pod_collect_to_vec(&logits.bytes()[row * bytes..(row + 1) * bytes]);
            ran.logits = flight.drawn.iter().map(of).collect();
        }
        let vocab = self.model.architecture.vocab as usize;
        ran.scores = told(&flight.scores, vocab, &ran.chosen);
        ran
    }
}

impl Backend for CudaBackend {
    type Error = CudaError;

    fn vocab(&self) -> u32 {
        self.model.architecture.vocab as u32
    }

    fn launch(&mut self, work: Work, _: &mut dyn Clock) -> Result<(), CudaError> {
        let entries = self.entries(&work);
        work.lanes.iter().for_each(|lane| self.tables.check_owner(lane.slot, lane.request));
        let mut upload = self.spare.take(self.store.upload_bytes())?;
        let (start, end) = events(&self.ops.device)?;
        let (mut held, mut picks_at) = (Vec::new(), 0);
        self.ops.device.record(&start)?;
        match work.stage {
            Stage::Prelude | Stage::Core | Stage::Coda | Stage::Forward => {
                self.queue_decode(&work, &entries, &mut upload)?;
            }
            Stage::Prefill => picks_at = self.queue_prefill(&work, &entries, &mut upload)?,
            Stage::Offload => self.queue_offload(&work, &mut upload)?,
            Stage::Restore => held = self.queue_restore(&work, &entries, &mut upload)?,
        }
        // A prefill gathers the rows that choose; in decode they stay where they are.
        let drawn: Vec<usize> = match work.stage {
            Stage::Prefill => (0..work.draws.len()).collect(),
            _ => work.draws.iter().map(|draw| draw.lane as usize).collect(),
        };
        let results = drawn.last().map_or(0, |last| last + 1);
        let signals = if work.signals { work.lanes.len() } else { 0 };
        let bytes = if signals > 0 { self.store.signals_at() + 8 * signals } else { results * 4 };
        let readback = match bytes {
            0 => None,
            _ => {
                let pinned = self.spare.take(self.store.scratch.results.bytes())?;
                self.store.scratch.results.download(&self.ops.device, &pinned, bytes)?;
                self.stats.readbacks += 1;
                Some(pinned)
            }
        };
        let logits = match self.config.keep_logits && results > 0 {
            false => None,
            true => {
                let bytes = results * self.model.architecture.vocab as usize * 4;
                let pinned = self.spare.take(bytes)?;
                self.store.scratch.logits.download(&self.ops.device, &pinned, bytes)?;
                Some(pinned)
            }
        };
        let scores = self.queue_scores(&work, &drawn, picks_at)?;
        self.ops.device.record(&end)?;
        self.in_flight.push_back(InFlight { signals, drawn, upload, readback, logits, scores, start, end, held });
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Ran, CudaError> {
        let flight = self.in_flight.pop_front().expect("work was launched before it is waited for");
        flight.end.wait()?;
        // Behind the wait: the timeline may not be ahead of it.
        let now = clock.now();
        let ran = self.read(&flight);
        let InFlight { upload, readback, logits, scores, start, end, held, .. } = flight;
        let (started, finished) = self.timeline.place((&start, end), now, &mut self.stats)?;
        self.spare.give(upload);
        let scored = scores.into_iter().filter_map(Piece::spare);
        readback.into_iter().chain(logits).chain(held).chain(scored).for_each(|buffer| self.spare.give(buffer));
        Ok(Ran { started, finished, ..ran })
    }

    fn forget(&mut self, request: RequestId) {
        if let Some(Parked { core, boundary, depths, .. }) = self.parked.remove(&request) {
            [core, boundary, depths].into_iter().for_each(|buffer| self.spare.give(buffer));
        }
    }
}
