//! `serve`: an OpenAI-compatible server for looped language models.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cli::Failure { code, message }) => {
            eprintln!("serve: {message}");
            ExitCode::from(code)
        }
    }
}
