//! `traces convert`: CSV to Parquet and back.

use std::path::PathBuf;

use clap::Args;
use miette::Report;
use traces::file::{self, COLUMNS, Rows};

use crate::output::{print, show, written};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The workload file, .csv or .parquet.
    input: PathBuf,
    /// The file to write; its ending tells the format.
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Report> {
    let others: Vec<String> = file::columns(&arguments.input)
        .map_err(show)?
        .into_iter()
        .filter(|column| !COLUMNS.contains(&column.as_str()))
        .collect();
    if !others.is_empty() {
        eprintln!(
            "{}: left out, since a workload has no such columns: {}",
            arguments.input.display(),
            others.join(", ")
        );
    }
    let rows = Rows::read_all(&arguments.input).map_err(show)?;
    rows.write(&arguments.output).map_err(show)?;
    print(&written(&rows, &arguments.output))
}
