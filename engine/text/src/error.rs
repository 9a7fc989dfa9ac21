//! Everything that can be wrong with a folder's text files, or with a text.

use std::path::PathBuf;

use thiserror::Error;

/// Why a tokenizer could not be opened, or a text not be turned into ids or back.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum TextError {
    /// A file of the folder could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A file could not be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A file of the folder is not what its name says.
    #[error("{path}: {problem}", path = path.display())]
    File { path: PathBuf, problem: String },
    /// The tokenizer makes ids that the model has no embedding for.
    #[error(
        "{path} has token ids up to {largest}, and the model's vocabulary has {vocab} ids (0 to {last}): \
         put the tokenizer that belongs to the model into its folder",
        path = path.display(),
        last = vocab.saturating_sub(1)
    )]
    Vocabulary { path: PathBuf, largest: u32, vocab: u64 },
    /// A text could not be encoded.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
    /// Ids could not be decoded.
    #[error("the token ids cannot be decoded: {0}")]
    Decode(String),
    /// A chat was asked of a folder without a template.
    #[error(
        "this model has no chat template: ask for a plain completion, or put a chat_template.jinja into its folder \
         (a list in tokenizer_config.json needs one that is named `default`)"
    )]
    NoTemplate,
    /// The chat template is wrong, or it refused the messages.
    #[error("chat template, line {line}: {problem}")]
    Template { line: usize, problem: String },
    /// Special tokens could not be told from text.
    #[error("the messages use every private-use character of Unicode, and one must be left over: remove one of them")]
    NoMark,
}
