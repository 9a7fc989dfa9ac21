//! `calibrate check profile.yaml --device ..`: times points that no calibration fits, and compares. `calibrate compare` does the
//! second half alone, for a table of times.

use std::path::{Path, PathBuf};

use calibrate::check;
use calibrate::error::CalibrateError;
use calibrate::measure::{self, Journal, MeasurementPlan, Timer};
use calibrate::measurements::{self, Measurement, Timed, medians};
use calibrate::tables::check_table;
use clap::Args;
use engine::architecture::Architecture;
use engine::executor::Executor;
use engine::live::LiveConfig;
use engine::profile::Profile;

use super::device::{DeviceArgs, Job, REVISION, Subject};
use super::{keep_inputs, model, read_profile};

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// The profile that is checked, as `calibrate` wrote it.
    profile: PathBuf,
    #[command(flatten)]
    on: DeviceArgs,
    /// Where the measured times go.
    #[arg(long, default_value = "check.csv")]
    out: PathBuf,
}

#[derive(Args)]
pub(crate) struct CompareArgs {
    /// The profile that is compared.
    profile: PathBuf,
    /// Times that it was not fitted to, as a calibration or a check writes them.
    measurements: PathBuf,
}

/// Says whether the profile agrees with a table.
pub(crate) fn compare(args: &CompareArgs) -> Result<bool, CalibrateError> {
    let profile = read_profile(&args.profile)?;
    judge(&profile, &measurements::read(&args.measurements)?.rows)
}

/// Prints a profile's errors and says whether it holds.
pub(super) fn judge(profile: &Profile, measured: &[Measurement]) -> Result<bool, CalibrateError> {
    let errors = check::errors(profile, &medians(measured, false));
    let (timed, judged) = check::judged(&errors)?;
    print!("{}", check_table(&errors));
    let holds = check::holds(profile, &judged);
    let verdict = if holds { "holds" } else { "does not hold" };
    let steps = if timed == Timed::Core { "core steps" } else { "whole steps (no core was timed by itself)" };
    println!("\n\"{}\" {verdict}: {steps} are off by {:.2}% on average", profile.name, judged.mean * 1e2);
    Ok(holds)
}

/// Says whether the profile holds on this machine.
pub(crate) fn check(args: &CheckArgs) -> Result<bool, CalibrateError> {
    keep_inputs([&args.profile].into_iter().chain(&args.on.weights), [&args.out])?;
    let profile = read_profile(&args.profile)?;
    let model = model(&profile.model)?;
    let mut holds = false;
    args.on.run(&model, Checking { profile: &profile, model: &model, out: &args.out, holds: &mut holds })?;
    Ok(holds)
}

struct Checking<'a> {
    profile: &'a Profile,
    model: &'a Architecture,
    out: &'a Path,
    holds: &'a mut bool,
}

impl Job for Checking<'_> {
    fn plan(&self, calibration: MeasurementPlan) -> MeasurementPlan {
        calibration.held_out()
    }

    fn run<E: Executor>(
        self,
        plan: &MeasurementPlan,
        subject: &Subject,
        make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
        timer: &mut Timer<'_>,
    ) -> Result<(), CalibrateError> {
        let Self { profile, model, out, holds } = self;
        let mut journal = Journal::open(out, &format!("{}, {}, revision {REVISION}; {plan}", model.name, subject.how))?;
        let progress = measure::measure(plan, model, make, timer, &mut journal, &mut |_| ())?;
        journal.complete()?;
        progress.check()?;
        *holds = judge(profile, journal.rows())?;
        Ok(())
    }
}
