//! `serve write-random`.

use std::path::PathBuf;

use clap::Args;
use engine::architecture::Architecture;
use engine::models::folder::ModelFolder;

use super::Failure;

#[derive(Args)]
pub(super) struct WriteRandomArguments {
    /// The shape: ouro-1.4b, ouro-2.6b, huginn-3.5b, tiny-ouro or tiny-huginn.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Another seed, other weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A folder with the tokenizer's files, which are copied. Without a tokenizer a folder cannot be served.
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// The folder to write; new or empty.
    dir: PathBuf,
}

/// Files of a tokenizer; only the first must be there.
const TOKENIZER: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

pub(super) fn write_random(arguments: &WriteRandomArguments) -> Result<(), Failure> {
    let WriteRandomArguments { model, seed, tokenizer, dir } = arguments;
    let Some(architecture) = Architecture::builtin(model) else {
        let known = "ouro-1.4b, ouro-2.6b, huginn-3.5b, tiny-ouro and tiny-huginn";
        return Err(Failure::input(format!("--model: there is no shape `{model}`; there are {known}")));
    };
    if let Some(from) = tokenizer {
        // Checked before anything is written.
        serve::text::Tokenizer::open(from, architecture.vocab).map_err(Failure::input)?;
    }
    ModelFolder::write_random(&architecture, *seed, dir).map_err(Failure::input)?;
    let Some(from) = tokenizer else { return Ok(()) };
    for file in TOKENIZER.iter().map(|name| from.join(name)).filter(|file| file.exists()) {
        let to = dir.join(file.file_name().unwrap_or_default());
        std::fs::copy(&file, &to).map_err(|error| Failure::run(format!("{}: {error}", to.display())))?;
    }
    Ok(())
}
