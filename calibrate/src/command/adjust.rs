//! `calibrate adjust profile.yaml times.csv`: a profile of another device of the same kind.

use std::path::PathBuf;

use calibrate::adjust::adjust as adjusted;
use calibrate::error::CalibrateError;
use calibrate::measurements::{self, medians};
use clap::Args;
use engine::profile::Profile;

use super::{check::judge, keep_inputs, read_profile, write_yaml};

#[derive(Args)]
pub(crate) struct AdjustArgs {
    /// The profile of one device.
    profile: PathBuf,
    /// Times of the other, as `calibrate check` writes them.
    measurements: PathBuf,
    /// Where to write the other's profile.
    #[arg(long)]
    out: PathBuf,
    /// The new profile's name [default: "PROFILE's, adjusted"].
    #[arg(long)]
    name: Option<String>,
}

pub(crate) fn adjust(args: &AdjustArgs) -> Result<(), CalibrateError> {
    keep_inputs([&args.profile, &args.measurements], [&args.out])?;
    let profile = read_profile(&args.profile)?;
    let measured = measurements::read(&args.measurements)?.rows;
    let scaled = adjusted(&profile, &medians(&measured, false))?;
    let file = args.measurements.file_name().unwrap_or_default().to_string_lossy();
    let profile = Profile {
        name: args.name.clone().unwrap_or_else(|| format!("{}, adjusted", profile.name)),
        source: format!("{}; then adjusted to another device's times, {file}", profile.source),
        ..scaled
    };
    write_yaml(&profile, &args.out)?;
    judge(&profile, &measured)?;
    eprintln!("wrote {}", args.out.display());
    Ok(())
}
