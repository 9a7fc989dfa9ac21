//! Everything that can be wrong with a workload, said so that the reader knows what to change.

use std::fmt;
use std::path::PathBuf;

use engine::architecture::Family;
use engine::units::Depth;
use thiserror::Error;

/// Why a workload could not be built, read or written.
#[derive(Debug, Error)]
pub enum TracesError {
    /// A number of the scenario is out of range.
    #[error("{must}, got {got}")]
    Number {
        /// What it must be, as the start of a sentence.
        must: &'static str,
        /// What it is.
        got: f64,
    },
    /// No preset has this name.
    #[error("there is no exit preset `{name}`; there are {known}")]
    UnknownPreset {
        /// The name.
        name: String,
        /// The presets' names.
        known: String,
    },
    /// A preset of one family was asked for with a model of another.
    #[error("the exit preset `{name}` is a shape for {preset:?}, and the model is of the family {model:?}")]
    PresetFamily {
        /// The preset.
        name: &'static str,
        /// The preset's family.
        preset: Family,
        /// The model's family.
        model: Family,
    },
    /// A table of exit depths does not sum to one.
    #[error("the probabilities of `depths` must sum to 1 (within 1e-6), they sum to {sum}")]
    TableSum {
        /// The sum.
        sum: f64,
    },
    /// A table of exit depths has the depth 0.
    #[error("an exit depth counts loops from 1, `depths` has a 0")]
    TableDepthZero,
    /// A table of exit depths has a depth that the model or the overlap mode forbids.
    #[error("an exit at depth {depth} is not possible: this model and overlap mode allow {min} to {max}")]
    Depth {
        /// The depth.
        depth: Depth,
        /// The shallowest allowed.
        min: Depth,
        /// The deepest allowed.
        max: Depth,
    },
    /// Neither `lengths` nor `file`.
    #[error("a workload needs `lengths` (sharegpt, alpaca, arxiv or fixed) or a `file`")]
    NoLengths,
    /// Something reads a file and none is named.
    #[error("`{what}` reads the workload's file: set `workload.file`")]
    NeedsFile {
        /// The setting that reads it.
        what: &'static str,
    },
    /// Nothing ends the arrivals.
    #[error("nothing ends this workload: set `requests`, or the arrivals' `duration_s`")]
    Endless,
    /// More requests than a run can hold.
    #[error(
        "the arrivals make about {expected:.0} requests, more than {max}: lower rate_per_s or duration_s, or set `requests`"
    )]
    TooMany {
        /// Rate times duration.
        expected: f64,
        /// The most.
        max: u32,
    },
    /// The last arrival lies beyond what a run can count.
    #[error("the last request arrives after {last_s:.3e} s, later than {max_s:.0e} s: raise rate_per_s")]
    TooLate {
        /// The last arrival, in seconds.
        last_s: f64,
        /// The latest possible, in seconds.
        max_s: f64,
    },
    /// The arrivals' window closed before the first request.
    #[error("no request arrives within the arrivals' duration_s: raise it, or rate_per_s")]
    NoRequests,
    /// The length filter leaves hardly any request.
    #[error(
        "`max_total_tokens: {max_total_tokens}` leaves fewer than 1 in 100 {lengths} requests: raise it, or use `fixed` lengths"
    )]
    Filter {
        /// The filter.
        max_total_tokens: u32,
        /// The generator.
        lengths: &'static str,
    },
    /// A file's name has neither known ending.
    #[error("{}: a workload file's name ends in .csv or .parquet", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },
    /// The text is no CSV.
    #[error("{}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// The reason, with the line.
        source: csv::Error,
    },
    /// The file is no Parquet.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: polars::error::PolarsError,
    },
    /// A column that is needed is not there.
    #[error("{}: there is no column `{column}`{why}; the file has: {found}. Known columns are prompt_tokens, output_tokens, arrival_s, exit_depths", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// Who needs it.
        why: &'static str,
        /// The file's columns.
        found: String,
    },
    /// A column is there twice.
    #[error("{}: the column `{column}` is there twice", path.display())]
    TwiceColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A Parquet column has a type that cannot hold its values.
    #[error("{}: the column `{column}` holds {found}, and must hold {must}", path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What it must hold.
        must: &'static str,
        /// What it holds.
        found: String,
    },
    /// Each request is there once for each of several schedulers.
    #[error(
        "{}: it has every request once for each of {count} schedulers: name one (`workload.scheduler` in a scenario, --scheduler of \
         `traces`), of {known}",
        path.display()
    )]
    ManySchedulers {
        /// The file.
        path: PathBuf,
        /// How many.
        count: usize,
        /// Their names.
        known: String,
    },
    /// A scheduler was named that has no row.
    #[error("{}: it has no requests of a scheduler `{name}`; it has those of {known}", path.display())]
    UnknownScheduler {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A scheduler was named and rows have none.
    #[error("{}: it has no column `scheduler`, so its requests are not of `{name}`: name no scheduler", path.display())]
    NoSchedulers {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// A protocol's file has the requests of several live runs.
    #[error(
        "{}: it has the requests of `{scheduler}` once for each of its runs: put the rows of one into a file of its own, of {runs}",
        path.display()
    )]
    ManyRuns {
        /// The file.
        path: PathBuf,
        /// The scheduler.
        scheduler: String,
        /// The runs.
        runs: String,
    },
    /// No row.
    #[error("{}: the file holds no request", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// A foreign file as a whole is not what its format says.
    #[error("{}: {problem}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The tokenizer's file could not be read, or it refused a text.
    #[error("{}: {problem}", path.display())]
    Tokenizer {
        /// The tokenizer's file.
        path: PathBuf,
        /// Its reason.
        problem: String,
    },
    /// One field is wrong.
    #[error("{}, {place}, field `{field}`: {problem}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The line or row.
        place: Place,
        /// The column.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
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
