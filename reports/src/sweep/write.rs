//! Writes a sweep's files.

use std::path::{Path, PathBuf};

use super::page::table;
use super::plot::plot;
use super::table::{write_csv, write_parquet};
use super::{Sweep, SweepRow};
use crate::error::Result;
use crate::file::write_whole;
use crate::folder::Results;
use crate::html::{Drawn, Page};
use crate::table::render;

/// Rows of a scheduler that the terminal shows.
const TERMINAL_ROWS: usize = 40;

/// Rows of a scheduler that the page shows.
const PAGE_ROWS: usize = 1000;

/// What to print of a sweep: where each scheduler did best, and the table if it is short.
pub fn sweep_text(sweep: &Sweep) -> String {
    let mut text = format!("{}\n", sweep.title);
    for sentence in sweep.headline() {
        text.push_str(&format!("  {sentence}\n"));
    }
    if points(sweep) <= TERMINAL_ROWS {
        text.push('\n');
        render(&table(sweep, TERMINAL_ROWS), &mut text);
    }
    text
}

/// Writes `sweep.csv`, `sweep.parquet`, `scenario.yaml`, and with `plots` the plot and `report.html` into a folder; the results
/// of an earlier run go first.
///
/// The same sweep gives the same bytes. A file is whole or not there.
///
/// # Errors
/// The first file that could not be written or plot that could not be drawn; what was written before stands.
pub fn write_sweep(sweep: &Sweep, folder: &Path, plots: bool) -> Result<Vec<PathBuf>> {
    Results::Sweep.clear(folder)?;
    let mut written = vec![
        write_csv(sweep, &folder.join("sweep.csv"))?,
        write_parquet(sweep, &folder.join("sweep.parquet"))?,
        write_whole(&folder.join("scenario.yaml"), sweep.scenario_yaml.as_bytes())?,
    ];
    if !plots {
        return Ok(written);
    }
    let plot = plot(sweep);
    if let Some(plot) = &plot {
        written.extend(plot.figure.write(folder, plot.stem, true)?);
    }
    let drawn = plot.iter().map(|plot| Ok(Drawn { plot, svg: plot.figure.svg()? })).collect::<Result<Vec<_>>>()?;
    let mut notes = sweep.notes.clone();
    if points(sweep) > PAGE_ROWS {
        notes.push(format!("The table shows the first {PAGE_ROWS} points; sweep.csv and sweep.parquet have all."));
    }
    let tables = [("Points", table(sweep, PAGE_ROWS))];
    let page = Page {
        title: &sweep.title,
        headline: sweep.headline(),
        facts: &sweep.facts,
        tables: &tables,
        plots: &drawn,
        notes: &notes,
        yaml: ("The scenario, resolved", &sweep.scenario_yaml),
    };
    written.push(write_whole(&folder.join("report.html"), page.html().as_bytes())?);
    Ok(written)
}

fn points(sweep: &Sweep) -> usize {
    sweep.rows.iter().map(|SweepRow { point, .. }| point + 1).max().unwrap_or(0)
}
