//! `calibrate --model .. --device ..`: measures, fits, and writes a profile.

use std::path::{Path, PathBuf};

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::measure::calm::Calm;
use calibrate::measure::limits::Limits;
use calibrate::measure::{self, Ledger, Plan, Progress, Watch};
use calibrate::measurements::Measurement;
use calibrate::padding;
use clap::{Args, ValueEnum};
use engine::architecture::Architecture;
use engine::cpu::{CpuExecutor, CpuOptions};
use engine::cuda::{self, CudaError, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::executor::Clock;
use engine::live::{LiveConfig, LiveExecutor};
use engine::models::weights::Weights;
use engine::profile::{Buckets, Device, Profile};
use engine::units::Nanos;
use engine::wall_clock::WallClock;

use super::{buckets, layout, machine, model, write_profile};

/// The revision that this program was built from.
const REVISION: &str = env!("GIT_REVISION");

#[derive(Args)]
pub(crate) struct MeasureArgs {
    /// The model to time: tiny-ouro, tiny-huginn, or a released one.
    #[arg(long)]
    model: String,
    /// What runs it.
    #[arg(long)]
    device: DeviceKind,
    /// Where to write the profile; the measured times go beside it, to OUT.csv in place of OUT.yaml.
    #[arg(long)]
    out: PathBuf,
    /// When to stop measuring: 60s, 8min. A run that was cut off is continued by the same command.
    #[arg(long, default_value = "45s", value_parser = duration)]
    budget: Nanos,
    /// On the CPU: threads; 0 takes one a core. A live run must have as many.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Where KV is kept: last_exited, depth_indexed, shared or first_then_shared.
    #[arg(long, default_value = "last_exited")]
    layout: String,
    /// Batch sizes, rising [default: 1 to 64; on a GPU to 512, as its memory allows].
    #[arg(long, value_delimiter = ',')]
    batches: Option<Vec<u32>>,
    /// Contexts, rising [default: 32 to 512; on a GPU 128 to 8192].
    #[arg(long, value_delimiter = ',')]
    contexts: Option<Vec<u32>>,
    /// Loop counts of whole steps, rising, up to the model's r_max [default: a quarter, a half, and all].
    #[arg(long, value_delimiter = ',')]
    loops: Option<Vec<u8>>,
    /// KV entries of a timed batch at most [default: 4096; on a GPU what its memory holds].
    #[arg(long)]
    max_entries: Option<u32>,
    /// Times that the grid is gone through at most [default: as the budget allows, up to 15].
    #[arg(long)]
    rounds: Option<u32>,
    /// Safetensors with the model's weights [default: random ones, which take as long].
    #[arg(long)]
    weights: Option<PathBuf>,
    /// To what batches are padded: auto (told by the times; on a GPU its graphs), exact, powers_of_two, or a rising list.
    #[arg(long, default_value = "auto")]
    buckets: String,
    /// The profile's name [default: "MODEL on DEVICE"].
    #[arg(long)]
    name: Option<String>,
    /// The device's name [default: the processor's, and how many threads; the GPU's].
    #[arg(long)]
    device_name: Option<String>,
    /// The date to note [default: today].
    #[arg(long)]
    date: Option<String>,
    /// Refits of the bootstrap.
    #[arg(long, default_value_t = 1000)]
    resamples: u32,
    /// The bootstrap's seed, and the random weights'.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Executors that can be measured.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum DeviceKind {
    /// This machine's cores.
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
}

/// "45s", "8min" or "500ms".
fn duration(text: &str) -> Result<Nanos, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(format!("must be a time with its unit, like 500ms, 60s or 8min, got `{text}`")),
    };
    let value = number.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    value
        .map(|value| Nanos::from_secs(value * seconds))
        .ok_or_else(|| format!("must be greater than zero, got `{text}`"))
}

pub(crate) fn measure(args: &MeasureArgs) -> Result<(), CalibrateError> {
    let model = model(&args.model)?;
    let chosen = if args.buckets == "auto" { None } else { Some(buckets(&args.buckets)?) };
    let table = args.out.with_extension("csv");
    if table == args.out {
        let reason = "must not end in .csv: the measured times go there, the profile is YAML".into();
        return Err(CalibrateError::Argument { option: "--out", reason });
    }
    match args.device {
        DeviceKind::Cpu => on_cpu(args, &model, &table, chosen),
        DeviceKind::Cuda => on_cuda(args, &model, &table, chosen),
    }
}

fn on_cpu(
    args: &MeasureArgs,
    model: &Architecture,
    table: &Path,
    chosen: Option<Buckets>,
) -> Result<(), CalibrateError> {
    let plan = plan(args, model, Plan::small(model, layout(&args.layout)?, args.budget))?;
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let weights = match &args.weights {
        Some(path) => Weights::load(path, model).map_err(CalibrateError::Weights)?,
        None => Weights::random(model, args.seed),
    };
    let mut clock = WallClock::start();
    let limits = Limits::of_this_cpu(threads, &clock);
    let options = CpuOptions { threads, ..CpuOptions::default() };
    let make = |config| CpuExecutor::<engine::cpu::bf16>::new(model, &weights, config, options);
    let mut watch = Watch { clock: &mut clock, waited: &mut machine::waited };
    let subject = Subject {
        device: Device {
            name: format!("{}, {threads} threads", machine::processor()),
            bandwidth_gb_per_s: round(limits.bandwidth_gb_per_s),
            compute_tflops: round(limits.compute_tflops),
        },
        how: format!("--device cpu --threads {threads}"),
        limits_by: "a large copy and by f32 matrix products",
        buckets: chosen,
    };
    measure_on(args, (model, table), &plan, &subject, make, &mut watch)
}

fn on_cuda(
    args: &MeasureArgs,
    model: &Architecture,
    table: &Path,
    chosen: Option<Buckets>,
) -> Result<(), CalibrateError> {
    let failed = |doing: &str, error: CudaError| CalibrateError::execution(doing.into(), error);
    let device = cuda::Device::open(0).map_err(|error| failed("opening the GPU", error))?;
    let limits = cuda::Limits::of(&device).map_err(|error| failed("measuring the GPU's limits", error))?;
    let loaded = args.weights.as_ref().map(|path| Weights::load(path, model).map_err(CalibrateError::Weights));
    let loaded = loaded.transpose()?;
    let source = loaded.as_ref().map_or(WeightSource::Random { seed: args.seed }, WeightSource::Loaded);
    let weights = CudaModel::new(&device, model, source).map_err(|error| failed("placing the weights", error))?;
    let (free_bytes, _) = device.memory().map_err(|error| failed("asking for free memory", error))?;
    let plan = plan(args, model, Plan::large(model, layout(&args.layout)?, args.budget, free_bytes))?;
    let make = |config| {
        let executor = CudaExecutor::new(&weights, config, CudaOptions::default())?;
        executor.fill_kv_with_noise(args.seed)?;
        Ok(executor)
    };
    let cuda_version = device.cuda_version().map_err(|error| failed("asking for its version", error))?;
    let subject = Subject {
        device: Device {
            name: device.name().into(),
            bandwidth_gb_per_s: round(limits.bandwidth_gb_per_s),
            compute_tflops: round(limits.compute_tflops),
        },
        how: format!("--device cuda (CUDA {cuda_version}, driver {})", machine::nvidia_driver()),
        limits_by: "a large copy and by a bf16 product of random numbers",
        buckets: Some(chosen.unwrap_or_else(cuda::row_buckets)),
    };
    let mut watch = Watch { clock: &mut WallClock::start(), waited: &mut || Nanos::ZERO };
    measure_on(args, (model, table), &plan, &subject, make, &mut watch)
}

/// What is measured, in words and numbers.
struct Subject {
    device: Device,
    /// The options that chose it, and its software.
    how: String,
    /// By what its limits were measured.
    limits_by: &'static str,
    /// To what it pads; `None` if the times must tell.
    buckets: Option<Buckets>,
}

/// Measures, fits and writes.
fn measure_on<E: LiveExecutor>(
    args: &MeasureArgs,
    (model, table): (&Architecture, &Path),
    plan: &Plan,
    subject: &Subject,
    make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
    watch: &mut Watch<'_>,
) -> Result<(), CalibrateError> {
    let setup_line = format!("{}, {}, seed {}, revision {REVISION}; {plan}", model.name, subject.how, args.seed);
    let mut ledger = Ledger::open(table, &setup_line)?;
    if ledger.resumed() > 0 {
        eprintln!("going on behind {} rows of a run that was cut off", ledger.resumed());
    }
    let clock = WallClock::start();
    let mut tell = |Progress { rounds, visits_per_round, .. }| {
        eprintln!("round {rounds}: {visits_per_round} points, {:.1} s", clock.now().as_secs());
    };
    let progress = measure::measure(plan, model, make, watch, &mut ledger, &mut tell)?;
    ledger.complete()?;
    report_progress(progress);
    let calm = Calm::of(ledger.rows());
    report_calm(calm);

    let device = Device {
        name: args.device_name.clone().unwrap_or_else(|| subject.device.name.clone()),
        ..subject.device.clone()
    };
    let setup = Setup {
        base: Profile::roofline(&device, model),
        buckets: subject.buckets.unwrap_or_default(),
        graphs: args.device == DeviceKind::Cuda,
        layout: plan.layout,
        resamples: args.resamples,
        seed: args.seed,
        device,
        model: model.clone(),
    };
    let setup = match subject.buckets {
        Some(_) => setup,
        None => with_best_padding(setup, ledger.rows(), plan)?,
    };
    let calibration = Calibration::new(ledger.rows(), &setup)?;
    let name = args.name.clone().unwrap_or_else(|| format!("{} on {}", setup.model.name, setup.device.name));
    let source = source(args, subject, progress, calm);
    write_profile(&calibration, &setup, &name, &source, &args.out)
}

/// A device's plan with the options that were given.
fn plan(args: &MeasureArgs, model: &Architecture, mut plan: Plan) -> Result<Plan, CalibrateError> {
    if let Some(batches) = &args.batches {
        plan.batches.clone_from(batches);
    }
    if let Some(contexts) = &args.contexts {
        plan.contexts.clone_from(contexts);
    }
    if let Some(loops) = &args.loops {
        plan.loops.clone_from(loops);
    }
    plan.max_entries = args.max_entries.unwrap_or(plan.max_entries);
    plan.rounds = args.rounds.unwrap_or(plan.rounds);
    plan.check(model)?;
    Ok(plan)
}

/// The padding under which the core's times are predicted best; the table is printed, since a reader may know better.
fn with_best_padding(setup: Setup, rows: &[Measurement], plan: &Plan) -> Result<Setup, CalibrateError> {
    let candidates = padding::candidates(plan.batches.last().copied().unwrap_or(1));
    let judged = padding::judge(rows, &setup, candidates)?;
    println!("rows are padded to (left-out mean error of the core):");
    for (buckets, error) in &judged {
        println!("  {}: {:.2}%", padding::name(buckets), error * 1e2);
    }
    println!();
    let best = judged.into_iter().next().map(|(buckets, _)| buckets);
    Ok(Setup { buckets: best.unwrap_or_default(), ..setup })
}

fn report_progress(Progress { rounds, visits, visits_per_round }: Progress) {
    if rounds == 0 {
        eprintln!(
            "warning: the budget ended after {visits} of {visits_per_round} points of the first round: raise --budget, or \
             give fewer --batches and --contexts"
        );
    }
}

fn report_calm(calm: Option<Calm>) {
    let Some(calm) = calm else {
        eprintln!("warning: no point was timed twice, so nobody knows how calm the machine was: raise --budget");
        return;
    };
    eprintln!("{}", calm_in_words(&calm));
    if !calm.is_calm() {
        eprintln!("warning: the machine was not calm; close what else runs on it and measure again");
    }
}

fn calm_in_words(calm: &Calm) -> String {
    let [spread, drift, disturbed] = [calm.spread, calm.drift, calm.disturbed].map(|share| share * 1e2);
    format!("spread {spread:.1}%, drift {drift:+.1}%, {disturbed:.1}% disturbed")
}

fn source(args: &MeasureArgs, subject: &Subject, progress: Progress, calm: Option<Calm>) -> String {
    let date = args.date.clone().unwrap_or_else(machine::today);
    let calm = calm.map_or("no point repeated".into(), |calm| calm_in_words(&calm));
    format!(
        "measured {date} by `calibrate --model {} --layout {} {}` at revision {REVISION}; {} rounds, {calm}; limits of the \
         device by {}",
        args.model, args.layout, subject.how, progress.rounds, subject.limits_by
    )
}

/// Three significant digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
