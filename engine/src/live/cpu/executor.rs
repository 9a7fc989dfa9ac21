//! The device: a queue of work, run in order when it is waited for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use half::bf16;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use thiserror::Error;

use super::element::Element;
use super::kv::{KvPool, KvShape};
use super::model::CpuModel;
use super::parallel::alone;
use super::places::Places;
use super::transfer::Saved;
use crate::architecture::Architecture;
use crate::batch::Stage;
use crate::executor::Clock;
use crate::live::weights::Weights;
use crate::live::{Backend, ExitError, Live, LiveConfig, LiveError, Ran, Work};
use crate::models::criterion::Criterion;
use crate::request::RequestId;

/// How to run on this CPU. None of it changes a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads; 0 takes one a core.
    pub threads: usize,
    /// In `last_exited`, fill the planes that a token skipped when it leaves, as the paper's cache does, instead of
    /// reading its last one in their place.
    pub copy_skipped_planes: bool,
}

/// Why a live run on the CPU could not start or go on.
pub type CpuError = LiveError<CpuFailure>;

/// The system gives no threads.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct CpuFailure(#[from] ThreadPoolBuildError);

/// Runs a looped model for real. `E` is what weights, KV and activations are stored as: bf16, or f32 for comparisons.
pub type CpuExecutor<E = bf16> = Live<CpuBackend<E>>;

/// This machine's cores.
///
/// Work runs while it is waited for, on the caller's time: the cores that would prepare the next batch are the ones that
/// compute, so there is nothing to overlap with.
#[derive(Debug)]
pub struct CpuBackend<E: Element = bf16> {
    pub(super) model: CpuModel<E>,
    pub(super) config: LiveConfig,
    pub(super) options: CpuOptions,
    /// What signals are computed for.
    pub(super) criterion: Criterion,
    pub(super) places: Places,
    pub(super) core: KvPool<E>,
    pub(super) boundary: KvPool<E>,
    /// By place.
    pub(super) running: Vec<Running>,
    /// By place, the token chosen as its input.
    pub(super) tokens: Vec<u32>,
    /// Page by page.
    pub(super) parked: BTreeMap<RequestId, Vec<Saved<E>>>,
    queue: VecDeque<Work>,
    /// None: the caller's own thread.
    threads: Option<Arc<ThreadPool>>,
}

/// The token that a place is making.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    /// The looped state after `depth` loops.
    pub(super) state: Vec<f32>,
    /// The embedded token, where every loop joins it to the state.
    pub(super) injected: Vec<f32>,
    /// Loops that ran.
    pub(super) depth: u8,
    /// The last loop's logits, if the exit criterion compares them.
    pub(super) logits: Vec<f32>,
}

impl<E: Element> Live<CpuBackend<E>> {
    /// A model ready to serve under a scheduler's settings.
    ///
    /// # Errors
    /// The gate decides too late for the overlap mode or is none that the model can have, or the system gives no threads.
    pub fn new(
        architecture: &Architecture,
        weights: &Weights,
        config: LiveConfig,
        options: CpuOptions,
    ) -> Result<Self, CpuError> {
        let backend = CpuBackend::new(architecture, weights, config.clone(), options)
            .map_err(|error| LiveError::Device(CpuFailure(error)))?;
        Self::on(backend, architecture, config, weights.has_lookahead_gate()).map_err(ExitError::into)
    }
}

impl<E: Element> CpuBackend<E> {
    fn new(
        architecture: &Architecture,
        weights: &Weights,
        config: LiveConfig,
        options: CpuOptions,
    ) -> Result<Self, ThreadPoolBuildError> {
        let scheduler = &config.scheduler;
        let boundary_layers = (architecture.prelude_layers + architecture.coda_layers) as usize;
        assert_eq!(scheduler.kv.boundary_layers, boundary_layers > 0, "the scheduler was told of another model");
        let shape = |layers, blocks: u32| KvShape {
            layers,
            blocks: blocks as usize,
            block_tokens: scheduler.kv.block_tokens as usize,
            heads: architecture.kv_heads() as usize,
            head_dim: architecture.head_dim as usize,
        };
        let planes = u32::from(scheduler.kv.layout.planes(scheduler.r_max));
        let places = (scheduler.max_num_seqs * config.window) as usize;
        Ok(Self {
            model: CpuModel::new(architecture, weights),
            places: Places::new(scheduler),
            core: KvPool::new(shape(architecture.core_layers as usize, scheduler.kv.blocks)),
            boundary: KvPool::new(shape(boundary_layers, scheduler.kv.blocks / planes)),
            running: vec![Running::default(); places],
            tokens: vec![0; places],
            parked: BTreeMap::new(),
            queue: VecDeque::new(),
            threads: match options.threads {
                1 => None,
                threads => Some(Arc::new(ThreadPoolBuilder::new().num_threads(threads).build()?)),
            },
            criterion: config.exits.criterion(architecture),
            config,
            options,
        })
    }

    fn run(&mut self, work: &Work) -> Ran {
        self.places.apply(&work.edits);
        work.lanes.iter().for_each(|lane| self.places.tables().check_owner(lane.slot, lane.request));
        self.model.rope.grow(work.lanes.iter().map(|lane| lane.position + 1).max().unwrap_or(0));
        match work.stage {
            Stage::Prelude => self.prelude(&work.lanes),
            Stage::Core => return self.core(work),
            Stage::Coda => return self.coda(work),
            Stage::Prefill | Stage::Forward => return self.full_depth(work),
            Stage::Offload => self.offload(&work.transfers),
            Stage::Restore => self.restore(&work.transfers),
        }
        Ran::default()
    }
}

impl<E: Element> Backend for CpuBackend<E> {
    type Error = CpuFailure;

    fn vocab(&self) -> u32 {
        self.model.vocab as u32
    }

    fn launch(&mut self, work: Work, _: &mut dyn Clock) -> Result<(), CpuFailure> {
        self.queue.push_back(work);
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Ran, CpuFailure> {
        let work = self.queue.pop_front().expect("work was launched before it is waited for");
        let threads = self.threads.clone();
        let started = clock.now();
        let ran = match threads {
            Some(threads) => threads.install(|| self.run(&work)),
            None => alone(|| self.run(&work)),
        };
        Ok(Ran { started, finished: clock.now(), ..ran })
    }

    fn forget(&mut self, request: RequestId) {
        self.parked.remove(&request);
    }
}
