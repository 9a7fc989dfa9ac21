//! Live executors by device.

use std::ops::ControlFlow;
use std::sync::Arc;

use engine::architecture::Architecture;
use engine::event_loop::{self, Observer, Refused, Step};
use engine::inbox::replay;
use engine::live::cpu::{CpuError, CpuExecutor, CpuOptions};
use engine::live::cuda::{self, CudaError, CudaExecutor, CudaModel, CudaOptions, CudaRunError, WeightSource};
use engine::live::wall_clock::WallClock;
use engine::live::weights::folder::FolderError;
use engine::live::weights::{Weights, WeightsError};
use engine::live::{self, Backend, Live, LiveConfig, LiveExits, TakenExits};
use engine::metrics::Recorder;
use engine::request::{Arrival, Request};
use engine::scheduler::Scheduler;
use engine::units::Nanos;
use reports::ReportError;
use serde::{Deserialize, Serialize};
use traces::{ExitsConfig, TracesError};

use crate::run::plan::{Plan, Planned};
use crate::run::serve::{RunError, Sink, serve_on};
use crate::scenario::{Scenario, WeightsChoice};

/// Where a live run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LiveDevice {
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
    /// The model's folder.
    #[error("model.folder: {0}")]
    Folder(#[from] FolderError),
    /// The executor cannot run the plan.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// There is no GPU, or it cannot run the plan.
    #[error("--live cuda: {0}")]
    Cuda(#[from] CudaRunError),
    /// Recorded exits could not be saved or read back.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// A file could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl From<CudaError> for LiveError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(live::LiveError::Device(error))
    }
}

/// A device, opened when it is first needed, and the last model that ran on it: runs of one model load or draw it once.
pub struct Engine {
    pub(super) device: LiveDevice,
    gpu: Option<cuda::CudaDevice>,
    model: Option<LoadedModel>,
}

/// A model's parameters, and which they are.
struct LoadedModel {
    architecture: Architecture,
    choice: WeightsChoice,
    weights: Placed,
}

enum Placed {
    Host(Weights),
    /// With the executor of the last run, whose memory and graphs the next may need again.
    Gpu(CudaModel, Option<Box<CudaExecutor>>),
}

/// A live run.
pub(crate) struct Ran {
    pub(crate) recorder: Recorder,
    /// With a gate, the exits that it took.
    pub(crate) recorded_exits: Option<TakenExits>,
    /// Whose exits they are, as reports name them.
    pub(crate) exit_label: &'static str,
}

impl Engine {
    /// Of a device that is not opened yet.
    pub fn new(device: LiveDevice) -> Self {
        Self { device, gpu: None, model: None }
    }

    /// Opens the device, and loads or draws the scenario's weights unless they are there.
    ///
    /// # Errors
    /// There is no such device; the weights are not there, or not the model's.
    pub fn prepare(&mut self, scenario: &Scenario) -> Result<(), LiveError> {
        let architecture = scenario.model.architecture()?;
        let choice = scenario.weights();
        let same = |model: &LoadedModel| model.choice == choice && model.architecture == architecture;
        if self.model.as_ref().is_some_and(same) {
            return Ok(());
        }
        // One model at a time: two may not fit.
        self.model = None;
        let loaded = match &choice {
            WeightsChoice::Random(_) => None,
            WeightsChoice::File(path) => Some(Weights::load(path, &architecture)?),
        };
        loaded.iter().flat_map(Weights::warnings).for_each(|warning| eprintln!("live.weights: {warning}"));
        let seed = if let WeightsChoice::Random(seed) = choice { seed } else { 0 };
        let weights = match self.device {
            LiveDevice::Cpu => Placed::Host(loaded.unwrap_or_else(|| Weights::random(&architecture, seed))),
            LiveDevice::Cuda => {
                // Random weights are made on the device.
                let source = loaded.as_ref().map_or(WeightSource::Random { seed }, WeightSource::Loaded);
                Placed::Gpu(CudaModel::new(self.gpu()?, &architecture, source)?, None)
            }
        };
        self.model = Some(LoadedModel { architecture, choice, weights });
        Ok(())
    }

    /// Serves the plan's requests for real; the device and the model are prepared if they are not yet.
    ///
    /// # Errors
    /// The first error of the device, the executor or the sink.
    pub(crate) fn run<S: Sink<Error = ReportError>>(
        &mut self,
        plan: &Plan,
        planned: &Planned,
        sink: &mut S,
    ) -> Result<Ran, LiveError> {
        self.prepare(&plan.scenario)?;
        let config = config(plan, planned);
        match &mut self.model.as_mut().expect("it was prepared").weights {
            Placed::Host(weights) => {
                let threads = plan.scenario.live.threads.0 as usize;
                let options = CpuOptions { threads, copy_skipped_planes: plan.scenario.kv.plane_copies };
                let mut executor: CpuExecutor = CpuExecutor::new(&plan.model, weights, config, options)?;
                serve(&mut executor, plan, planned, sink)
            }
            Placed::Gpu(model, last) => {
                let mut executor = CudaExecutor::renewed(last.take(), model, config, CudaOptions::default())?;
                warm_up(&mut executor, plan, planned)?;
                let ran = serve(&mut *executor, plan, planned, sink)?;
                *last = Some(executor);
                Ok(ran)
            }
        }
    }

    /// Frees what the last run left on the device, except for the weights.
    pub(super) fn clear(&mut self) {
        if let Some(LoadedModel { weights: Placed::Gpu(_, last), .. }) = &mut self.model {
            *last = None;
        }
    }

    /// The device, as reports name it.
    pub(crate) fn describe(&self, plan: &Plan) -> String {
        match (&self.gpu, plan.scenario.live.threads.0) {
            (Some(gpu), _) => format!("{}, bf16", gpu.name()),
            (None, 0) => "CPU, one thread a core, bf16 storage".into(),
            (None, threads) => format!("CPU, {threads} threads, bf16 storage"),
        }
    }

    pub(super) fn gpu(&mut self) -> Result<&cuda::CudaDevice, CudaError> {
        if self.gpu.is_none() {
            self.gpu = Some(cuda::CudaDevice::open(0)?);
        }
        Ok(self.gpu.as_ref().expect("it was opened"))
    }
}

fn config(plan: &Plan, planned: &Planned) -> LiveConfig {
    let live = &plan.scenario.live;
    let exits = match plan.scenario.exits {
        ExitsConfig::Gate(gate) if !planned.full_depth => LiveExits::Gate(gate),
        _ => LiveExits::Replay(Arc::new(planned.exits.clone())),
    };
    LiveConfig {
        prompt_seed: live.prompt_seed,
        initial_state: live.initial_state.unwrap_or_default(),
        ..LiveConfig::new(planned.config, exits)
    }
}

/// Serves a first batch of the plan's prompts, one token each, so that nothing is compiled, chosen or pinned while we measure:
/// decode graphs were run when they were recorded, prefills were not.
fn warm_up(executor: &mut CudaExecutor, plan: &Plan, planned: &Planned) -> Result<(), CudaRunError> {
    let mut tokens = 0;
    let begins_in_it = |arrival: &Arrival| {
        let before = tokens;
        tokens += arrival.request.prompt_tokens;
        before < planned.config.max_num_batched_tokens
    };
    let one_token = |arrival: Arrival| Arrival {
        request: Request { arrival: Nanos::ZERO, max_output_tokens: 1, ..arrival.request },
        output_tokens: 1,
        cancel_after: None,
    };
    let mut prompts = replay(plan.workload.arrivals().take_while(begins_in_it).map(one_token));
    let mut scheduler = Scheduler::new(planned.config).expect("a plan's settings were checked");
    event_loop::run(&mut scheduler, executor, &mut WallClock::start(), &mut prompts, &mut Unseen)?;
    executor.reset();
    Ok(())
}

/// Of a run that nobody measures.
struct Unseen;

impl Observer for Unseen {
    fn arrived(&mut self, _: &Arrival, _: Nanos, _: Option<&Refused>) {}

    fn step(&mut self, _: &Step) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Runs to the end in real time.
fn serve<B, S>(executor: &mut Live<B>, plan: &Plan, planned: &Planned, sink: &mut S) -> Result<Ran, LiveError>
where
    B: Backend,
    LiveError: From<live::LiveError<B::Error>>,
    S: Sink<Error = ReportError>,
{
    let mut clock = WallClock::start();
    let recorder = serve_on(executor, &mut clock, plan, planned, sink).map_err(|error| match error {
        RunError::Executor(error) => error.into(),
        RunError::Sink(error) => LiveError::Report(error),
    })?;
    let gate = matches!(plan.scenario.exits, ExitsConfig::Gate(_)) && !planned.full_depth;
    let recorded_exits = gate.then(|| executor.transcripts().recorded_exits());
    Ok(Ran { recorder, recorded_exits, exit_label: executor.exit_label() })
}
