//! `serve write-random`.

use std::path::PathBuf;

use clap::Args;
use engine::architecture::Architecture;
use engine::models::folder::ModelFolder;

use super::{Failure, byte_tokenizer};

#[derive(Args)]
pub(super) struct WriteRandomArguments {
    /// The shape, by name: ouro-1.4b, huginn-3.5b, tiny-ouro and others; a wrong name lists them all.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Another seed, other weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder to write; new or empty.
    dir: PathBuf,
}

pub(super) fn write_random(arguments: &WriteRandomArguments) -> Result<(), Failure> {
    let WriteRandomArguments { model, seed, dir } = arguments;
    let Some(architecture) = Architecture::builtin(model) else {
        let known = Architecture::BUILTIN.join(", ");
        return Err(Failure::input(format!("--model: there is no shape `{model}`; there are {known}")));
    };
    if architecture.vocab < byte_tokenizer::IDS {
        let (needs, has) = (byte_tokenizer::IDS, architecture.vocab);
        return Err(Failure::input(format!("--model {model}: it has {has} token ids, the folder's tokenizer {needs}")));
    }
    ModelFolder::write_random(&architecture, *seed, dir).map_err(Failure::input)?;
    byte_tokenizer::write(dir).map_err(Failure::run)?;
    eprintln!("{}: random weights of {model}, with a tokenizer of a token a byte", dir.display());
    Ok(())
}
