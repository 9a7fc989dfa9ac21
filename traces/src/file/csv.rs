//! CSV: read record by record, nothing but the wanted numbers kept.

use std::fs::File;
use std::path::Path;

use ::csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use crate::error::{Place, TracesError};
use crate::file::intake::Intake;
use crate::file::{ARRIVAL_S, OUTPUT_TOKENS, PROMPT_TOKENS};

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 16;

/// The header's names.
pub(super) fn columns(path: &Path) -> Result<Vec<String>, TracesError> {
    let mut reader = open(path)?;
    names(&mut reader).map_err(|source| TracesError::Csv { path: path.into(), source })
}

pub(super) fn read(intake: &mut Intake<'_>) -> Result<(), TracesError> {
    let path = intake.path;
    let csv_error = |source| TracesError::Csv { path: path.into(), source };
    let mut reader = open(path)?;
    let columns = intake.columns(&names(&mut reader).map_err(csv_error)?)?;

    let mut record = ByteRecord::new();
    while !intake.is_full() && reader.read_byte_record(&mut record).map_err(csv_error)? {
        let place = Place::Line(record.position().map_or(0, |position| position.line()));
        let field = |column: usize| record.get(column).unwrap_or_default();
        let prompt = intake.parsed(place, PROMPT_TOKENS, "a whole number", field(columns.prompt_tokens))?;
        let output = intake.parsed(place, OUTPUT_TOKENS, "a whole number", field(columns.output_tokens))?;
        intake.lengths(place, prompt, output)?;
        if let Some(column) = columns.arrival_s {
            let time_s = intake.parsed(place, ARRIVAL_S, "a number", field(column))?;
            intake.arrival(place, time_s)?;
        }
        if let Some(column) = columns.exit_depths {
            intake.exit_depths_text(place, field(column))?;
            intake.end_exit_depths(place)?;
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<Reader<File>, TracesError> {
    let file = File::open(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
    Ok(ReaderBuilder::new().trim(Trim::All).buffer_capacity(BUFFER_BYTES).from_reader(file))
}

fn names(reader: &mut Reader<File>) -> Result<Vec<String>, ::csv::Error> {
    Ok(reader.byte_headers()?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}
