//! Workload files: `prompt_tokens,output_tokens[,arrival_s][,cancel_after_s][,pieces][,exit_depths]` as CSV or Parquet.
//!
//! One row a request, in order of arrival. `arrival_s` counts seconds from the run's start. `exit_depths` has one depth
//! per decoded token after the first (so `output_tokens - 1`), separated by spaces; in Parquet it may also be a list of
//! integers. `pieces` says what a prompt begins with ([`crate::pieces`]). Columns are found by name; other columns are ignored, and so are these two unless the scenario uses them.
//! A file with a `scheduler` column is read for one scheduler, and in the order of its `request` column if it has one: a run writes
//! its requests in the order in which they finish.

mod csv;
mod intake;
mod parquet;
mod schedulers;
pub mod write;

use std::path::Path;

use engine::content::Piece;
use engine::units::Nanos;

use crate::error::TracesError;
use crate::exits::AllowedExits;
use crate::exits::replay::RecordedExits;
use crate::file::intake::Intake;
use crate::file::write::{Contents, FileWriter, RecordedRequest};
use crate::lengths::Pair;
use crate::pieces::RecordedPieces;

/// The known columns.
pub const COLUMNS: [&str; 6] = [PROMPT_TOKENS, OUTPUT_TOKENS, ARRIVAL_S, CANCEL_AFTER_S, PIECES, EXIT_DEPTHS];

const PROMPT_TOKENS: &str = "prompt_tokens";
const OUTPUT_TOKENS: &str = "output_tokens";
const ARRIVAL_S: &str = "arrival_s";
const CANCEL_AFTER_S: &str = "cancel_after_s";
const PIECES: &str = "pieces";
const EXIT_DEPTHS: &str = "exit_depths";
const SCHEDULER: &str = "scheduler";
const REQUEST: &str = "request";

/// A workload file in memory: 8 bytes a request, 8 more for its arrival, 16 where some are cancelled, and one per decoded
/// token for exits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    pub(crate) lengths: Vec<Pair>,
    pub(crate) arrivals: Option<Vec<Nanos>>,
    /// How long after its arrival each client gives up, if the file says.
    pub(crate) cancels: Option<Vec<Option<Nanos>>>,
    /// What prompts have in common, if the file says.
    pub(crate) pieces: Option<RecordedPieces>,
    pub(crate) exits: Option<RecordedExits>,
}

/// What to read of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// `arrival_s`.
    pub arrivals: bool,
    /// `exit_depths`, and which depths are allowed.
    pub exits: Option<AllowedExits>,
    /// At most this many rows; later ones are not looked at.
    pub requests: Option<u32>,
    /// Rows of this scheduler; `None` if the file has rows of one or of none.
    pub scheduler: Option<&'a str>,
}

impl Rows {
    /// Reads a .csv or .parquet file and checks every row that it takes. At least one row.
    ///
    /// Errors name the file, the line (or row) and the field.
    pub fn read(path: &Path, wanted: Wanted<'_>) -> Result<Self, TracesError> {
        let format = Format::of(path)?;
        let mut intake = Intake::new(path, wanted, scheduler(path, wanted.scheduler)?);
        match format {
            Format::Csv => csv::read(&mut intake)?,
            Format::Parquet => parquet::read(&mut intake)?,
        }
        intake.finish()
    }

    /// Reads all that a file has (of one scheduler, see [`Wanted::scheduler`]), whatever a scenario would want of it.
    pub fn read_all(path: &Path, scheduler: Option<&str>) -> Result<Self, TracesError> {
        let columns = columns(path)?;
        let has = |name| columns.iter().any(|column| column == name);
        let exits = has(EXIT_DEPTHS).then_some(AllowedExits::ANY);
        Self::read(path, Wanted { arrivals: has(ARRIVAL_S), exits, requests: None, scheduler })
    }

    /// Writes a .csv or .parquet file with the columns that there are.
    pub fn write(&self, path: &Path) -> Result<(), TracesError> {
        let contents = Contents {
            arrivals: self.arrivals.is_some(),
            cancels: self.cancels.is_some(),
            pieces: self.has_pieces(),
            exits: self.exits.is_some(),
        };
        let mut writer = FileWriter::create(path, contents)?;
        for (row, &(prompt_tokens, output_tokens)) in self.lengths.iter().enumerate() {
            let arrival = self.arrival(row).unwrap_or(Nanos::ZERO);
            let exit_depths = self.exits.as_ref().map_or(&[][..], |exits| exits.of(row));
            let cancel_after = self.cancel_after(row);
            let pieces = self.pieces(row);
            writer.push(&RecordedRequest {
                prompt_tokens,
                output_tokens,
                arrival,
                cancel_after,
                pieces,
                exit_depths,
            })?;
        }
        writer.finish()
    }

    /// Some of the rows, in this order.
    fn in_order(&self, rows: &[usize]) -> Self {
        Self {
            lengths: rows.iter().map(|&row| self.lengths[row]).collect(),
            arrivals: self.arrivals.as_ref().map(|arrivals| rows.iter().map(|&row| arrivals[row]).collect()),
            cancels: self.cancels.as_ref().map(|cancels| rows.iter().map(|&row| cancels[row]).collect()),
            pieces: self.pieces.as_ref().map(|pieces| pieces.in_order(rows)),
            exits: self.exits.as_ref().map(|exits| exits.in_order(rows)),
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Never true of a file that was read.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Prompt and output length of a row, `None` behind the last.
    pub fn lengths(&self, row: usize) -> Option<Pair> {
        self.lengths.get(row).copied()
    }

    /// Arrival of a row; `None` behind the last, or if arrivals were not wanted.
    pub fn arrival(&self, row: usize) -> Option<Nanos> {
        self.arrivals.as_ref()?.get(row).copied()
    }

    /// How long after its arrival a row's client gives up, if it does.
    pub fn cancel_after(&self, row: usize) -> Option<Nanos> {
        self.cancels.as_ref()?.get(row).copied().flatten()
    }

    /// What a row's prompt begins with.
    pub fn pieces(&self, row: usize) -> &[Piece] {
        self.pieces.as_ref().map_or(&[], |pieces| pieces.of(row))
    }

    /// Whether the file says what prompts begin with.
    pub fn has_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    /// Exit depths, if they were wanted.
    pub fn exits(&self) -> Option<&RecordedExits> {
        self.exits.as_ref()
    }

    /// Takes the exit depths out, if they were wanted.
    pub fn take_exits(&mut self) -> Option<RecordedExits> {
        self.exits.take()
    }
}

/// Fails early where writing this file would fail late: a name of neither format, or a folder that is not there.
pub fn check_output(path: &Path) -> Result<(), TracesError> {
    Format::of(path)?;
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => match std::fs::metadata(folder) {
            Ok(_) => Ok(()),
            Err(source) => Err(TracesError::Io { path: folder.into(), source }),
        },
        None => Ok(()),
    }
}

/// The names of a workload file's columns, known or not.
pub fn columns(path: &Path) -> Result<Vec<String>, TracesError> {
    match Format::of(path)? {
        Format::Csv => csv::columns(path),
        Format::Parquet => parquet::columns(path),
    }
}

/// Whose rows of a file are read; `None` if its rows are nobody's.
fn scheduler(path: &Path, asked: Option<&str>) -> Result<Option<String>, TracesError> {
    if !columns(path)?.iter().any(|column| column == SCHEDULER) {
        return match asked {
            Some(name) => Err(TracesError::NoSchedulers { path: path.into(), name: name.into() }),
            None => Ok(None),
        };
    }
    let parts = match Format::of(path)? {
        Format::Csv => csv::parts(path)?,
        Format::Parquet => parquet::parts(path)?,
    };
    parts.choose(path, asked).map(Some)
}

/// A file format, told by the name's ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Parquet,
}

impl Format {
    fn of(path: &Path) -> Result<Self, TracesError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some(ending) if ending.eq_ignore_ascii_case("csv") => Ok(Self::Csv),
            Some(ending) if ending.eq_ignore_ascii_case("parquet") => Ok(Self::Parquet),
            _ => Err(TracesError::Extension { path: path.into() }),
        }
    }
}
