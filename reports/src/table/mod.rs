//! The summary as tables, which the terminal and the page show alike.

mod latency;
mod overview;
mod text;

pub use text::summary_text;

use crate::definitions::Definition;
use crate::report::Report;

/// Stands for what was not measured.
pub(crate) const MISSING: &str = "–";

/// Rows under headings, all with the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Headers of the columns behind the row's name and unit.
    pub columns: Vec<String>,
    /// Groups of rows.
    pub sections: Vec<Section>,
}

/// Rows under a heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// What the heading means, if it is a metric.
    pub definition: Option<Definition>,
    /// The rows.
    pub rows: Vec<TableRow>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What it means, if it is a metric.
    pub definition: Option<Definition>,
    /// One cell a column.
    pub cells: Vec<String>,
}

/// The report's tables: an overview with a column per scheduler, and latencies with a row per scheduler.
pub fn tables(report: &Report) -> [Table; 2] {
    [overview::overview(report), latency::latencies(report)]
}
