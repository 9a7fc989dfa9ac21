//! The commands, and what they share: options that name things, and the way from a calibration to a file.

mod fit;
mod machine;
mod measure;

use std::path::Path;

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::tables;
use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::profile::Buckets;

pub(crate) use fit::{FitArgs, fit};
pub(crate) use measure::{MeasureArgs, measure};

/// Below this, times are not linear in loops as they should be; the paper reports at least this everywhere.
const R_SQUARED_MIN: f64 = 0.999;

fn model(name: &str) -> Result<Architecture, CalibrateError> {
    Architecture::builtin(name).ok_or_else(|| {
        let reason = format!("there is no model `{name}`, only {}", Architecture::BUILTIN.join(", "));
        CalibrateError::Argument { option: "--model", reason }
    })
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

/// Prints the tables and writes the profile; what a reader should doubt goes to stderr.
fn write_profile(
    calibration: &Calibration,
    setup: &Setup,
    name: &str,
    source: &str,
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
    for term in calibration.unmeasured() {
        eprintln!("{term}: not measured, taken from \"{}\"", setup.base.name);
    }
    let profile = calibration.profile(setup, name, source)?;
    let text = serde_yaml::to_string(&profile)
        .map_err(|error| CalibrateError::Yaml { name: profile.name.clone(), reason: error.to_string() })?;
    write_whole(out, &text)?;
    print!("{}", tables::render(calibration));
    eprintln!("wrote {}", out.display());
    Ok(())
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
