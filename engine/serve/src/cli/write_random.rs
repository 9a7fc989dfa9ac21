//! `serve write-random`.

use std::path::PathBuf;

use clap::Args;
use engine::architecture::Architecture;
use engine::live::weights::folder::ModelFolder;
use serve::text;

use super::Failure;

#[derive(Args)]
pub(super) struct WriteRandomArguments {
    /// The shape: a released model's, such as ouro-1.4b or huginn-3.5b, or a tiny one's, such as tiny-ouro.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Another seed, other weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder to write; new or empty.
    dir: PathBuf,
}

/// Random weights, with a tokenizer that knows bytes only.
pub(super) fn write_random(arguments: &WriteRandomArguments) -> Result<(), Failure> {
    let WriteRandomArguments { model, seed, dir } = arguments;
    let Some(architecture) = Architecture::builtin(model) else {
        let known = Architecture::BUILTIN.join(", ");
        return Err(Failure::input(format!("--model: there is no shape `{model}`; there are {known}")));
    };
    ModelFolder::write_random(&architecture, *seed, dir).map_err(Failure::input)?;
    text::write_every_byte(dir).map_err(Failure::run)
}
