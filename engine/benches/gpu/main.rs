//! Measures the CUDA engine: decode steps alone, whole bursts of requests, and logits for an outside reference.

mod burst;
mod core_step;
mod logits;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

type Failure = Box<dyn std::error::Error>;

/// Measures the CUDA engine.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Core steps on a cache full of noise: ms per loop beside the floor.
    CoreStep(core_step::Args),
    /// Requests that arrive at once, served by the real scheduler.
    Burst(burst::Args),
    /// Tokens and logits of one request, for a reference outside.
    Logits(logits::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::CoreStep(args) => core_step::main(&args),
        Command::Burst(args) => burst::main(&args),
        Command::Logits(args) => logits::main(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
