//! Importers: other people's files become workload rows.
//!
//! Text data sets ([`Source::ShareGpt`], [`Source::Alpaca`], [`Source::Arxiv`]) are counted with a user's tokenizer;
//! traces ([`Source::Azure`], [`Source::Mooncake`]) bring lengths and arrivals; a bundle ([`Source::Bundle`]) of the
//! Continuous Depth Batching authors brings lengths and recorded exits.
//!
//! Invariants: every record read is kept, left out for a stated reason, or malformed, and the [`Tally`] counts all
//! three; a malformed record is located and never ends an import. Only a file that is not of its format at all does.

mod azure;
mod bundle;
mod collector;
mod depth_rule;
mod detect;
mod fields;
mod hash_blocks;
mod json_records;
mod mooncake;
mod npz;
mod tally;
mod texts;
mod time_unit;
mod timestamp;
mod tokens;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use depth_rule::DepthRule;
pub use detect::detect;
pub use tally::{Problem, Tally};
pub use time_unit::TimeUnit;
pub use tokens::TokenCounter;

use crate::error::TracesError;
use crate::file::Rows;
use crate::import::collector::Collector;
use crate::lengths::generator::MIN_TOKENS;
use crate::numbers::{RequestCount, TokenCount};

/// A foreign format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A list of conversations.
    ShareGpt,
    /// A list of instructions with outputs.
    Alpaca,
    /// Articles with abstracts, one a line.
    Arxiv,
    /// `TIMESTAMP,ContextTokens,GeneratedTokens`.
    Azure,
    /// One object with timestamp and lengths a line: Mooncake's, and traces of chat sessions.
    Mooncake,
    /// The CDB authors' definition with its exit schedule.
    Bundle,
}

impl Format {
    /// All of them, by name.
    pub const NAMED: [(&str, Self); 6] = [
        ("sharegpt", Self::ShareGpt),
        ("alpaca", Self::Alpaca),
        ("arxiv", Self::Arxiv),
        ("azure", Self::Azure),
        ("mooncake", Self::Mooncake),
        ("bundle", Self::Bundle),
    ];

    /// Whether it holds texts, which a tokenizer has to count.
    pub fn is_text(self) -> bool {
        matches!(self, Self::ShareGpt | Self::Alpaca | Self::Arxiv)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMED.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let format = Self::NAMED.iter().find(|(name, _)| *name == text).map(|(_, format)| *format);
        format.ok_or_else(|| {
            let names: Vec<&str> = Self::NAMED.iter().map(|(name, _)| *name).collect();
            format!("a format is one of {}", names.join(", "))
        })
    }
}

/// A format with what reading it takes.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// [`Format::ShareGpt`].
    ShareGpt(&'a TokenCounter),
    /// [`Format::Alpaca`].
    Alpaca(&'a TokenCounter),
    /// [`Format::Arxiv`].
    Arxiv(&'a TokenCounter),
    /// [`Format::Azure`].
    Azure,
    /// [`Format::Mooncake`].
    Mooncake,
    /// [`Format::Bundle`].
    Bundle(DepthRule),
}

/// Which records to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// At most this many, the first ones of the file; what lies behind them is not read.
    pub limit: Option<RequestCount>,
    /// The fewest tokens of a prompt, and of an output.
    pub min_tokens: TokenCount,
    /// The most tokens of prompt and output together.
    pub max_total_tokens: Option<TokenCount>,
    /// What the numbers of [`Format::Mooncake`]'s timestamps count; told by the records if it is not given.
    pub time_unit: Option<TimeUnit>,
}

impl Options {
    /// The filter of the Continuous Depth Batching paper (Appendix C): 4 tokens each, 16,384 together.
    pub const PAPER: Self = Self {
        limit: None,
        min_tokens: TokenCount::new_const(MIN_TOKENS),
        max_total_tokens: Some(TokenCount::PAPER_CONTEXT),
        time_unit: None,
    };
}

impl Default for Options {
    /// Everything that has a prompt and an output.
    fn default() -> Self {
        Self { limit: None, min_tokens: TokenCount::new_const(1), max_total_tokens: None, time_unit: None }
    }
}

/// What an import gives.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The kept requests: in order of arrival if the format has timestamps, counted from the first; else in the file's.
    pub rows: Rows,
    /// What became of every record.
    pub tally: Tally,
    /// What the user should know of how the file was understood.
    pub remarks: Vec<String>,
    /// Every file that was read, the tokenizer's excepted.
    pub files: Vec<PathBuf>,
}

/// Imports a file; `progress` is told from time to time how much of how much has been read.
///
/// # Errors
/// The file cannot be read, is not of the format, or the tokenizer fails. A malformed record is none: see the tally.
/// Neither is a file of which nothing is kept: [`Rows::is_empty`].
pub fn import(
    path: &Path,
    source: Source<'_>,
    options: Options,
    progress: &dyn Fn(u64, u64),
) -> Result<Imported, TracesError> {
    let file = File::open(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
    let total = file.metadata().map_or(0, |metadata| metadata.len());
    let reader = BufReader::with_capacity(1 << 18, Watched { file, bytes: 0, total, progress });
    let mut collector = Collector::new(path, options, source);
    match source {
        Source::ShareGpt(counter) => texts::read(path, reader, texts::sharegpt, counter, &mut collector)?,
        Source::Alpaca(counter) => texts::read(path, reader, texts::alpaca, counter, &mut collector)?,
        Source::Arxiv(counter) => texts::read(path, reader, texts::arxiv, counter, &mut collector)?,
        Source::Azure => azure::read(path, reader, &mut collector)?,
        Source::Mooncake => mooncake::read(path, reader, options.time_unit, &mut collector)?,
        Source::Bundle(rule) => bundle::read(path, reader, rule, &mut collector, progress)?,
    }
    collector.finish(path)
}

/// Tells how far a file has been read.
struct Watched<'a, R> {
    file: R,
    bytes: u64,
    total: u64,
    progress: &'a dyn Fn(u64, u64),
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes += count as u64;
        (self.progress)(self.bytes, self.total);
        Ok(count)
    }
}
