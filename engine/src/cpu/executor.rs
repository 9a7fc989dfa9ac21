//! The executor: a queue of batches, run in order when they are waited for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use half::bf16;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use thiserror::Error;

use super::element::Element;
use super::kv::{KvPool, KvShape};
use super::model::Model;
use super::parallel::alone;
use super::transfer::Parked;
use crate::architecture::Architecture;
use crate::batch::{Batch, Outcome, RowOutcome, Stage};
use crate::executor::{Clock, Executor};
use crate::live::{ExitError, ExitPolicy, LiveConfig, LiveExecutor, PromptError, Tables, Transcripts};
use crate::models::gate::GateMemory;
use crate::models::weights::Weights;
use crate::request::{Arrival, RequestId};

/// How to run on this CPU. None of it changes a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads; 0 takes one a core.
    pub threads: usize,
    /// In `last_exited`, fill the planes that a token skipped when it leaves, as the paper's cache does, instead of
    /// reading its last one in their place.
    pub copy_skipped_planes: bool,
}

/// Why a batch could not run.
#[derive(Debug, Error)]
pub enum CpuError {
    /// An exit that the settings do not allow.
    #[error(transparent)]
    Exit(#[from] ExitError),
    /// A prompt that does not belong to its request.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The system gives no threads.
    #[error(transparent)]
    Threads(#[from] ThreadPoolBuildError),
    /// The model's numbers ran out of range: its weights are broken, or are another model's.
    #[error("request {}, token {token}: the logits are not finite", request.0)]
    NotFinite {
        /// The request.
        request: RequestId,
        /// The output token.
        token: u32,
    },
}

/// Runs a looped model for real. `E` is what weights, KV and activations are stored as: bf16, or f32 for comparisons.
///
/// A batch runs while it is waited for, on the caller's time: the cores that would prepare the next one are the ones
/// that compute, so there is nothing to overlap with.
#[derive(Debug)]
pub struct CpuExecutor<E: Element = bf16> {
    pub(super) model: Model<E>,
    pub(super) config: LiveConfig,
    pub(super) options: CpuOptions,
    pub(super) exits: ExitPolicy,
    pub(super) tables: Tables,
    pub(super) core: KvPool<E>,
    pub(super) boundary: KvPool<E>,
    /// By slot.
    pub(super) running: Vec<Running>,
    pub(super) parked: BTreeMap<RequestId, Parked<E>>,
    pub(super) transcripts: Transcripts,
    queue: VecDeque<Batch>,
    /// None: the caller's own thread.
    threads: Option<Arc<ThreadPool>>,
}

/// The token that a slot is making.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    /// The looped state after `depth` loops.
    pub(super) state: Vec<f32>,
    /// Huginn: the embedding that every loop joins to the state.
    pub(super) injected: Vec<f32>,
    /// Loops that ran.
    pub(super) depth: u8,
    pub(super) gate: GateMemory,
}

impl<E: Element> CpuExecutor<E> {
    /// A model ready to serve under a scheduler's settings.
    ///
    /// # Errors
    /// The gate decides too late for the overlap mode, or the system gives no threads.
    pub fn new(
        architecture: &Architecture,
        weights: &Weights,
        config: LiveConfig,
        options: CpuOptions,
    ) -> Result<Self, CpuError> {
        let scheduler = &config.scheduler;
        let boundary_layers = (architecture.prelude_layers + architecture.coda_layers) as usize;
        assert_eq!(scheduler.kv.boundary_layers, boundary_layers > 0, "the scheduler was told of another model");
        let exits = ExitPolicy::new(config.exits.clone(), architecture, scheduler, weights.has_lookahead_gate())?;
        let shape = |layers, blocks: u32| KvShape {
            layers,
            blocks: blocks as usize,
            block_tokens: scheduler.kv.block_tokens as usize,
            heads: architecture.heads as usize,
            head_dim: architecture.head_dim as usize,
        };
        let planes = u32::from(scheduler.kv.layout.planes(scheduler.r_max));
        let slots = scheduler.max_num_seqs;
        Ok(Self {
            model: Model::new(architecture, weights),
            exits,
            tables: Tables::new(scheduler.kv.layout, scheduler.kv.block_tokens, scheduler.r_max, slots),
            core: KvPool::new(shape(architecture.core_layers as usize, scheduler.kv.blocks)),
            boundary: KvPool::new(shape(boundary_layers, scheduler.kv.blocks / planes)),
            running: vec![Running::default(); slots as usize],
            parked: BTreeMap::new(),
            transcripts: Transcripts::default(),
            queue: VecDeque::new(),
            threads: match options.threads {
                1 => None,
                threads => Some(Arc::new(ThreadPoolBuilder::new().num_threads(threads).build()?)),
            },
            config,
            options,
        })
    }

    fn run(&mut self, batch: &Batch) -> Result<Vec<RowOutcome>, CpuError> {
        self.tables.apply(batch);
        let rows = &batch.rows;
        for row in rows {
            let owner = self.tables.request(row.slot);
            assert_eq!(owner, Some(row.request), "slot {} belongs to another request", row.slot.0);
        }
        self.model.rope.grow(rows.iter().map(|row| row.context()).max().unwrap_or(0));
        match batch.stage {
            Stage::Prefill => self.prefill(rows),
            Stage::Prelude => {
                self.prelude(rows);
                Ok(Vec::new())
            }
            Stage::Core => self.core(rows),
            Stage::Coda => self.coda(rows),
            Stage::Forward => self.forward(rows),
            Stage::Offload => {
                self.offload(rows);
                Ok(Vec::new())
            }
            Stage::Restore => {
                self.restore(rows);
                Ok(Vec::new())
            }
        }
    }
}

impl<E: Element> Executor for CpuExecutor<E> {
    type Error = CpuError;

    fn arrive(&mut self, arrival: &Arrival) {
        self.transcripts.arrive(arrival);
    }

    fn launch(&mut self, batch: Batch, _: &mut dyn Clock) -> Result<(), CpuError> {
        for (_, request) in &batch.admitted {
            self.transcripts.admit(request, &self.config.prompts, self.model.vocab as u32)?;
        }
        self.queue.push_back(batch);
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, CpuError> {
        let batch = self.queue.pop_front().expect("a batch was launched before it is waited for");
        let threads = self.threads.clone();
        let started = clock.now();
        let rows = match threads {
            Some(threads) => threads.install(|| self.run(&batch))?,
            None => alone(|| self.run(&batch))?,
        };
        Ok(Outcome { batch, started, finished: clock.now(), rows })
    }
}

impl<E: Element> LiveExecutor for CpuExecutor<E> {
    fn transcripts(&self) -> &Transcripts {
        &self.transcripts
    }

    fn exit_label(&self) -> &'static str {
        self.exits.label()
    }
}
