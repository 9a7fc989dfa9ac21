//! CSV: read record by record, nothing but the wanted numbers kept.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use ::csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use crate::error::{Place, TracesError};
use crate::file::intake::Intake;
use crate::file::schedulers::{Parts, REPEAT, RUN};
use crate::file::{ARRIVAL_S, CANCEL_AFTER_S, OUTPUT_TOKENS, PROMPT_TOKENS, REQUEST, SCHEDULER};
use crate::numbers::parse_whole;

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 16;

/// The header's names.
pub(super) fn columns(path: &Path) -> Result<Vec<String>, TracesError> {
    let mut reader = open(path)?;
    names(&mut reader).map_err(|source| TracesError::Csv { path: path.into(), source })
}

/// Whose rows there are, in a file that says.
pub(super) fn parts(path: &Path) -> Result<Parts, TracesError> {
    let csv_error = |source| TracesError::Csv { path: path.into(), source };
    let mut reader = open(path)?;
    let names = names(&mut reader).map_err(csv_error)?;
    let [scheduler, run, repeat] = [SCHEDULER, RUN, REPEAT].map(|name| names.iter().position(|other| other == name));
    let mut parts = Parts::default();
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(csv_error)? {
        let field = |column: Option<usize>| column.map(|column| text(&record, column));
        let [run, repeat] = [field(run), field(repeat)];
        parts.add(&field(scheduler).unwrap_or_default(), [run.as_deref(), repeat.as_deref()]);
    }
    Ok(parts)
}

pub(super) fn read(intake: &mut Intake<'_>) -> Result<(), TracesError> {
    let path = intake.path;
    let csv_error = |source| TracesError::Csv { path: path.into(), source };
    let mut reader = open(path)?;
    let columns = intake.columns(&names(&mut reader).map_err(csv_error)?)?;

    let mut record = ByteRecord::new();
    while !intake.is_full() && reader.read_byte_record(&mut record).map_err(csv_error)? {
        let place = Place::Line(record.position().map_or(0, |position| position.line()));
        if columns.scheduler.is_some_and(|column| !intake.takes(&text(&record, column))) {
            continue;
        }
        let field = |column: usize| record.get(column).unwrap_or_default();
        let whole = |name, column: usize| intake.parsed(place, name, "a whole number", field(column), parse_whole);
        let prompt = whole(PROMPT_TOKENS, columns.prompt_tokens)?;
        let output = whole(OUTPUT_TOKENS, columns.output_tokens)?;
        let request = columns.request.map(|column| whole(REQUEST, column)).transpose()?;
        request.into_iter().for_each(|request| intake.request(request));
        intake.lengths(place, prompt, output)?;
        if let Some(column) = columns.arrival_s {
            let time_s = intake.parsed(place, ARRIVAL_S, "a number", field(column), |text| text.parse().ok())?;
            intake.arrival(place, time_s)?;
        }
        if let Some(column) = columns.cancel_after_s {
            let text = field(column);
            let parse = |text: &str| text.parse().ok();
            let time_s = (!text.is_empty()).then(|| intake.parsed(place, CANCEL_AFTER_S, "a number", text, parse));
            intake.cancel_after(place, time_s.transpose()?)?;
        }
        if let Some(column) = columns.pieces {
            intake.pieces(place, &text(&record, column))?;
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

fn text(record: &ByteRecord, column: usize) -> Cow<'_, str> {
    String::from_utf8_lossy(record.get(column).unwrap_or_default())
}

fn names(reader: &mut Reader<File>) -> Result<Vec<String>, ::csv::Error> {
    Ok(reader.byte_headers()?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}
