//! Parquet: read in slices of rows, so that a file of any size needs a few megabytes beside what is kept.

mod numbers;
mod table;
mod types;

use std::path::Path;

use polars::prelude::*;

use self::numbers::Numbers;
use self::table::{Table, at};
use self::types::Kind;
use crate::error::{Place, TracesError};
use crate::file::intake::{Columns, Intake};
use crate::file::schedulers::{Parts, REPEAT, RUN};
use crate::file::{ARRIVAL_S, CANCEL_AFTER_S, EXIT_DEPTHS, OUTPUT_TOKENS, PIECES, PROMPT_TOKENS, REQUEST, SCHEDULER};

/// Rows in a row group that we write, and rows read at once.
pub(super) const ROW_GROUP_ROWS: usize = 65_536;

/// The schema's names.
pub(super) fn columns(path: &Path) -> Result<Vec<String>, TracesError> {
    Table::open(path)?.names()
}

/// Whose rows there are, in a file that says.
pub(super) fn parts(path: &Path) -> Result<Parts, TracesError> {
    let mut table = Table::open(path)?;
    let names = table.names()?;
    let wanted: Vec<&str> =
        [SCHEDULER, RUN, REPEAT].into_iter().filter(|name| names.iter().any(|n| n == name)).collect();
    for name in &wanted {
        table.check(name, Kind::Name)?;
    }
    let mut parts = Parts::default();
    for first in (0..table.rows()?).step_by(ROW_GROUP_ROWS) {
        let slice = table.slice(first, &wanted)?;
        let texts = |name: &str| if wanted.contains(&name) { texts(path, &slice, name).map(Some) } else { Ok(None) };
        let columns = [texts(SCHEDULER)?, texts(RUN)?, texts(REPEAT)?];
        for row in 0..slice.height() {
            let [scheduler, run, repeat] =
                columns.each_ref().map(|column| column.as_ref().map(|texts| texts.get(row).unwrap_or_default()));
            parts.add(scheduler.unwrap_or_default(), [run, repeat]);
        }
    }
    Ok(parts)
}

pub(super) fn read(intake: &mut Intake<'_>) -> Result<(), TracesError> {
    let mut table = Table::open(intake.path)?;
    let columns = intake.columns(&table.names()?)?;
    let wanted = [
        (Some(columns.prompt_tokens), PROMPT_TOKENS, Kind::Whole),
        (Some(columns.output_tokens), OUTPUT_TOKENS, Kind::Whole),
        (columns.arrival_s, ARRIVAL_S, Kind::Seconds),
        (columns.cancel_after_s, CANCEL_AFTER_S, Kind::Seconds),
        (columns.pieces, PIECES, Kind::Pieces),
        (columns.exit_depths, EXIT_DEPTHS, Kind::Depths),
        (columns.scheduler, SCHEDULER, Kind::Name),
        (columns.request, REQUEST, Kind::Whole),
    ];
    let wanted: Vec<_> = wanted.into_iter().filter_map(|(at, name, kind)| at.map(|_| (name, kind))).collect();
    for (name, kind) in &wanted {
        table.check(name, *kind)?;
    }
    let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
    let rows = table.rows()?;
    intake.reserve(rows);
    for first in (0..rows).step_by(ROW_GROUP_ROWS) {
        if intake.is_full() {
            break;
        }
        read_slice(intake, &columns, &table.slice(first, &names)?, first as u64)?;
    }
    Ok(())
}

fn read_slice(intake: &mut Intake<'_>, columns: &Columns, slice: &DataFrame, first: u64) -> Result<(), TracesError> {
    let path = intake.path;
    let prompts = numbers(path, slice, PROMPT_TOKENS)?;
    let outputs = numbers(path, slice, OUTPUT_TOKENS)?;
    let arrivals = columns.arrival_s.map(|_| numbers(path, slice, ARRIVAL_S)).transpose()?;
    let cancels = columns.cancel_after_s.map(|_| numbers(path, slice, CANCEL_AFTER_S)).transpose()?;
    let pieces = columns.pieces.map(|_| texts(path, slice, PIECES)).transpose()?;
    let exits = columns.exit_depths.map(|_| ExitColumn::new(path, slice)).transpose()?;
    let requests = columns.request.map(|_| numbers(path, slice, REQUEST)).transpose()?;
    let schedulers = columns.scheduler.map(|_| texts(path, slice, SCHEDULER)).transpose()?;
    for row in 0..slice.height() {
        if intake.is_full() {
            break;
        }
        if schedulers.as_ref().is_some_and(|names| !intake.takes(names.get(row).unwrap_or_default())) {
            continue;
        }
        let place = Place::Row(first + row as u64 + 1);
        let prompt = whole(intake, place, PROMPT_TOKENS, prompts.whole(row))?;
        let output = whole(intake, place, OUTPUT_TOKENS, outputs.whole(row))?;
        if let Some(requests) = &requests {
            let request = whole(intake, place, REQUEST, requests.whole(row))?;
            intake.request(request);
        }
        intake.lengths(place, prompt, output)?;
        if let Some(times) = &arrivals {
            let time_s = times.float(row).ok_or_else(|| missing(intake, place, ARRIVAL_S))?;
            intake.arrival(place, time_s)?;
        }
        if let Some(times) = &cancels {
            intake.cancel_after(place, times.float(row))?;
        }
        if let Some(pieces) = &pieces {
            intake.pieces(place, pieces.get(row).unwrap_or_default())?;
        }
        if let Some(exits) = &exits {
            exits.read_row(intake, row, place)?;
        }
    }
    Ok(())
}

/// `exit_depths` in either form.
enum ExitColumn {
    Text(StringChunked),
    Lists(ListChunked),
    /// A column of no type lists nothing.
    Absent,
}

impl ExitColumn {
    fn new(path: &Path, slice: &DataFrame) -> Result<Self, TracesError> {
        let column = slice.column(EXIT_DEPTHS).map_err(at(path))?.as_materialized_series();
        Ok(match column.dtype() {
            DataType::Null => Self::Absent,
            DataType::String => Self::Text(column.str().map_err(at(path))?.clone()),
            _ => Self::Lists(column.list().map_err(at(path))?.clone()),
        })
    }

    /// A missing value lists no depth.
    fn read_row(&self, intake: &mut Intake<'_>, row: usize, place: Place) -> Result<(), TracesError> {
        match self {
            Self::Text(text) => intake.exit_depths_text(place, text.get(row).unwrap_or_default().as_bytes())?,
            Self::Lists(lists) => {
                let depths = lists.get_as_series(row).map(|depths| Numbers::of(&depths)).transpose();
                let depths = depths.map_err(at(intake.path))?.unwrap_or(Numbers::Absent);
                for token in 0..depths.len() {
                    let depth = whole(intake, place, EXIT_DEPTHS, depths.whole(token))?;
                    intake.exit_depth(place, depth)?;
                }
            }
            Self::Absent => {}
        }
        intake.end_exit_depths(place)
    }
}

/// A column of numbers.
fn numbers(path: &Path, slice: &DataFrame, name: &str) -> Result<Numbers, TracesError> {
    let column = slice.column(name).map_err(at(path))?;
    Numbers::of(column.as_materialized_series()).map_err(at(path))
}

/// A column of names, or of numbers that serve as names.
fn texts(path: &Path, slice: &DataFrame, name: &str) -> Result<StringChunked, TracesError> {
    let column = slice.column(name).and_then(|column| column.cast(&DataType::String)).map_err(at(path))?;
    Ok(column.str().map_err(at(path))?.clone())
}

fn whole(
    intake: &Intake<'_>,
    place: Place,
    field: &'static str,
    number: Option<Result<i64, String>>,
) -> Result<i64, TracesError> {
    let number = number.ok_or_else(|| missing(intake, place, field))?;
    number.map_err(|got| intake.wrong(place, field, format!("must be a whole number, got {got}")))
}

fn missing(intake: &Intake<'_>, place: Place, field: &'static str) -> TracesError {
    intake.wrong(place, field, "has no value".into())
}
