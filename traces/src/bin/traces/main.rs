//! `traces`: imports, generates, inspects and converts workload files.
//!
//! Results go to stdout, progress and remarks to stderr. Exit code 2: bad input, and then no file was written.

mod cdf;
mod convert;
mod generate;
mod import;
mod inspect;
mod output;
mod progress;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Workload files for the simulator: what arrives, how long it is, where it exits.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a workload file from ShareGPT, Alpaca, ArXiv, an Azure or Mooncake trace, or a recorded bundle.
    Import(import::Arguments),
    /// Write a generated workload to a file, with lengths, arrivals and exits as a scenario would draw them.
    Generate(generate::Arguments),
    /// Show a workload file's statistics; plot and tabulate the distribution of its lengths.
    Inspect(inspect::Arguments),
    /// Write a workload file as CSV or Parquet.
    Convert(convert::Arguments),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Import(arguments) => import::run(&arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(report) => {
            eprintln!("{report:?}");
            ExitCode::from(2)
        }
    }
}
