//! `sim sweep` and `sim merge`.

use std::path::{Path, PathBuf};

use clap::Args;
use miette::{Report, miette};
use reports::Results;
use sim::scenario::load::Loaded;
use sim::study::sweep::{self, Journal, Points, Shard, SweepError};

use super::{Chosen, keep, show};

#[derive(Args)]
pub(super) struct SweepArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Runs only every n-th point, from point i (from 0), and leaves the table to `sim merge`.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
}

#[derive(Args)]
pub(super) struct MergeArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Folders that other machines wrote to, besides --out.
    #[arg(value_name = "DIR")]
    from: Vec<PathBuf>,
}

pub(super) fn serve(arguments: &SweepArguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
    run(&loaded, &arguments.chosen.out(&loaded), arguments.shard)
}

/// Runs what is missing; without a shard, writes the table too.
pub(super) fn run(loaded: &Loaded, dir: &Path, shard: Option<Shard>) -> Result<(), Report> {
    let points = points(loaded)?;
    let wanted = shard.unwrap_or(Shard::WHOLE);
    keep(points.inputs(), (Results::Sweep, dir), [Journal::path(dir, wanted)])?;
    let ran = sweep::complete(&points, dir, wanted).map_err(|error| show::sweep_error(error, loaded))?;
    let known = wanted.points(points.len()).count() - ran;
    eprintln!("{ran} points run, {known} were there");
    match shard {
        Some(shard) => show::print(&format!("shard {shard} is complete in {}\n", dir.display())),
        None => write(&points, loaded, dir, &[]),
    }
}

pub(super) fn merge(arguments: &MergeArguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
    let (points, dir) = (points(&loaded)?, arguments.chosen.out(&loaded));
    keep(points.inputs(), (Results::Sweep, &dir), [])?;
    write(&points, &loaded, &dir, &arguments.from)
}

fn points(loaded: &Loaded) -> Result<Points, Report> {
    let points = Points::new(loaded).map_err(|error| show::sweep_error(error.into(), loaded))?;
    points.ok_or_else(|| miette!("{}: nothing to sweep: name fields and values under `sweep:`", loaded.path.display()))
}

fn write(points: &Points, loaded: &Loaded, dir: &Path, from: &[PathBuf]) -> Result<(), Report> {
    let dirs: Vec<_> = [dir.to_owned()].into_iter().chain(from.iter().cloned()).collect();
    let swept = sweep::collect(points, loaded, &dirs).map_err(|error: SweepError| show::sweep_error(error, loaded))?;
    reports::write_sweep(&swept, dir, loaded.scenario.output.plots).map_err(|error| miette!("{error}"))?;
    show::print(&format!("{}\nwritten to {}\n", reports::sweep_text(&swept), dir.display()))
}
