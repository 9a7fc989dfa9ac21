//! Live executors by device.

use std::sync::Arc;

use engine::cpu::{CpuError, CpuExecutor, CpuOptions};
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

/// A model, loaded once for all runs of a scenario.
pub struct Engine {
    weights: Arc<Weights>,
    threads: usize,
}

impl Engine {
    /// Loads or draws the plan's weights.
    ///
    /// # Errors
    /// The weights are not there, or not the model's; or the plan measures nothing to set speed-ups against.
    pub fn new(plan: &Plan, device: Device) -> Result<Self, LiveError> {
        if !plan.online() && !plan.schedulers.iter().any(|planned| planned.config.mode == Mode::ContinuousBatching) {
            return Err(LiveError::NoBaseline);
        }
        let Device::Cpu = device;
        let weights = match &plan.scenario.live.weights {
            WeightsChoice::Random(seed) => Weights::random(&plan.model, *seed),
            WeightsChoice::File(path) => Weights::load(path, &plan.model)?,
        };
        Ok(Self { weights: Arc::new(weights), threads: plan.scenario.live.threads as usize })
    }

    /// Serves the plan's requests for real; with a gate, the exits that it took are returned beside what was recorded.
    ///
    /// # Errors
    /// The first error of the executor or the sink.
    pub(super) fn run<S: Sink<Error = ReportError>>(
        &self,
        plan: &Plan,
        planned: &Planned,
        sink: &mut S,
    ) -> Result<(Recorder, Option<RecordedExits>), LiveError> {
        let mut executor = self.executor(plan, planned)?;
        let mut clock = WallClock::start();
        let recorder = run::run_on(&mut executor, &mut clock, plan, planned, sink).map_err(|error| match error {
            RunError::Executor(error) => LiveError::Cpu(error),
            RunError::Sink(error) => LiveError::Report(error),
        })?;
        let gate = matches!(plan.scenario.exits, ExitsConfig::Gate(_));
        Ok((recorder, gate.then(|| executor.transcripts().recorded_exits())))
    }

    /// The device, as reports name it.
    pub(super) fn describe(&self) -> String {
        let threads = if self.threads == 0 { "one thread a core".into() } else { format!("{} threads", self.threads) };
        format!("CPU, {threads}, bf16 storage")
    }

    /// Whose exits the runs take, as reports name them.
    pub(super) fn exit_label(&self, plan: &Plan) -> String {
        let label = plan.schedulers.last().and_then(|planned| self.executor(plan, planned).ok());
        label.map_or_else(|| "replayed".into(), |executor| executor.exit_label().into())
    }

    fn executor(&self, plan: &Plan, planned: &Planned) -> Result<CpuExecutor, CpuError> {
        let live = &plan.scenario.live;
        let exits = match plan.scenario.exits {
            ExitsConfig::Gate(gate) => Exits::Gate(gate),
            _ => Exits::Replay(Arc::new(planned.exits.clone())),
        };
        let config = LiveConfig {
            scheduler: planned.config,
            exits,
            prompts: Prompts::Random { seed: live.prompt_seed },
            eos: None,
            initial_state: live.initial_state,
            keep_logits: false,
        };
        let options = CpuOptions { threads: self.threads, copy_skipped_planes: plan.scenario.kv.plane_copies };
        CpuExecutor::new(&plan.model, &self.weights, config, options)
    }
}
