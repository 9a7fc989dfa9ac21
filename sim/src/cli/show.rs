//! Results to stdout, errors with the place at fault.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report, miette};
use sim::run::plan::PlanError;
use sim::scenario::load::{LoadError, Loaded, Wording};
use sim::scenario::locate;
use sim::study::sweep::SweepError;
use sim::validate::{Protocol, ProtocolError};

/// Prints to stdout; a reader that has seen enough is no error.
pub(super) fn print(text: &str) -> Result<(), Report> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(miette!("stdout: {error}")),
        _ => Ok(()),
    }
}

pub(super) fn load_error(error: LoadError) -> Report {
    match error {
        LoadError::Yaml { path, text, source } => {
            serde_yaml::miette::to_miette_report_with_formatter(&source, &text, &path.to_string_lossy(), &Wording)
        }
        other => miette!("{other}"),
    }
}

/// Shows the fault under the field, if the file has it.
pub(super) fn plan_error(error: &PlanError, loaded: &Loaded) -> Report {
    located(error.to_string(), locate::locate(&loaded.text, &error.path), (&loaded.path, &loaded.text))
}

/// Shows the fault under the field of the protocol.
pub(super) fn protocol_error(error: &ProtocolError, protocol: &Protocol) -> Report {
    let place = locate::locate_keys(&protocol.text, error.keys.iter().map(String::as_str));
    located(error.to_string(), place, (&protocol.path, &protocol.text))
}

/// Shows a point's fault under the swept value, or under the field.
pub(super) fn sweep_error(error: SweepError, loaded: &Loaded) -> Report {
    let SweepError::Point(point) = &error else { return miette!("{error}") };
    let place = match &point.axis {
        Some((field, value)) => locate::locate_keys(&loaded.text, ["sweep", field, &value.to_string()]),
        None => locate::locate(&loaded.text, &point.path),
    };
    located(error.to_string(), place, (&loaded.path, &loaded.text))
}

fn located(message: String, place: Option<Range<usize>>, (path, text): (&Path, &str)) -> Report {
    let mut diagnostic = MietteDiagnostic::new(message);
    if let Some(range) = place {
        diagnostic = diagnostic.with_label(LabeledSpan::new_with_span(Some("here".into()), range));
    }
    Report::new(diagnostic).with_source_code(NamedSource::new(path.to_string_lossy(), text.to_owned()))
}
