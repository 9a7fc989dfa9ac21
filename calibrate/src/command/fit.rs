//! `calibrate fit`: a table of measurements in, a profile and tables out.

use std::path::{Path, PathBuf};

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::measurements;
use calibrate::plausible::Pace;
use clap::Args;
use engine::architecture::Architecture;
use engine::profile::{Buckets, DeviceSpec, Profile};
use engine::whole;

use super::{buckets, keep_inputs, layout, model, noise, profile_files, read_profile, resamples, write_profile};

#[derive(Args)]
pub(crate) struct FitArgs {
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
    /// KV entries that the device's attention reads at a time [default: the base's, or one].
    #[arg(long, value_parser = whole::parse::<u32>)]
    kv_tile: Option<u32>,
    /// The KV layout, from which offloaded bytes are counted.
    #[arg(long, default_value = "last_exited")]
    layout: String,
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
    #[arg(long, default_value_t = 1000, value_parser = resamples)]
    resamples: u32,
    /// The bootstrap's seed.
    #[arg(long, default_value_t = 0, value_parser = whole::parse::<u64>)]
    seed: u64,
    /// Where to write the profile.
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn fit(args: &FitArgs) -> Result<(), CalibrateError> {
    keep_inputs([&args.measurements].into_iter().chain(&args.base), profile_files(&args.out))?;
    let setup = setup(args)?;
    let table = measurements::read(&args.measurements)?;
    for column in &table.ignored {
        eprintln!("column `{column}` is not read");
    }
    if let Some(pace) = Pace::doubtful(&table.rows, &setup.model, &setup.device) {
        pace.check(&setup.model, &setup.device)?;
    }
    let noise = noise::report(&table.rows, "time the grid in several rounds");
    eprintln!("fitting {} measurements, {} bootstrap fits", table.rows.len(), setup.resamples);
    let calibration = Calibration::new(&table.rows, &setup)?;
    let file = args.measurements.file_name().map_or("measurements".into(), |name| name.to_string_lossy());
    let source = args.source.clone().unwrap_or_else(|| {
        format!("fitted to {} rows of {file}; {}", table.rows.len(), noise::for_source(noise.as_ref()))
    });
    let name = args.name.clone().unwrap_or_else(|| format!("{} on {}", setup.model.name, setup.device.name));
    write_profile(&calibration, &setup, &table.rows, (&name, &source), &args.out)
}

fn setup(args: &FitArgs) -> Result<Setup, CalibrateError> {
    let model = model(&args.model)?;
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
    let layout = layout(&args.layout)?;
    // A base that was fitted says whether its device has graphs; sizes that were given are those of graphs.
    let fitted = base.fit.as_ref();
    let graphs = match (&args.buckets, fitted) {
        (None, Some(fit)) => fit.form == "per_graph",
        _ => buckets != Buckets::Exact,
    };
    let kv_tile_tokens = args.kv_tile.unwrap_or(base.kv_tile.tokens);
    Ok(Setup {
        model,
        device,
        buckets,
        graphs,
        kv_tile_tokens,
        layout,
        base,
        resamples: args.resamples,
        seed: args.seed,
    })
}

fn device(args: &FitArgs, name: &str) -> Result<DeviceSpec, CalibrateError> {
    let known = DeviceSpec::datasheet(name);
    let limit = |option, given: Option<f64>, known: Option<f64>| {
        let limit = given.or(known).ok_or_else(|| {
            let names = DeviceSpec::datasheets().collect::<Vec<_>>().join(", ");
            let reason = format!("is needed for the device `{name}`: only the limits of {names} are built in");
            CalibrateError::Argument { option, reason }
        })?;
        if limit.is_finite() && limit > 0.0 {
            return Ok(limit);
        }
        Err(CalibrateError::Argument { option, reason: format!("must be finite and greater than zero, got {limit}") })
    };
    Ok(DeviceSpec {
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

fn base(path: &Path, model: &Architecture) -> Result<Profile, CalibrateError> {
    let profile = read_profile(path)?;
    if profile.model != model.name {
        let reason = format!("is a profile of {}, and --model is {}", profile.model, model.name);
        return Err(CalibrateError::Argument { option: "--base", reason });
    }
    Ok(profile)
}
