//! Everything that can be wrong with a workload, said so that the reader knows what to change.

use std::fmt;
use std::path::PathBuf;

use engine::architecture::Family;
use engine::units::Depth;
use thiserror::Error;

/// Why a workload could not be built, read or written.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum TracesError {
    /// A number of the scenario is out of range.
    #[error("{must}, got {got}")]
    Number { must: &'static str, got: f64 },
    /// No preset has this name.
    #[error("there is no exit preset `{name}`; there are {known}")]
    UnknownPreset { name: String, known: String },
    /// A preset of one family was asked for with a model of another.
    #[error("the exit preset `{name}` is a shape for {preset:?}, and the model is of the family {model:?}")]
    PresetFamily { name: &'static str, preset: Family, model: Family },
    /// A table of exit depths does not sum to one.
    #[error("the probabilities of `depths` must sum to 1 (within 1e-6), they sum to {sum}")]
    TableSum { sum: f64 },
    /// A table of exit depths has the depth 0.
    #[error("an exit depth counts loops from 1, `depths` has a 0")]
    TableDepthZero,
    /// A table of exit depths has a depth that the model or the overlap mode forbids.
    #[error("an exit at depth {depth} is not possible: this model and overlap mode allow {min} to {max}")]
    Depth { depth: Depth, min: Depth, max: Depth },
    /// Neither `lengths` nor `file`.
    #[error("a workload needs `lengths` (sharegpt, alpaca, arxiv or fixed) or a `file`")]
    NoLengths,
    /// Something reads a file and none is named.
    #[error("`{what}` reads the workload's file: set `workload.file`")]
    NeedsFile { what: &'static str },
    /// What prompts begin with is said in two places.
    #[error(
        "{}: its column `pieces` says what its prompts begin with: remove `shared_prefixes`, or the column",
        path.display()
    )]
    PrefixesTwice { path: PathBuf },
    /// Nothing ends the arrivals.
    #[error("nothing ends this workload: set `requests`, or the arrivals' `duration_s`")]
    Endless,
    /// More requests than a run can hold.
    #[error(
        "the arrivals make about {expected:.0} requests, more than {max}: lower rate_per_s or duration_s, or set `requests`"
    )]
    TooMany { expected: f64, max: u32 },
    /// The last arrival lies beyond what a run can count.
    #[error("the last request arrives after {last_s:.3e} s, later than {max_s:.0e} s: raise rate_per_s")]
    TooLate { last_s: f64, max_s: f64 },
    /// The arrivals' window closed before the first request.
    #[error("no request arrives within the arrivals' duration_s: raise it, or rate_per_s")]
    NoRequests,
    /// The length filter leaves hardly any request.
    #[error(
        "`max_total_tokens: {max_total_tokens}` leaves fewer than 1 in 100 {lengths} requests: raise it, or use `fixed` lengths"
    )]
    Filter { max_total_tokens: u32, lengths: &'static str },
    /// A file's name has neither known ending.
    #[error("{}: a workload file's name ends in .csv or .parquet", path.display())]
    Extension { path: PathBuf },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The text is no CSV.
    #[error("{}: {source}", path.display())]
    Csv { path: PathBuf, source: csv::Error },
    /// The file is no Parquet.
    #[error("{}: {source}", path.display())]
    Parquet { path: PathBuf, source: polars::error::PolarsError },
    /// A column that is needed is not there.
    #[error("{}: there is no column `{column}`{why}; the file has: {found}. Known columns are prompt_tokens, output_tokens, arrival_s, exit_depths", path.display())]
    MissingColumn { path: PathBuf, column: &'static str, why: &'static str, found: String },
    /// A column is there twice.
    #[error("{}: the column `{column}` is there twice", path.display())]
    TwiceColumn { path: PathBuf, column: &'static str },
    /// A Parquet column has a type that cannot hold its values.
    #[error("{}: the column `{column}` holds {found}, and must hold {must}", path.display())]
    ColumnType { path: PathBuf, column: String, must: &'static str, found: String },
    /// Each request is there once for each of several schedulers.
    #[error(
        "{}: it has every request once for each of {count} schedulers: name one (`workload.scheduler` in a scenario, --scheduler of \
         `traces`), of {known}",
        path.display()
    )]
    ManySchedulers { path: PathBuf, count: usize, known: String },
    /// A scheduler was named that has no row.
    #[error("{}: it has no requests of a scheduler `{name}`; it has those of {known}", path.display())]
    UnknownScheduler { path: PathBuf, name: String, known: String },
    /// A scheduler was named and rows have none.
    #[error("{}: it has no column `scheduler`, so its requests are not of `{name}`: name no scheduler", path.display())]
    NoSchedulers { path: PathBuf, name: String },
    /// A protocol's file has the requests of several live runs.
    #[error(
        "{}: it has the requests of `{scheduler}` once for each of its runs: put the rows of one into a file of its own, of {runs}",
        path.display()
    )]
    ManyRuns { path: PathBuf, scheduler: String, runs: String },
    /// No row.
    #[error("{}: the file holds no request", path.display())]
    EmptyFile { path: PathBuf },
    /// A foreign file as a whole is not what its format says.
    #[error("{}: {problem}", path.display())]
    Import { path: PathBuf, problem: String },
    /// The tokenizer's file could not be read, or it refused a text.
    #[error("{}: {problem}", path.display())]
    Tokenizer { path: PathBuf, problem: String },
    /// One field is wrong.
    #[error("{}, {place}, field `{field}`: {problem}", path.display())]
    Field { path: PathBuf, place: Place, field: &'static str, problem: String },
}

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of text, from 1; the header counts.
    Line(u64),
    /// A row of a table, from 1.
    Row(u64),
    /// An element of a JSON list.
    Record {
        /// Which one, from 1.
        number: u64,
        /// The line where it begins, from 1.
        line: u64,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Row(row) => write!(f, "row {row}"),
            Self::Record { number, line } => write!(f, "record {number} (line {line})"),
        }
    }
}
