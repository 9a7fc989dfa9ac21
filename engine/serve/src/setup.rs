//! From a model folder to an engine that is ready.

use std::path::{Path, PathBuf};

use engine::architecture::Architecture;
use engine::content::PageKey;
use engine::event_loop::{self, Observer, Refused, Step};
use engine::inbox::replay;
use engine::live::cpu::{CpuExecutor, CpuOptions};
use engine::live::cuda::{self, CudaExecutor, CudaModel, CudaOptions, KvBudget, WeightSource};
use engine::live::wall_clock::WallClock;
use engine::live::weights::folder::{Generation, ModelFolder};
use engine::live::{LiveConfig, LiveExits};
use engine::models::gate::GateSpec;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Scheduler, SchedulerConfig};
use engine::submission::Sampling;
use engine::units::{Depth, Nanos};
use sim::live::LiveDevice;

use crate::engine_thread::{self, Engine};
use crate::model::ServedModel;
use crate::settings::{ExitChoice, Settings};

/// Share of the memory behind the weights that the KV pool takes on a GPU.
const KV_SHARE: f64 = 0.9;

/// Share of the free memory that the KV pool takes at most on a CPU, where the weights are read after it is sized.
const KV_SHARE_CPU: f64 = 0.25;

/// KV blocks on a CPU where the system does not say how much memory is free.
const BLOCKS_CPU: u64 = 16_384;

/// Which model, and how it is run.
#[derive(Clone, Debug, clap::Args)]
pub struct ServedRun {
    /// The model: a folder in Hugging Face's layout; the small one that comes with loopbatch by default.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Where it runs.
    #[arg(long, value_enum, default_value_t = LiveDevice::Cpu)]
    pub device: LiveDevice,
    /// A scenario, of which `scheduler`, `kv`, `exits` and the first entry of `compare` are used.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// The exit threshold where a request does not say, in the unit of the model's gate; the folder's by default.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub exit_threshold: Option<f32>,
    /// No token leaves the loop before this depth, where a request does not say.
    #[arg(long, value_name = "LOOPS")]
    pub min_depth: Option<u8>,
    /// CPU threads; 0 takes one a core.
    #[arg(long, value_name = "THREADS", default_value_t = 0)]
    pub threads: usize,
}

/// An engine that is ready, and what it serves.
#[derive(Debug)]
pub struct Ready {
    /// The engine.
    pub engine: Engine,
    /// What it serves.
    pub model: ServedModel,
    /// Its shape.
    pub architecture: Architecture,
    /// Its settings.
    pub settings: Settings,
    /// Positions that the model was made for.
    pub context: Option<u64>,
}

impl ServedRun {
    /// The folder that is served.
    fn folder(&self) -> Result<PathBuf, String> {
        if let Some(folder) = &self.model {
            return Ok(folder.clone());
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-loop");
        match folder.canonicalize() {
            Ok(folder) => Ok(folder),
            Err(_) => Err(format!(
                "the model that comes with loopbatch is not at {}: name a model folder, --model DIR",
                folder.display()
            )),
        }
    }

    /// Opens the folder, loads the weights and starts the engine, in which at most `max_queue` requests may wait.
    ///
    /// # Errors
    /// What is wrong with the folder, the settings or the device, in a sentence.
    pub fn start(&self, name: Option<&str>, max_queue: usize) -> Result<Ready, String> {
        let path = &self.folder()?;
        let settings = Settings::read(self.scenario.as_deref())?;
        let folder = ModelFolder::open(path).map_err(|error| error.to_string())?;
        let architecture = folder.architecture().clone();
        let context = folder.config.context_tokens;
        let (tokenizer, chat) = ServedModel::text(path, architecture.vocab).map_err(|error| error.to_string())?;
        let choice = ExitChoice { threshold: self.exit_threshold, min_depth: self.min_depth };
        let gate = settings.gate(folder.config.exit_threshold, choice);
        let threshold = gate.criterion(&architecture).and_then(|criterion| gate.threshold_of(criterion));
        let exit_threshold = threshold.map_err(|error| match self.exit_threshold {
            Some(_) if error.field() == "threshold" => format!("--exit-threshold: {error}"),
            _ => format!("exits.gate.{}: {error}", error.field()),
        })?;
        let make = Make { run: self.clone(), settings: settings.clone(), folder: folder.clone(), gate };
        let engine = match self.device {
            LiveDevice::Cpu => engine_thread::start(max_queue, move || make.cpu()),
            LiveDevice::Cuda => engine_thread::start(max_queue, move || make.cuda()),
        }?;
        let config = engine.config;
        if let Some(depth) = self.min_depth.filter(|&depth| Depth(depth) < config.r_min) {
            let first = config.r_min;
            return Err(format!(
                "--min-depth must be at least {first}, before which this overlap has no exits, got {depth}"
            ));
        }
        // A tokenizer's end token ends an answer even if the config names none.
        let mut end_tokens = folder.config.end_tokens.clone();
        if end_tokens.is_empty() {
            end_tokens.extend(tokenizer.eos().map(|token| token.id));
        }
        let model = ServedModel {
            name: name.map_or_else(|| folder_name(path), str::to_owned),
            tokenizer,
            chat,
            vocab: u32::try_from(architecture.vocab).unwrap_or(u32::MAX),
            context_tokens: config.max_context_tokens,
            end_tokens: end_tokens.into(),
            sampling: sampling(&folder.generation),
            exit_threshold,
            first_exit: config.r_min,
            full_depth_only: settings.full_depth_only(),
        };
        model.sampling.check().map_err(|error| format!("generation_config.json: {error}"))?;
        Ok(Ready { engine, model, architecture, settings, context })
    }
}

/// A folder's own name, whatever path leads to it.
fn folder_name(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.into());
    full.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}

/// How a folder's tokens are chosen where a request does not say: drawn at temperature 1, as OpenAI's are, unless it says
/// otherwise.
fn sampling(generation: &Generation) -> Sampling {
    let temperature = if generation.do_sample == Some(false) { Some(0.0) } else { generation.temperature };
    Sampling {
        temperature: temperature.unwrap_or(1.0),
        top_k: generation.top_k.unwrap_or(0),
        top_p: generation.top_p.unwrap_or(1.0),
        seed: 0,
    }
}

/// What an executor is made of, on the engine's own thread.
struct Make {
    run: ServedRun,
    settings: Settings,
    folder: ModelFolder,
    gate: GateSpec,
}

impl Make {
    fn cpu(self) -> Result<(CpuExecutor, SchedulerConfig), String> {
        let config = self.config(|| Ok(self.blocks_cpu()))?;
        let weights = self.folder.weights().map_err(|error| error.to_string())?;
        let options = CpuOptions { threads: self.run.threads, copy_skipped_planes: self.settings.plane_copies() };
        let executor = CpuExecutor::new(self.folder.architecture(), &weights, self.live(config), options);
        Ok((executor.map_err(|error| error.to_string())?, config))
    }

    fn cuda(self) -> Result<(CudaExecutor, SchedulerConfig), String> {
        let said = |error: cuda::CudaError| format!("--device cuda: {error}");
        let device = cuda::CudaDevice::open(0).map_err(said)?;
        let model = {
            let weights = self.folder.weights().map_err(|error| error.to_string())?;
            let source = WeightSource::Loaded(&weights);
            CudaModel::new(&device, self.folder.architecture(), source).map_err(said)?
        };
        let architecture = self.folder.architecture();
        let (layout, block_tokens) = self.settings.kv_shape();
        let shape = (layout, architecture.r_max, block_tokens);
        let kept_bytes = self.settings.kept_bytes(architecture, self.gate);
        let budget = KvBudget::Fraction(KV_SHARE);
        let config = self.config(|| budget.blocks(&device, architecture, shape, kept_bytes).map_err(said))?;
        let mut executor = CudaExecutor::new(&model, self.live(config), CudaOptions::default())
            .map_err(|error| format!("--device cuda: {error}"))?;
        warm_up(&mut executor, config)?;
        Ok((executor, config))
    }

    fn config(&self, blocks: impl FnOnce() -> Result<u32, String>) -> Result<SchedulerConfig, String> {
        let blocks = self.settings.given_blocks().map_or_else(blocks, Ok)?;
        let architecture = self.folder.architecture();
        let mut config = self.settings.config(architecture, self.folder.config.context_tokens, blocks)?;
        if let Some(cache) = &mut config.kv.prefix_cache {
            let noise_seed = self.folder.config.initial_state.seed();
            cache.root = PageKey::root(&architecture.name, config.kv.layout, noise_seed);
        }
        Ok(config)
    }

    /// As many blocks as suffice ([`Settings::wished_blocks`]), within a share of the free memory.
    fn blocks_cpu(&self) -> u32 {
        let architecture = self.folder.architecture();
        let (layout, block_tokens) = self.settings.kv_shape();
        let planes = u64::from(layout.planes(architecture.r_max));
        let bytes = architecture.core_kv_bytes() + architecture.boundary_kv_bytes().div_ceil(planes);
        let block_bytes = bytes * u64::from(block_tokens);
        let fitting = free_bytes().map_or(BLOCKS_CPU, |free| (free * KV_SHARE_CPU) as u64 / block_bytes);
        let wished = self.settings.wished_blocks(architecture, self.folder.config.context_tokens);
        u32::try_from(wished.min(fitting)).unwrap_or(u32::MAX).min(engine::scheduler::MAX_KV_BLOCKS)
    }

    fn live(&self, scheduler: SchedulerConfig) -> LiveConfig {
        LiveConfig {
            end_tokens: self.folder.config.end_tokens.clone(),
            initial_state: self.folder.config.initial_state,
            keep_transcripts: false,
            ..LiveConfig::new(scheduler, LiveExits::Gate(self.gate))
        }
    }
}

/// Memory that can be had without swapping, as Linux tells it.
fn free_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(1024.0 * line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()?)
}

/// Serves one full prefill, so that the first client waits for nothing that is compiled, chosen or pinned on first use.
fn warm_up(executor: &mut CudaExecutor, config: SchedulerConfig) -> Result<(), String> {
    let prompt_tokens = config.max_num_batched_tokens.min(config.max_context_tokens - 1);
    let request = Request { id: RequestId(0), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: 1 };
    let mut inbox = replay([Arrival { request, output_tokens: 1, cancel_after: None }]);
    let mut scheduler = Scheduler::new(config).map_err(|error| error.to_string())?;
    event_loop::run(&mut scheduler, executor, &mut WallClock::start(), &mut inbox, &mut Unseen)
        .map_err(|error| error.to_string())?;
    executor.reset();
    Ok(())
}

/// Of a run that nobody waits for.
struct Unseen;

impl Observer for Unseen {
    fn arrived(&mut self, _: &Arrival, _: Nanos, _: Option<&Refused>) {}

    fn step(&mut self, _: &Step) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }
}
