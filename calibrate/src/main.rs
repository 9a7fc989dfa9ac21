//! `calibrate fit`: measurements in, a profile and tables out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::{measurements, tables};
use clap::{Args, Parser, Subcommand};
use engine::architecture::Architecture;
use engine::profile::{Buckets, Device, Profile};

/// Below this, times are not linear in loops as they should be; the paper reports at least this everywhere.
const R_SQUARED_MIN: f64 = 0.999;

/// Turns measured step times into a profile for the simulator.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fit a profile to a CSV of measurements (its columns are described in calibrate/README.md).
    Fit(FitArgs),
}

#[derive(Args)]
struct FitArgs {
    /// The measurements: batch,context,loops,step_ms[,stage][,tokens].
    measurements: PathBuf,
    /// The model that was timed.
    #[arg(long)]
    model: String,
    /// The device that ran it; a name without built-in limits needs the two options below.
    #[arg(long, required_unless_present = "base")]
    device: Option<String>,
    /// The device's memory bandwidth.
    #[arg(long, requires = "device")]
    bandwidth_gb_per_s: Option<f64>,
    /// The device's dense bf16 throughput.
    #[arg(long, requires = "device")]
    compute_tflops: Option<f64>,
    /// Batch sizes with graphs: exact, powers_of_two, or a rising list like 1,2,4,8,16 [default: powers_of_two, or the base's].
    #[arg(long)]
    buckets: Option<String>,
    /// A profile of the same model for the terms that were not measured [default: the device's roofline].
    #[arg(long)]
    base: Option<PathBuf>,
    /// The profile's name [default: "MODEL on DEVICE"].
    #[arg(long)]
    name: Option<String>,
    /// Where the measurements come from: command, date, commit, driver.
    #[arg(long)]
    source: Option<String>,
    /// Refits of the bootstrap.
    #[arg(long, default_value_t = 1000)]
    resamples: u32,
    /// The bootstrap's seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where to write the profile.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> ExitCode {
    let Command::Fit(args) = Cli::parse().command;
    match fit(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:?}", miette::miette!("{error}"));
            ExitCode::from(2)
        }
    }
}

fn fit(args: &FitArgs) -> Result<(), CalibrateError> {
    let setup = setup(args)?;
    let table = measurements::read(&args.measurements)?;
    for column in &table.ignored {
        eprintln!("column `{column}` is not read");
    }
    eprintln!("fitting {} measurements, {} bootstrap fits", table.rows.len(), setup.resamples);
    let calibration = Calibration::new(&table.rows, &setup)?;
    let bent: Vec<_> = calibration.points.iter().filter(|point| point.r_squared < R_SQUARED_MIN).collect();
    if let Some(point) = bent.first() {
        let (count, batch, context) = (bent.len(), point.batch, point.context);
        eprintln!(
            "warning: R^2 over loops is below {R_SQUARED_MIN} at {count} points, the first is batch {batch}, context {context}: \
             noise, changing clocks or a shared device?"
        );
    }
    for term in calibration.unmeasured() {
        eprintln!("{term}: not measured, taken from \"{}\"", setup.base.name);
    }
    let file = args.measurements.file_name().map_or("measurements".into(), |name| name.to_string_lossy());
    let source = args.source.clone().unwrap_or_else(|| format!("fitted to {} rows of {file}", table.rows.len()));
    let name = args.name.clone().unwrap_or_else(|| format!("{} on {}", setup.model.name, setup.device.name));
    let profile = calibration.profile(&setup, &name, &source)?;
    let text = serde_yaml::to_string(&profile)
        .map_err(|error| CalibrateError::Yaml { name: profile.name.clone(), reason: error.to_string() })?;
    write_whole(&args.out, &text)?;
    print!("{}", tables::render(&calibration));
    eprintln!("wrote {}", args.out.display());
    Ok(())
}

fn setup(args: &FitArgs) -> Result<Setup, CalibrateError> {
    let model = Architecture::builtin(&args.model).ok_or_else(|| {
        let reason = format!("there is no model `{}`, only {}", args.model, Architecture::BUILTIN.join(", "));
        CalibrateError::Argument { option: "--model", reason }
    })?;
    let base = args.base.as_deref().map(|path| base(path, &model)).transpose()?;
    let device = match (&args.device, &base) {
        (None, Some(base)) => base.device.clone(),
        (name, _) => device(args, name.as_deref().unwrap_or(""))?,
    };
    let buckets = match (&args.buckets, &base) {
        (Some(text), _) => buckets(text)?,
        (None, Some(base)) => base.buckets,
        (None, None) => Buckets::PowersOfTwo,
    };
    let base = base.unwrap_or_else(|| Profile::roofline(&device, &model));
    Ok(Setup { model, device, buckets, base, resamples: args.resamples, seed: args.seed })
}

fn device(args: &FitArgs, name: &str) -> Result<Device, CalibrateError> {
    let known = Device::datasheet(name);
    let limit = |option, given: Option<f64>, known: Option<f64>| {
        let limit = given.or(known).ok_or_else(|| {
            let names = Device::datasheets().collect::<Vec<_>>().join(", ");
            let reason = format!("is needed for the device `{name}`: only the limits of {names} are built in");
            CalibrateError::Argument { option, reason }
        })?;
        if limit.is_finite() && limit > 0.0 {
            return Ok(limit);
        }
        Err(CalibrateError::Argument { option, reason: format!("must be finite and greater than zero, got {limit}") })
    };
    Ok(Device {
        name: name.into(),
        bandwidth_gb_per_s: limit(
            "--bandwidth-gb-per-s",
            args.bandwidth_gb_per_s,
            known.as_ref().map(|known| known.bandwidth_gb_per_s),
        )?,
        compute_tflops: limit(
            "--compute-tflops",
            args.compute_tflops,
            known.as_ref().map(|known| known.compute_tflops),
        )?,
    })
}

fn buckets(text: &str) -> Result<Buckets, CalibrateError> {
    match text {
        "exact" => return Ok(Buckets::Exact),
        "powers_of_two" => return Ok(Buckets::PowersOfTwo),
        _ => (),
    }
    let sizes = text.split(',').map(|size| size.trim().parse::<u32>()).collect::<Result<Vec<_>, _>>();
    let rising = sizes.ok().and_then(|sizes| sizes.try_into().ok());
    rising.map(Buckets::List).ok_or_else(|| CalibrateError::Argument {
        option: "--buckets",
        reason: format!("must be exact, powers_of_two or a rising list of batch sizes like 1,2,4, got `{text}`"),
    })
}

fn base(path: &Path, model: &Architecture) -> Result<Profile, CalibrateError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| CalibrateError::Read { path: path.into(), source })?;
    let profile: Profile = serde_yaml::from_str(&text)
        .map_err(|error| CalibrateError::Yaml { name: name.clone(), reason: error.to_string() })?;
    profile.check().map_err(|source| CalibrateError::Profile { name, source })?;
    if profile.model != model.name {
        let reason = format!("is a profile of {}, and --model is {}", profile.model, model.name);
        return Err(CalibrateError::Argument { option: "--base", reason });
    }
    Ok(profile)
}

/// Writes beside the file and renames: a reader sees the old profile or the new one, never half of one.
fn write_whole(path: &Path, text: &str) -> Result<(), CalibrateError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|source| {
        // Whatever stopped the write is the error to report, not a leftover.
        let _ = std::fs::remove_file(&partial);
        CalibrateError::Write { path: path.into(), source }
    })
}
