//! `traces convert`: CSV to Parquet and back.

use std::path::PathBuf;

use clap::Args;
use miette::Report;
use traces::file::{self, COLUMNS, Rows};

use crate::output::{keep_inputs, print, show, written};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The workload file, .csv or .parquet.
    input: PathBuf,
    /// The file to write; its ending tells the format.
    output: PathBuf,
    /// Whose requests to take, of a file that has those of several schedulers.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Report> {
    keep_inputs([&arguments.input], [&arguments.output])?;
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
    let rows = Rows::read_all(&arguments.input, arguments.scheduler.as_deref()).map_err(show)?;
    rows.write(&arguments.output).map_err(show)?;
    print(&written(&rows, &arguments.output))
}
