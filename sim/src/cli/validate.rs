//! `sim validate protocol.yaml`.

use std::path::PathBuf;

use clap::Args;
use engine::duration;
use engine::live::wall_clock::WallClock;
use miette::{Report, miette};
use reports::Results;
use reports::validation::protocol::{protocol_text, write_protocol};
use sim::live::{Engine, LiveDevice};
use sim::validate::{Predicted, Protocol, Session, inputs, journal_file, outline, runs};

use super::{keep, show};

#[derive(Args)]
pub(super) struct ValidateArguments {
    /// The protocol, a YAML file.
    protocol: PathBuf,
    /// Measures what has not been measured yet, and compares; without it, the runs are only predicted and listed.
    #[arg(long, value_name = "DEVICE")]
    live: Option<LiveDevice>,
    /// Begins no live run that would end later than this, such as 600s or 10m; run again to go on.
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "live")]
    budget: Option<f64>,
    /// Sets a field of the base scenario, as path.to.field=value.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// At most 300 requests a run.
    #[arg(long)]
    quick: bool,
    /// Where to write; reports/out/<protocol> by default.
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(super) fn serve(arguments: &ValidateArguments) -> Result<(), Report> {
    let clock = WallClock::start();
    let protocol =
        Protocol::read(&arguments.protocol, &arguments.overrides, arguments.quick).map_err(show::load_error)?;
    let mut engine = arguments.live.map(Engine::new);
    let runs = runs(&protocol, engine.as_mut()).map_err(|error| show::protocol_error(&error, &protocol))?;
    let predicted = Predicted::new(&runs);
    let (Some(device), Some(mut engine)) = (arguments.live, engine) else {
        return show::print(&outline(&runs, &predicted));
    };
    let dir = arguments.out.clone().unwrap_or_else(|| PathBuf::from("reports/out").join(protocol.name()));
    keep(&inputs(&protocol, &runs), (Results::Protocol, &dir), [journal_file(&dir)])?;
    let mut session = Session::new(&runs, &predicted, device, &dir).map_err(|error| miette!("{error}"))?;
    let passed_over = session.passed_over();
    if passed_over > 0 {
        eprintln!(
            "{} has {passed_over} live runs of other settings or of an older program (CHANGELOG.md): they are passed over",
            journal_file(&dir).display()
        );
    }
    let progress =
        session.complete(&mut engine, &dir, (&clock, arguments.budget)).map_err(|error| miette!("{error}"))?;
    eprintln!("{} live runs made, {} were there, {} left", progress.made, progress.known, progress.left);
    if progress.left > 0 {
        eprintln!("the budget leaves no time for the next: run the same command again to go on");
    }
    let report = session.report(&protocol);
    write_protocol(&report, &dir).map_err(|error| miette!("{error}"))?;
    session.write_raw(&dir).map_err(|error| miette!("{error}"))?;
    show::print(&format!("{}\nwritten to {}\n", protocol_text(&report), dir.display()))
}

/// Reads `600s`, `10m` or plain seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().or_else(|| duration::parse_seconds(text).ok());
    seconds.filter(|&seconds: &f64| seconds.is_finite() && seconds >= 0.0).ok_or("write it like 600s or 10m".into())
}
