//! The commands, and what they share: options that name things, and the way from a calibration to a file.

mod adjust;
mod check;
mod device;
mod endpoint;
mod fit;
mod machine;
mod measure;
mod noise;

use std::path::{Path, PathBuf};

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::figures;
use calibrate::measurements::Measurement;
use calibrate::plausible::Pace;
use calibrate::tables;
use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::live::weights::folder::ModelFolder;
use engine::profile::{Buckets, Profile};
use engine::whole;
use files::check_outputs;
use reports::Timing;
use serde_yaml::UserMessageFormatter;

pub(crate) use adjust::{AdjustArgs, adjust};
pub(crate) use check::{CheckArgs, CompareArgs, check, compare};
pub(crate) use fit::{FitArgs, fit};
pub(crate) use measure::{MeasureArgs, measure};

/// Fails before anything is written if an output is a file that is read, or two are one.
fn keep_inputs<I, O>(inputs: I, outputs: O) -> Result<(), CalibrateError>
where
    I: IntoIterator<Item: AsRef<Path>>,
    O: IntoIterator<Item: AsRef<Path>>,
{
    check_outputs(inputs, outputs).map_err(CalibrateError::Output)
}

/// Reads a profile and checks that it can be used.
fn read_profile(path: &Path) -> Result<Profile, CalibrateError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| CalibrateError::Read { path: path.into(), source })?;
    // The parser's own words are for programmers.
    let worded = |error: serde_yaml::Error| error.render_with_formatter(&UserMessageFormatter);
    let profile: Profile = serde_yaml::from_str(&text)
        .map_err(|error| CalibrateError::Yaml { name: name.clone(), reason: worded(error) })?;
    profile.check().map_err(|source| CalibrateError::Profile { name, source })?;
    Ok(profile)
}

/// Below this, times are not linear in loops as they should be; the paper reports at least this everywhere.
const R_SQUARED_MIN: f64 = 0.999;

fn model(name: &str) -> Result<Architecture, CalibrateError> {
    if let Some(model) = Architecture::builtin(name) {
        return Ok(model);
    }
    let wrong = |reason: String| CalibrateError::Argument { option: "--model", reason };
    match Path::new(name).is_dir() {
        true => match ModelFolder::open(Path::new(name)) {
            Ok(folder) => Ok(folder.config.architecture),
            Err(error) => Err(wrong(error.to_string())),
        },
        false => {
            let known = Architecture::BUILTIN.join(", ");
            Err(wrong(format!("there is no model `{name}`, only {known}, and no folder of that name")))
        }
    }
}

fn resamples(text: &str) -> Result<u32, String> {
    match whole::parse(text)? {
        resamples if resamples <= RESAMPLES_MAX => Ok(resamples),
        resamples => Err(format!("must be at most {RESAMPLES_MAX}, got {resamples}")),
    }
}

fn layout(name: &str) -> Result<Layout, CalibrateError> {
    let layouts = [Layout::LastExited, Layout::DepthIndexed, Layout::Shared, Layout::FirstThenShared];
    layouts.into_iter().find(|layout| layout.name() == name).ok_or_else(|| {
        let reason = format!("there is no layout `{name}`, only {}", layouts.map(Layout::name).join(", "));
        CalibrateError::Argument { option: "--layout", reason }
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

/// Refits of the bootstrap at most: all are kept until the last is made.
const RESAMPLES_MAX: u32 = 1_000_000;

/// Prints the tables and writes the profile; what a reader should doubt goes to stderr.
fn write_profile(
    calibration: &Calibration,
    setup: &Setup,
    measured: &[Measurement],
    (name, source): (&str, &str),
    out: &Path,
) -> Result<(), CalibrateError> {
    let bent: Vec<_> = calibration.points.iter().filter(|point| point.r_squared < R_SQUARED_MIN).collect();
    if let Some(point) = bent.first() {
        let (count, batch, context) = (bent.len(), point.batch, point.context);
        eprintln!(
            "warning: R^2 over loops is below {R_SQUARED_MIN} at {count} points, the first is batch {batch}, context {context}: \
             noise, changing clocks or a shared device?"
        );
    }
    if let Some(pace) = Pace::doubtful(measured, &setup.model, &setup.device) {
        eprintln!("warning: {pace}: wrong units, another device or model, or weights that a cache holds?");
    }
    for term in calibration.unmeasured() {
        eprintln!("{term}: not measured, taken from \"{}\"", setup.base.name);
    }
    let profile = calibration.profile(setup, name, source)?;
    write_yaml(&profile, out)?;
    write_tables(calibration, setup, measured, &profile, out)?;
    print!("{}", tables::render(calibration));
    eprintln!("wrote {}", out.display());
    Ok(())
}

/// Everything that [`write_profile`] writes for a profile.
fn profile_files(out: &Path) -> Vec<PathBuf> {
    let figures = figures::NAMES.map(|name| out.with_file_name(format!("{}.svg", figure_stem(out, name))));
    [out.into(), out.with_extension("parquet")].into_iter().chain(figures).collect()
}

fn figure_stem(out: &Path, name: &str) -> String {
    format!("{}_{name}", out.file_stem().unwrap_or_default().to_string_lossy())
}

/// The raw times and the figures, beside the profile.
fn write_tables(
    calibration: &Calibration,
    setup: &Setup,
    measured: &[Measurement],
    profile: &Profile,
    out: &Path,
) -> Result<(), CalibrateError> {
    reports::write_timings(&out.with_extension("parquet"), measured.iter().map(Timing::from))
        .map_err(CalibrateError::Report)?;
    let folder = out.parent().unwrap_or(Path::new(""));
    for (name, figure) in figures::figures(calibration, setup, profile) {
        figure.write(folder, &figure_stem(out, name), false).map_err(CalibrateError::Report)?;
    }
    Ok(())
}

fn write_yaml(profile: &Profile, out: &Path) -> Result<(), CalibrateError> {
    let text = serde_yaml::to_string(profile)
        .map_err(|error| CalibrateError::Yaml { name: profile.name.clone(), reason: error.to_string() })?;
    files::write_whole(out, text.as_bytes()).map_err(|source| CalibrateError::Write { path: out.into(), source })?;
    Ok(())
}
