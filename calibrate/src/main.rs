//! `calibrate`: times a model on this machine, or fits a table of times; a profile and tables come out.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod command;

use command::{FitArgs, MeasureArgs};

/// Measures how long a looped model's steps take on a device, and writes a profile for the simulator.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: Option<MeasureArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Fit a profile to a CSV of measurements (its columns are described in calibrate/README.md).
    Fit(FitArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli { command: Some(Command::Fit(args)), .. } => command::fit(&args),
        Cli { measure: Some(args), .. } => command::measure(&args),
        Cli { .. } => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:?}", miette::miette!("{error}"));
            ExitCode::from(2)
        }
    }
}
<<<<<<< HEAD
=======

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
>>>>>>> main
