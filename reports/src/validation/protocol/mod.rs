//! A protocol: a list of runs, each predicted and measured, and what they say together.

mod capacity;
mod figures;
mod table;
mod text;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

pub use capacity::{CapacityPair, Tested};
pub use text::protocol_text;

use super::{Validation, json};
use crate::error::{ReportError, Result};
use crate::file::write_whole;
use crate::folder::Results;
use crate::html::{Drawn, Page};
use crate::table::Table;

/// What a protocol gave.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Its name.
    pub title: String,
    /// What a reader must know to repeat it, as name and value.
    pub facts: Vec<(String, String)>,
    /// What a reader must know to judge it.
    pub notes: Vec<String>,
    /// The protocol's file.
    pub yaml: String,
    /// In the protocol's order.
    pub runs: Vec<ProtocolRun>,
    /// Online, the capacities of each group's schedulers.
    pub capacities: Vec<CapacityPair>,
}

/// One run of a protocol.
#[derive(Clone, Debug)]
pub struct ProtocolRun {
    /// Its name, unique in the protocol.
    pub name: String,
    /// Runs of one group belong into one plot.
    pub group: String,
    /// How important it is: 1 is run first.
    pub tier: u32,
    /// The fields that it sets in the base scenario.
    pub set: Map<String, Value>,
    /// Both sides; `None` if it has not been measured yet.
    pub validation: Option<Validation>,
}

/// A run in `validation.json`: a validation as a single one is written, and where it stands in the protocol.
#[derive(Serialize)]
struct RunJson<'a> {
    run: &'a str,
    group: &'a str,
    tier: u32,
    set: &'a Map<String, Value>,
    measured: bool,
    #[serde(flatten)]
    validation: Option<json::Root<'a>>,
}

impl Protocol {
    /// Runs that have been measured.
    fn measured(&self) -> impl Iterator<Item = (&ProtocolRun, &Validation)> {
        self.runs.iter().filter_map(|run| Some((run, run.validation.as_ref()?)))
    }

    fn json(&self) -> serde_json::Result<String> {
        json::render(&self.runs.iter().map(RunJson::of).collect::<Vec<_>>())
    }
}

impl<'a> RunJson<'a> {
    fn of(run: &'a ProtocolRun) -> Self {
        let validation = run.validation.as_ref().map(json::root);
        let measured = validation.is_some();
        Self { run: &run.name, group: &run.group, tier: run.tier, set: &run.set, measured, validation }
    }
}

/// Writes `validation.json`, `validation.csv`, plots and `report.html` into a folder, which is created; the results of
/// an earlier run go first.
///
/// The same protocol gives the same bytes. A file is whole or not there.
///
/// # Errors
/// The first file that could not be written or plot that could not be drawn; what was written before stands.
pub fn write_protocol(protocol: &Protocol, folder: &Path) -> Result<Vec<PathBuf>> {
    let path = folder.join("validation.json");
    let json = protocol.json().map_err(|source| ReportError::Json { path: path.clone(), source })?;
    Results::Protocol.clear(folder)?;
    let mut written = vec![
        write_whole(&path, json.as_bytes())?,
        write_whole(&folder.join("validation.csv"), table::pairs(protocol).csv().as_bytes())?,
    ];
    let plots = figures::plots(protocol);
    let mut drawn = Vec::new();
    for plot in &plots {
        written.extend(plot.figure.write(folder, plot.stem, true)?);
        drawn.push(Drawn { plot, svg: plot.figure.svg()? });
    }
    let tables: Vec<(&str, Table)> = [
        ("Capacity under the SLO", table::capacities(protocol)),
        ("Predictions and their tolerances", table::verdicts(protocol)),
    ]
    .into_iter()
    .filter(|(_, table)| !table.sections.is_empty())
    .collect();
    let page = Page {
        title: &protocol.title,
        headline: text::headline(protocol),
        facts: &protocol.facts,
        tables: &tables,
        plots: &drawn,
        notes: &protocol.notes,
        yaml: ("The protocol", &protocol.yaml),
    };
    written.push(write_whole(&folder.join("report.html"), page.html().as_bytes())?);
    Ok(written)
}
