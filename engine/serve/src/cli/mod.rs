//! The command line: without a subcommand it is the server.

mod depths;
mod generate;
mod server;
mod write_random;

use clap::{Parser, Subcommand};

/// Serves a looped language model with adaptive depth to OpenAI's clients.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    server: server::ServerArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Continues one prompt: the text goes to stdout, statistics to stderr.
    Generate(generate::GenerateArguments),
    /// Writes a folder of random weights of a released shape, for trying.
    WriteRandom(write_random::WriteRandomArguments),
}

/// Why the program ends, and with what.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    /// What was asked for cannot be done.
    fn input(message: impl ToString) -> Self {
        Self { code: 2, message: message.to_string() }
    }

    /// Something broke on the way.
    fn run(message: impl ToString) -> Self {
        Self { code: 1, message: message.to_string() }
    }
}

/// Does what the arguments say.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Some(Command::Generate(arguments)) => generate::generate(&arguments),
        Some(Command::WriteRandom(arguments)) => write_random::write_random(&arguments),
        None => server::serve(&arguments.server),
    }
}

/// What runs beside the engine's thread.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::run(format!("threads could not be started: {error}")))
}
