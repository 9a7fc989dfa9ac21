//! `calibrate --model .. --device ..`: measures, fits, and writes a profile.

use std::path::PathBuf;

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
use engine::executor::Clock;
use engine::models::weights::Weights;
use engine::profile::{Device, Profile};
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
    /// Threads; 0 takes one a core. A live run must have as many.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Where KV is kept: last_exited, depth_indexed, shared or first_then_shared.
    #[arg(long, default_value = "last_exited")]
    layout: String,
    /// Batch sizes, rising [default: 1 to 64].
    #[arg(long, value_delimiter = ',')]
    batches: Option<Vec<u32>>,
    /// Contexts, rising [default: 32 to 512].
    #[arg(long, value_delimiter = ',')]
    contexts: Option<Vec<u32>>,
    /// Loop counts of whole steps, rising, up to the model's r_max [default: a quarter, a half, and all].
    #[arg(long, value_delimiter = ',')]
    loops: Option<Vec<u8>>,
    /// KV entries of a timed batch at most [default: 4096].
    #[arg(long)]
    max_entries: Option<u32>,
    /// Times that the grid is gone through at most [default: as the budget allows, up to 15].
    #[arg(long)]
    rounds: Option<u32>,
    /// Safetensors with the model's weights [default: random ones, which take as long].
    #[arg(long)]
    weights: Option<PathBuf>,
    /// To what batches are padded: auto (told by the times), exact, powers_of_two, or a rising list.
    #[arg(long, default_value = "auto")]
    buckets: String,
    /// The profile's name [default: "MODEL on DEVICE"].
    #[arg(long)]
    name: Option<String>,
    /// The device's name [default: the processor's, and how many threads].
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
    let plan = plan(args, &model)?;
    plan.check(&model)?;
    let chosen = if args.buckets == "auto" { None } else { Some(buckets(&args.buckets)?) };
    let table = args.out.with_extension("csv");
    if table == args.out {
        let reason = "must not end in .csv: the measured times go there, the profile is YAML".into();
        return Err(CalibrateError::Argument { option: "--out", reason });
    }
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let weights = match &args.weights {
        Some(path) => Weights::load(path, &model).map_err(CalibrateError::Weights)?,
        None => Weights::random(&model, args.seed),
    };
    let setup_line = format!("{}, cpu, {threads} threads, seed {}, revision {REVISION}; {plan}", model.name, args.seed);
    let mut ledger = Ledger::open(&table, &setup_line)?;
    if ledger.resumed() > 0 {
        eprintln!("going on behind {} rows of a run that was cut off", ledger.resumed());
    }
    let mut clock = WallClock::start();
    let limits = Limits::of_this_cpu(threads, &clock);
    let options = CpuOptions { threads, ..CpuOptions::default() };
    let make = |config| CpuExecutor::<engine::cpu::bf16>::new(&model, &weights, config, options);
    let started = clock;
    let mut tell = |Progress { rounds, visits_per_round, .. }| {
        eprintln!("round {rounds}: {visits_per_round} points, {:.1} s", started.now().as_secs());
    };
    let mut watch = Watch { clock: &mut clock, waited: &mut machine::waited };
    let progress = measure::measure(&plan, &model, make, &mut watch, &mut ledger, &mut tell)?;
    ledger.complete()?;
    report_progress(progress);
    let calm = Calm::of(ledger.rows());
    report_calm(calm);

    let device_name =
        args.device_name.clone().unwrap_or_else(|| format!("{}, {threads} threads", machine::processor()));
    let device = Device {
        name: device_name,
        bandwidth_gb_per_s: round(limits.bandwidth_gb_per_s),
        compute_tflops: round(limits.compute_tflops),
    };
    let setup = Setup {
        base: Profile::roofline(&device, &model),
        buckets: chosen.unwrap_or_default(),
        layout: plan.layout,
        resamples: args.resamples,
        seed: args.seed,
        device,
        model,
    };
    let setup = match chosen {
        Some(_) => setup,
        None => with_best_padding(setup, ledger.rows(), &plan)?,
    };
    let calibration = Calibration::new(ledger.rows(), &setup)?;
    let name = args.name.clone().unwrap_or_else(|| format!("{} on {}", setup.model.name, setup.device.name));
    let source = source(args, threads, progress, calm);
    write_profile(&calibration, &setup, &name, &source, &args.out)
}

fn plan(args: &MeasureArgs, model: &Architecture) -> Result<Plan, CalibrateError> {
    let mut plan = Plan::small(model, layout(&args.layout)?, args.budget);
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

fn source(args: &MeasureArgs, threads: usize, progress: Progress, calm: Option<Calm>) -> String {
    let date = args.date.clone().unwrap_or_else(machine::today);
    let calm = calm.map_or("no point repeated".into(), |calm| calm_in_words(&calm));
    format!(
        "measured {date} by `calibrate --model {} --device cpu --layout {} --threads {threads}` at revision {REVISION}; {} \
         rounds, {calm}; limits of the device by a large copy and by f32 matrix products",
        args.model, args.layout, progress.rounds
    )
}

/// Three significant digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
