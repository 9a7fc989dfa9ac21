//! The files of a study: one table, its numbers for scripts, and plots.

use std::path::Path;

use serde::Serialize;

use crate::chart::Figure;
use crate::error::{ReportError, Result};
use crate::file::write_whole;
use crate::folder::Results;
use crate::grid::Grid;

/// A table and what belongs to it.
#[derive(Clone, Debug)]
pub struct Study<S> {
    /// The table's file name without extension.
    pub name: &'static str,
    /// What was found.
    pub grid: Grid,
    /// The same for scripts, as `summary.json`.
    pub summary: S,
    /// The resolved scenario.
    pub scenario_yaml: String,
    /// Plots with their file names without extension.
    pub figures: Vec<(&'static str, Figure)>,
}

impl<S: Serialize> Study<S> {
    /// Writes `<name>.csv`, `summary.json`, `scenario.yaml` and the plots into a folder, which is created; an earlier study of
    /// the name goes first.
    ///
    /// # Errors
    /// The first file that could not be written or plot that could not be drawn; what was written before stands.
    pub fn write(&self, folder: &Path) -> Result<()> {
        Results::Study(self.name).clear(folder)?;
        write_whole(&folder.join(format!("{}.csv", self.name)), self.grid.csv().as_bytes())?;
        let path = folder.join("summary.json");
        let json = serde_json::to_string_pretty(&self.summary);
        let json = json.map_err(|source| ReportError::Json { path: path.clone(), source })? + "\n";
        write_whole(&path, json.as_bytes())?;
        write_whole(&folder.join("scenario.yaml"), self.scenario_yaml.as_bytes())?;
        self.figures.iter().try_for_each(|(stem, figure)| figure.write(folder, stem, true).map(drop))
    }
}
