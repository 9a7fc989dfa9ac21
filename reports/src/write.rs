//! Writes a report's files.

use std::path::{Path, PathBuf};

use crate::error::{ReportError, Result};
use crate::file::write_whole;
use crate::headline::headline;
use crate::html::{Drawn, Page};
use crate::plots::plots;
use crate::report::Report;
use crate::summary::summary_json;
use crate::table::tables;

/// Which files are written besides `summary.json` and `scenario.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Plots as SVG.
    pub plots: bool,
    /// Plots as PNG, too.
    pub png: bool,
    /// `report.html`, with the plots if they are on.
    pub html: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { plots: true, png: true, html: true }
    }
}

/// Writes a report into a folder, which is created, and returns what was written, in that order: data, plots, page.
///
/// The same report gives the same bytes. A file is whole or not there.
///
/// # Errors
/// The first file that could not be written or plot that could not be drawn; what was written before stands.
pub fn write(report: &Report, folder: &Path, options: WriteOptions) -> Result<Vec<PathBuf>> {
    let summary = folder.join("summary.json");
    let json = summary_json(report).map_err(|source| ReportError::Json { path: summary.clone(), source })?;
    let mut written = vec![
        write_whole(&summary, json.as_bytes())?,
        write_whole(&folder.join("scenario.yaml"), report.scenario_yaml.as_bytes())?,
    ];
    let plots = if options.plots { plots(report) } else { Vec::new() };
    let mut drawn = Vec::new();
    for plot in &plots {
        written.extend(plot.figure.write(folder, plot.stem, options.png)?);
        drawn.push(Drawn { plot, svg: plot.figure.svg()? });
    }
    if options.html {
        let [overview, latencies] = tables(report);
        let page = Page {
            title: &report.title,
            headline: headline(report),
            facts: &report.facts,
            tables: &[("Summary", overview), ("Latency", latencies)],
            plots: &drawn,
            notes: &report.notes,
            yaml: ("The scenario, resolved", &report.scenario_yaml),
        };
        written.push(write_whole(&folder.join("report.html"), page.html().as_bytes())?);
    }
    Ok(written)
}
