//! Live executors by device.

use std::sync::Arc;

use engine::cpu::{CpuError, CpuExecutor, CpuOptions};
use engine::cuda::{self, CudaError, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::executor::Executor;
use engine::live::{Exits, LiveConfig, LiveExecutor, Prompts, RecordedExits};
use engine::metrics::Recorder;
use engine::models::weights::{Weights, WeightsError};
use engine::scheduler::Mode;
use engine::wall_clock::WallClock;
use reports::ReportError;
use traces::{ExitsConfig, TracesError};

use crate::plan::{Plan, Planned};
use crate::run::{self, RunError, Sink};
use crate::scenario::WeightsChoice;

/// Where a live run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// This machine's cores.
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
}

/// Why a live run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The weights are not there, or not the model's.
    #[error("live.weights: {0}")]
    Weights(#[from] WeightsError),
    /// The executor cannot run the plan.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// There is no GPU, or it cannot run the plan.
    #[error("--live cuda: {0}")]
    Cuda(#[from] CudaError),
    /// Recorded exits could not be saved or read back.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// A file could not be written.
    #[error(transparent)]
    Report(ReportError),
    /// Nothing was measured that speed-ups could be set against.
    #[error(
        "compare: a live comparison needs `- mode: continuous_batching` among its schedulers, to measure speed-ups against"
    )]
    NoBaseline,
}

/// A device, and a model that is loaded or drawn once for all runs of a scenario.
pub struct Engine(Backend);

enum Backend {
    Cpu { weights: Weights, threads: usize },
    Cuda(CudaModel),
}

/// A live run.
pub(super) struct Ran {
    pub(super) recorder: Recorder,
    /// With a gate, the exits that it took.
    pub(super) recorded_exits: Option<RecordedExits>,
    /// Whose exits they are, as reports name them.
    pub(super) exit_label: &'static str,
}

impl Engine {
    /// Opens the device, and loads or draws the plan's weights.
    ///
    /// # Errors
    /// There is no such device; the weights are not there, or not the model's; or the plan measures nothing to set
    /// speed-ups against.
    pub fn new(plan: &Plan, device: Device) -> Result<Self, LiveError> {
        if !plan.online() && !plan.schedulers.iter().any(|planned| planned.config.mode == Mode::ContinuousBatching) {
            return Err(LiveError::NoBaseline);
        }
        let live = &plan.scenario.live;
        let loaded = match &live.weights {
            WeightsChoice::Random(_) => None,
            WeightsChoice::File(path) => Some(Weights::load(path, &plan.model)?),
        };
        let seed = if let WeightsChoice::Random(seed) = live.weights { seed } else { 0 };
        Ok(Self(match device {
            Device::Cpu => {
                let weights = loaded.unwrap_or_else(|| Weights::random(&plan.model, seed));
                Backend::Cpu { weights, threads: live.threads as usize }
            }
            Device::Cuda => {
                // Random weights are made on the device.
                let weights = loaded.as_ref().map_or(WeightSource::Random { seed }, WeightSource::Loaded);
                Backend::Cuda(CudaModel::new(&cuda::Device::open(0)?, &plan.model, weights)?)
            }
        }))
    }

    /// Serves the plan's requests for real.
    ///
    /// # Errors
    /// The first error of the executor or the sink.
    pub(super) fn run<S: Sink<Error = ReportError>>(
        &self,
        plan: &Plan,
        planned: &Planned,
        sink: &mut S,
    ) -> Result<Ran, LiveError> {
        let config = config(plan, planned);
        match &self.0 {
            Backend::Cpu { weights, threads } => {
                let options = CpuOptions { threads: *threads, copy_skipped_planes: plan.scenario.kv.plane_copies };
                let executor: CpuExecutor = CpuExecutor::new(&plan.model, weights, config, options)?;
                serve(executor, plan, planned, sink)
            }
            Backend::Cuda(model) => {
                serve(CudaExecutor::new(model, config, CudaOptions::default())?, plan, planned, sink)
            }
        }
    }

    /// The device, as reports name it.
    pub(super) fn describe(&self) -> String {
        match &self.0 {
            Backend::Cpu { threads: 0, .. } => "CPU, one thread a core, bf16 storage".into(),
            Backend::Cpu { threads, .. } => format!("CPU, {threads} threads, bf16 storage"),
            Backend::Cuda(model) => format!("{}, bf16", model.device().name()),
        }
    }
}

fn config(plan: &Plan, planned: &Planned) -> LiveConfig {
    let live = &plan.scenario.live;
    LiveConfig {
        scheduler: planned.config,
        exits: match plan.scenario.exits {
            ExitsConfig::Gate(gate) => Exits::Gate(gate),
            _ => Exits::Replay(Arc::new(planned.exits.clone())),
        },
        prompts: Prompts::Random { seed: live.prompt_seed },
        eos: None,
        initial_state: live.initial_state,
        keep_logits: false,
    }
}

/// Runs to the end in real time.
fn serve<X, S>(mut executor: X, plan: &Plan, planned: &Planned, sink: &mut S) -> Result<Ran, LiveError>
where
    X: LiveExecutor,
    LiveError: From<<X as Executor>::Error>,
    S: Sink<Error = ReportError>,
{
    let mut clock = WallClock::start();
    let recorder = run::run_on(&mut executor, &mut clock, plan, planned, sink).map_err(|error| match error {
        RunError::Executor(error) => error.into(),
        RunError::Sink(error) => LiveError::Report(error),
    })?;
    let gate = matches!(plan.scenario.exits, ExitsConfig::Gate(_));
    let recorded_exits = gate.then(|| executor.transcripts().recorded_exits());
    Ok(Ran { recorder, recorded_exits, exit_label: executor.exit_label() })
}
