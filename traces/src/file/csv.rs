//! CSV: read record by record, nothing but the wanted numbers kept.

use std::fs::File;

use ::csv::{ByteRecord, ReaderBuilder, Trim};

use crate::error::{Place, TracesError};
use crate::file::intake::Intake;
use crate::file::{ARRIVAL_S, OUTPUT_TOKENS, PROMPT_TOKENS};

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 16;

pub(super) fn read(intake: &mut Intake<'_>) -> Result<(), TracesError> {
    let path = intake.path;
    let csv_error = |source| TracesError::Csv { path: path.into(), source };
    let file = File::open(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
    let mut reader = ReaderBuilder::new().trim(Trim::All).buffer_capacity(BUFFER_BYTES).from_reader(file);

    let header = reader.byte_headers().map_err(csv_error)?;
    let names: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let columns = intake.columns(&names)?;

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
