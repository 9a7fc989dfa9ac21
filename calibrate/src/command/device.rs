//! What a measurement runs on: the options that choose it, and the executors that it gives.

use std::path::PathBuf;

use calibrate::error::CalibrateError;
use calibrate::measure::cpu_limits::CpuLimits;
use calibrate::measure::{MeasurementPlan, Timer};
use clap::{Args, ValueEnum};
use engine::architecture::Architecture;
use engine::duration;
use engine::executor::Executor;
use engine::live::LiveConfig;
use engine::live::cpu::{CpuExecutor, CpuOptions};
use engine::live::cuda::{self, CudaError, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::wall_clock::WallClock;
use engine::live::weights::Weights;
use engine::profile::{Buckets, DeviceSpec};
use engine::units::Nanos;
use engine::whole;

use super::{layout, machine};

/// The revision that this program was built from.
pub(super) const REVISION: &str = env!("GIT_REVISION");

/// Each thread gets large buffers, by whose copies the bandwidth is measured.
const THREADS_PER_CORE_MAX: usize = 4;

#[derive(Args)]
pub(crate) struct DeviceArgs {
    /// What runs the model.
    #[arg(long)]
    device: Option<DeviceKind>,
    /// When to stop measuring: 60s, 8min. A run that was cut off is continued by the same command.
    #[arg(long, default_value = "45s", value_parser = budget)]
    pub(super) budget: Nanos,
    /// On the CPU: threads; 0 takes one a core. A live run must have as many.
    #[arg(long, default_value_t = 0, value_parser = whole::parse::<usize>)]
    threads: usize,
    /// Where KV is kept: last_exited, depth_indexed, shared or first_then_shared.
    #[arg(long, default_value = "last_exited")]
    pub(super) layout: String,
    /// Batch sizes, rising [default: 1 to 64; on a GPU to 512, as its memory allows].
    #[arg(long, value_delimiter = ',', value_parser = whole::parse::<u32>)]
    pub(super) batches: Option<Vec<u32>>,
    /// Contexts, rising [default: 32 to 512; on a GPU 128 to 8192].
    #[arg(long, value_delimiter = ',', value_parser = whole::parse::<u32>)]
    pub(super) contexts: Option<Vec<u32>>,
    /// Loop counts of whole steps, rising, up to the model's r_max [default: a quarter, a half, and all].
    #[arg(long, value_delimiter = ',', value_parser = whole::parse::<u8>)]
    loops: Option<Vec<u8>>,
    /// KV entries of a timed batch at most [default: 4096; on a GPU what its memory holds].
    #[arg(long, value_parser = whole::parse::<u32>)]
    max_entries: Option<u32>,
    /// Times that the grid is gone through at most [default: as the budget allows].
    #[arg(long, value_parser = whole::parse::<u32>)]
    pub(super) rounds: Option<u32>,
    /// Safetensors with the model's weights [default: random ones, which take as long].
    #[arg(long)]
    pub(super) weights: Option<PathBuf>,
    /// The seed of random weights and of the bootstrap.
    #[arg(long, default_value_t = 0, value_parser = whole::parse::<u64>)]
    pub(super) seed: u64,
}

/// Executors that can be measured.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum DeviceKind {
    /// This machine's cores.
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
}

fn budget(text: &str) -> Result<Nanos, String> {
    match duration::parse_seconds(text)? {
        seconds if seconds > 0.0 => Ok(Nanos::from_secs(seconds)),
        _ => Err(format!("must be greater than zero, got `{text}`")),
    }
}

/// What is measured, in words and numbers.
pub(super) struct Subject {
    pub(super) device: DeviceSpec,
    /// The options that chose it, and its software.
    pub(super) how: String,
    /// By what its limits were measured.
    pub(super) limits_by: &'static str,
    /// To what it pads; `None` if that is to be inferred from the times.
    pub(super) buckets: Option<Buckets>,
    /// KV entries that its attention reads at a time; 0 if one.
    pub(super) kv_tile_tokens: u32,
}

/// Something to do with a device's executors.
pub(super) trait Job {
    /// What to measure, given what a calibration of the device would by default.
    fn plan(&self, calibration: MeasurementPlan) -> MeasurementPlan;

    /// Does it; `make` gives an executor for each config.
    fn run<E: Executor>(
        self,
        plan: &MeasurementPlan,
        subject: &Subject,
        make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
        timer: &mut Timer<'_>,
    ) -> Result<(), CalibrateError>;
}

impl DeviceArgs {
    /// Opens the device, loads or draws the weights, and does a job with them.
    pub(super) fn run(&self, model: &Architecture, job: impl Job) -> Result<(), CalibrateError> {
        match self.device {
            Some(DeviceKind::Cpu) => self.on_cpu(model, job),
            Some(DeviceKind::Cuda) => self.on_cuda(model, job),
            None => Err(CalibrateError::Argument {
                option: "--device",
                reason: "say cpu or cuda, or name a server by --endpoint".into(),
            }),
        }
    }

    fn on_cpu(&self, model: &Architecture, job: impl Job) -> Result<(), CalibrateError> {
        let plan = self.plan(model, job.plan(MeasurementPlan::small(model, layout(&self.layout)?, self.budget)))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match self.threads {
            0 => cores,
            threads if threads <= THREADS_PER_CORE_MAX * cores => threads,
            threads => {
                let most = THREADS_PER_CORE_MAX * cores;
                let reason = format!("must be at most {most} on this machine's {cores} cores, got {threads}");
                return Err(CalibrateError::Argument { option: "--threads", reason });
            }
        };
        let weights = self.loaded(model)?.unwrap_or_else(|| Weights::random(model, self.seed));
        let mut clock = WallClock::start();
        let limits = CpuLimits::measure(threads, &clock);
        let subject = Subject {
            device: DeviceSpec {
                name: format!("{}, {threads} threads", machine::processor()),
                bandwidth_gb_per_s: round(limits.bandwidth_gb_per_s),
                compute_tflops: round(limits.compute_tflops),
            },
            how: format!("--device cpu --threads {threads}"),
            limits_by: "a large copy and by f32 matrix products",
            buckets: None,
            kv_tile_tokens: 0,
        };
        let options = CpuOptions { threads, ..CpuOptions::default() };
        let make = |config| CpuExecutor::<engine::live::cpu::bf16>::new(model, &weights, config, options);
        job.run(&plan, &subject, make, &mut Timer { clock: &mut clock, run_delay: &mut machine::run_delay })
    }

    fn on_cuda(&self, model: &Architecture, job: impl Job) -> Result<(), CalibrateError> {
        let failed = |doing: &str| {
            let doing = doing.to_owned();
            move |error: CudaError| CalibrateError::execution(doing, error)
        };
        let device = cuda::CudaDevice::open(0).map_err(failed("opening the GPU"))?;
        let limits = cuda::Limits::of(&device).map_err(failed("measuring the GPU's limits"))?;
        let loaded = self.loaded(model)?;
        let source = loaded.as_ref().map_or(WeightSource::Random { seed: self.seed }, WeightSource::Loaded);
        let weights = CudaModel::new(&device, model, source).map_err(failed("placing the weights"))?;
        let (free_bytes, _) = device.memory().map_err(failed("asking for free memory"))?;
        let plan =
            self.plan(model, job.plan(MeasurementPlan::large(model, layout(&self.layout)?, self.budget, free_bytes)))?;
        let cuda_version = device.cuda_version().map_err(failed("asking for its version"))?;
        let subject = Subject {
            device: DeviceSpec {
                name: device.name().into(),
                bandwidth_gb_per_s: round(limits.bandwidth_gb_per_s),
                compute_tflops: round(limits.compute_tflops),
            },
            how: format!("--device cuda (CUDA {cuda_version}, driver {})", machine::nvidia_driver()),
            limits_by: "a large copy and by a bf16 product of random numbers",
            buckets: Some(cuda::row_buckets()),
            kv_tile_tokens: cuda::KV_TILE_TOKENS,
        };
        let make = |config| {
            let executor = CudaExecutor::new(&weights, config, CudaOptions::default())?;
            executor.fill_kv_with_noise(self.seed)?;
            Ok(executor)
        };
        // A GPU's times are the device's own, so no launch waits for a core.
        job.run(&plan, &subject, make, &mut Timer { clock: &mut WallClock::start(), run_delay: &mut || Nanos::ZERO })
    }

    fn loaded(&self, model: &Architecture) -> Result<Option<Weights>, CalibrateError> {
        let load = |path: &PathBuf| Weights::load(path, model).map_err(CalibrateError::Weights);
        self.weights.as_ref().map(load).transpose()
    }

    /// A plan with the options that were given.
    fn plan(&self, model: &Architecture, mut plan: MeasurementPlan) -> Result<MeasurementPlan, CalibrateError> {
        if let Some(batches) = &self.batches {
            plan.batches.clone_from(batches);
        }
        if let Some(contexts) = &self.contexts {
            plan.contexts.clone_from(contexts);
        }
        if let Some(loops) = &self.loops {
            plan.loops.clone_from(loops);
        }
        plan.max_entries = self.max_entries.unwrap_or(plan.max_entries);
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        plan.check(model)?;
        Ok(plan)
    }
}

/// Three significant digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
