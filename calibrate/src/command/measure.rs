//! `calibrate --model .. --device ..`: measures, fits, and writes a profile.

use std::path::{Path, PathBuf};

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::measure::noise::Noise;
use calibrate::measure::{self, Journal, MeasurementPlan, Progress, Timer};
use calibrate::measurements::Measurement;
use calibrate::padding;
use clap::Args;
use engine::architecture::Architecture;
use engine::executor::{Clock, Executor};
use engine::live::LiveConfig;
use engine::live::wall_clock::WallClock;
use engine::profile::{Buckets, DeviceSpec, Profile};

use super::device::{DeviceArgs, Job, REVISION, Subject};
use super::endpoint::{self, EndpointArgs};
use super::{buckets, keep_inputs, machine, model, noise, profile_files, resamples, write_profile};

// Named, since arguments beside flattened ones are in no group otherwise, and then nobody sees that they were given.
#[derive(Args)]
#[group(args = ["model", "out"], multiple = true)]
pub(crate) struct MeasureArgs {
    /// The model to time: tiny-ouro, tiny-huginn, or a released one.
    #[arg(long)]
    pub(super) model: String,
    /// Where to write the profile; the measured times go beside it, to OUT.csv and OUT.parquet in place of OUT.yaml, and figures to
    /// OUT_latency.svg and OUT_residuals.svg.
    #[arg(long)]
    pub(super) out: PathBuf,
    #[command(flatten)]
    pub(super) at: EndpointArgs,
    #[command(flatten)]
    pub(super) on: DeviceArgs,
    /// To what batches are padded: auto (inferred from the times; on a GPU its graphs), exact, powers_of_two, or a rising list.
    #[arg(long, default_value = "auto")]
    pub(super) buckets: String,
    /// The profile's name [default: "MODEL on DEVICE"].
    #[arg(long)]
    pub(super) name: Option<String>,
    /// The device's name [default: the processor's, and how many threads; the GPU's].
    #[arg(long)]
    pub(super) device_name: Option<String>,
    /// The date to note [default: today].
    #[arg(long)]
    pub(super) date: Option<String>,
    /// Refits of the bootstrap.
    #[arg(long, default_value_t = 1000, value_parser = resamples)]
    resamples: u32,
}

pub(crate) fn measure(args: &MeasureArgs) -> Result<(), CalibrateError> {
    let table = args.out.with_extension("csv");
    if table == args.out {
        let reason = "must not end in .csv: the measured times go there, the profile is YAML".into();
        return Err(CalibrateError::Argument { option: "--out", reason });
    }
    if let Some(url) = &args.at.endpoint {
        return endpoint::measure(url, args, &table);
    }
    let model = model(&args.model)?;
    let chosen = if args.buckets == "auto" { None } else { Some(buckets(&args.buckets)?) };
    keep_inputs(&args.on.weights, profile_files(&args.out).into_iter().chain([table.clone()]))?;
    args.on.run(&model, Calibrating { args, model: &model, table: &table, chosen })
}

/// A calibration, once its device is open.
struct Calibrating<'a> {
    args: &'a MeasureArgs,
    model: &'a Architecture,
    table: &'a Path,
    /// The padding, if it was given.
    chosen: Option<Buckets>,
}

impl Job for Calibrating<'_> {
    fn plan(&self, calibration: MeasurementPlan) -> MeasurementPlan {
        calibration
    }

    fn run<E: Executor>(
        self,
        plan: &MeasurementPlan,
        subject: &Subject,
        make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
        timer: &mut Timer<'_>,
    ) -> Result<(), CalibrateError> {
        let Self { args, model, table, chosen } = self;
        let seed = args.on.seed;
        let setup_line = format!("{}, {}, seed {seed}, revision {REVISION}; {plan}", model.name, subject.how);
        let mut journal = Journal::open(table, &setup_line)?;
        if journal.resumed() > 0 {
            eprintln!("going on behind {} rows of a run that was cut off", journal.resumed());
        }
        let clock = WallClock::start();
        let mut on_round = |Progress { rounds, groups_per_round, .. }| {
            eprintln!("round {rounds}: {groups_per_round} points, {:.1} s", clock.now().as_secs());
        };
        let progress = measure::measure(plan, model, make, timer, &mut journal, &mut on_round)?;
        journal.complete()?;
        progress.check()?;
        report_progress(progress);
        let noise = noise::report(journal.rows(), "raise --budget");

        let name = args.device_name.clone().unwrap_or_else(|| subject.device.name.clone());
        let device = DeviceSpec { name, ..subject.device.clone() };
        let buckets = chosen.or(subject.buckets);
        let setup = Setup {
            base: Profile::roofline(&device, model),
            buckets: buckets.unwrap_or_default(),
            graphs: subject.buckets.is_some(),
            kv_tile_tokens: subject.kv_tile_tokens,
            layout: plan.layout,
            resamples: args.resamples,
            seed,
            device,
            model: model.clone(),
        };
        let setup = match buckets {
            Some(_) => setup,
            None => with_best_padding(setup, journal.rows(), plan)?,
        };
        let calibration = Calibration::new(journal.rows(), &setup)?;
        let name = args.name.clone().unwrap_or_else(|| format!("{} on {}", setup.model.name, setup.device.name));
        let source = source(args, subject, progress, noise.as_ref());
        write_profile(&calibration, &setup, journal.rows(), (&name, &source), &args.out)
    }
}

/// The padding under which the core's times are predicted best; the table is printed, since a reader may know better.
fn with_best_padding(setup: Setup, rows: &[Measurement], plan: &MeasurementPlan) -> Result<Setup, CalibrateError> {
    let candidates = padding::candidates(plan.batches.last().copied().unwrap_or(1));
    let ranked = padding::rank(rows, &setup, candidates)?;
    println!("rows are padded to (left-out mean error of the core):");
    for (buckets, error) in &ranked {
        println!("  {}: {:.2}%", padding::name(buckets), error * 1e2);
    }
    println!();
    let best = ranked.into_iter().next().map(|(buckets, _)| buckets);
    Ok(Setup { buckets: best.unwrap_or_default(), ..setup })
}

fn report_progress(Progress { rounds, groups, groups_per_round }: Progress) {
    if rounds == 0 {
        eprintln!(
            "warning: the budget ended after {groups} of {groups_per_round} points of the first round: raise --budget, or \
             give fewer --batches and --contexts"
        );
    }
}

fn source(args: &MeasureArgs, subject: &Subject, progress: Progress, noise: Option<&Noise>) -> String {
    let date = args.date.clone().unwrap_or_else(machine::today);
    let noise = noise::for_source(noise);
    format!(
        "measured {date} by `calibrate --model {} --layout {} {}` at revision {REVISION}; {} rounds, {noise}; limits of the \
         device by {}",
        args.model, args.on.layout, subject.how, progress.rounds, subject.limits_by
    )
}
