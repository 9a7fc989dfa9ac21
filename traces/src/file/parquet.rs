//! Parquet: read in slices of rows, so that a file of any size needs a few megabytes beside what is kept.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use polars::prelude::*;

use crate::error::{Place, TracesError};
use crate::file::intake::{Columns, Intake};
use crate::file::{ARRIVAL_S, EXIT_DEPTHS, OUTPUT_TOKENS, PROMPT_TOKENS};

/// Rows in a row group that we write, and rows read at once.
pub(super) const ROW_GROUP_ROWS: usize = 65_536;

/// The schema's names.
pub(super) fn columns(path: &Path) -> Result<Vec<String>, TracesError> {
    let file = File::open(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
    let mut reader = ParquetReader::new(file);
    let schema = reader.schema().map_err(|source| TracesError::Parquet { path: path.into(), source })?;
    Ok(schema.iter_names().map(ToString::to_string).collect())
}

pub(super) fn read(intake: &mut Intake<'_>) -> Result<(), TracesError> {
    let path = intake.path;
    let parquet_error = |source| TracesError::Parquet { path: path.into(), source };
    let open = || File::open(path).map_err(|source| TracesError::Io { path: path.into(), source });

    let mut reader = ParquetReader::new(open()?);
    let names: Vec<String> = reader.schema().map_err(parquet_error)?.iter_names().map(ToString::to_string).collect();
    let metadata = Arc::clone(reader.get_metadata().map_err(parquet_error)?);
    let columns = intake.columns(&names)?;
    let wanted = [Some(columns.prompt_tokens), Some(columns.output_tokens), columns.arrival_s, columns.exit_depths];
    let wanted: Vec<String> = wanted.into_iter().flatten().map(|column| names[column].clone()).collect();

    intake.reserve(metadata.num_rows);
    let mut first = 0;
    while first < metadata.num_rows && !intake.is_full() {
        let mut reader = ParquetReader::new(open()?)
            .with_columns(Some(wanted.clone()))
            .with_slice(Some((first, ROW_GROUP_ROWS)))
            .read_parallel(ParallelStrategy::None);
        reader.set_metadata(Arc::clone(&metadata));
        let slice = reader.finish().map_err(parquet_error)?;
        read_slice(intake, &columns, &slice, first as u64)?;
        first += ROW_GROUP_ROWS;
    }
    Ok(())
}

fn read_slice(intake: &mut Intake<'_>, columns: &Columns, slice: &DataFrame, first: u64) -> Result<(), TracesError> {
    let prompts = numbers(intake, slice, PROMPT_TOKENS)?;
    let outputs = numbers(intake, slice, OUTPUT_TOKENS)?;
    let arrivals = columns.arrival_s.map(|_| times(intake, slice)).transpose()?;
    let exits = columns.exit_depths.map(|_| ExitColumn::new(intake, slice)).transpose()?;
    for row in 0..slice.height() {
        if intake.is_full() {
            break;
        }
        let place = Place::Row(first + row as u64 + 1);
        let prompt = prompts.get(row).ok_or_else(|| missing(intake, place, PROMPT_TOKENS))?;
        let output = outputs.get(row).ok_or_else(|| missing(intake, place, OUTPUT_TOKENS))?;
        intake.lengths(place, prompt, output)?;
        if let Some(times) = &arrivals {
            let time_s = times.get(row).ok_or_else(|| missing(intake, place, ARRIVAL_S))?;
            intake.arrival(place, time_s)?;
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
}

impl ExitColumn {
    fn new(intake: &Intake<'_>, slice: &DataFrame) -> Result<Self, TracesError> {
        let parquet_error = |source| TracesError::Parquet { path: intake.path.into(), source };
        let column = slice.column(EXIT_DEPTHS).map_err(parquet_error)?.as_materialized_series();
        match column.dtype() {
            DataType::String => Ok(Self::Text(column.str().map_err(parquet_error)?.clone())),
            DataType::List(inner) if inner.is_integer() => {
                let lists = column.cast(&DataType::List(Box::new(DataType::Int64))).map_err(parquet_error)?;
                Ok(Self::Lists(lists.list().map_err(parquet_error)?.clone()))
            }
            other => Err(wrong_type(intake, EXIT_DEPTHS, "text or lists of integers", other)),
        }
    }

    /// A missing value lists no depth.
    fn read_row(&self, intake: &mut Intake<'_>, row: usize, place: Place) -> Result<(), TracesError> {
        match self {
            Self::Text(text) => intake.exit_depths_text(place, text.get(row).unwrap_or_default().as_bytes())?,
            Self::Lists(lists) => {
                let depths = lists.get_as_series(row).unwrap_or_default();
                let parquet_error = |source| TracesError::Parquet { path: intake.path.into(), source };
                for depth in depths.i64().map_err(parquet_error)?.iter() {
                    let depth = depth.ok_or_else(|| missing(intake, place, EXIT_DEPTHS))?;
                    intake.exit_depth(place, depth)?;
                }
            }
        }
        intake.end_exit_depths(place)
    }
}

/// A column of whole numbers.
fn numbers(intake: &Intake<'_>, slice: &DataFrame, name: &'static str) -> Result<Int64Chunked, TracesError> {
    let parquet_error = |source| TracesError::Parquet { path: intake.path.into(), source };
    let column = slice.column(name).map_err(parquet_error)?;
    if !column.dtype().is_integer() {
        return Err(wrong_type(intake, name, "integers", column.dtype()));
    }
    Ok(column.cast(&DataType::Int64).map_err(parquet_error)?.i64().map_err(parquet_error)?.clone())
}

/// A column of seconds.
fn times(intake: &Intake<'_>, slice: &DataFrame) -> Result<Float64Chunked, TracesError> {
    let parquet_error = |source| TracesError::Parquet { path: intake.path.into(), source };
    let column = slice.column(ARRIVAL_S).map_err(parquet_error)?;
    if !column.dtype().is_primitive_numeric() {
        return Err(wrong_type(intake, ARRIVAL_S, "numbers", column.dtype()));
    }
    Ok(column.cast(&DataType::Float64).map_err(parquet_error)?.f64().map_err(parquet_error)?.clone())
}

fn wrong_type(intake: &Intake<'_>, column: &'static str, must: &'static str, found: &DataType) -> TracesError {
    TracesError::ColumnType { path: intake.path.into(), column, must, found: found.to_string() }
}

fn missing(intake: &Intake<'_>, place: Place, field: &'static str) -> TracesError {
    intake.wrong(place, field, "has no value".into())
}
