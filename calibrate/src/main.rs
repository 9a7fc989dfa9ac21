//! `calibrate`: times a model on this machine, or fits a table of times; a profile and tables come out.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod command;

use command::{AdjustArgs, CheckArgs, CompareArgs, FitArgs, MeasureArgs};

/// Measures how long a looped model's steps take on a device, and writes a profile for the simulator.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: Option<MeasureArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Fit a profile to a CSV of measurements (its columns are described in calibrate/README.md).
    Fit(FitArgs),
    /// Time points that no calibration fits, and say whether a profile still holds on this machine: exit code 1 if not.
    Check(CheckArgs),
    /// Compare a profile with a table of times that it was not fitted to: exit code 1 if it does not hold.
    Compare(CompareArgs),
    /// Scale a profile to a few times of another device of the same kind.
    Adjust(AdjustArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli { command: Some(Command::Fit(args)), .. } => command::fit(&args).map(|()| true),
        Cli { command: Some(Command::Check(args)), .. } => command::check(&args),
        Cli { command: Some(Command::Compare(args)), .. } => command::compare(&args),
        Cli { command: Some(Command::Adjust(args)), .. } => command::adjust(&args).map(|()| true),
        Cli { measure: Some(args), .. } => command::measure(&args).map(|()| true),
        // clap shows the help where there is neither.
        Cli { .. } => Ok(true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{:?}", miette::miette!("{error}"));
            ExitCode::from(2)
        }
    }
}
