//! Azure's LLM inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens`.

use std::io::Read;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder, Trim};

use crate::error::{Place, TracesError};
use crate::import::collector::{Collector, Record};
use crate::import::fields::{self, Fault, MUST_BE_TOKENS, Miss};
use crate::import::time_unit::Timestamp;
use crate::import::timestamp;
use crate::numbers::{MAX_TOKENS, parse_whole};

pub(super) const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// Reads a trace; columns are found by name, others are not looked at.
pub(super) fn read(path: &Path, reader: impl Read, collector: &mut Collector) -> Result<(), TracesError> {
    let csv_error = |source| TracesError::Csv { path: path.into(), source };
    // Flexible, so that a record with too few fields is one malformed record and not the end.
    let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(reader);
    let header = reader.byte_headers().map_err(csv_error)?.clone();
    let find = |name: &'static str| {
        header.iter().position(|column| column.eq_ignore_ascii_case(name.as_bytes())).ok_or_else(|| {
            let found: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
            let problem = format!("there is no column `{name}`; the file has: {}", found.join(", "));
            TracesError::Import { path: path.into(), problem }
        })
    };
    let columns = [find(COLUMNS[0])?, find(COLUMNS[1])?, find(COLUMNS[2])?];
    let mut record = ByteRecord::new();
    while !collector.is_full() && reader.read_byte_record(&mut record).map_err(csv_error)? {
        let place = Place::Line(record.position().map_or(0, |position| position.line()));
        collector.take(place, parse(&record, columns));
    }
    Ok(())
}

fn parse(record: &ByteRecord, columns: [usize; 3]) -> Result<Record, Miss> {
    let field = |index: usize| {
        let got = || "nothing".to_owned();
        record.get(columns[index]).ok_or_else(|| Fault::new(COLUMNS[index], "must be there", got()))
    };
    let fault = |index: usize, must, text: &[u8]| {
        Fault::new(COLUMNS[index], must, format!("`{}`", fields::shorten(&String::from_utf8_lossy(text))))
    };
    let time = field(0)?;
    let time_ns = std::str::from_utf8(time).ok().and_then(timestamp::parse);
    let time_ns = time_ns.ok_or_else(|| fault(0, "must be a time like 2023-11-16 18:15:46.680", time))?;
    let tokens = |index: usize| -> Result<u64, Fault> {
        let text = field(index)?;
        let tokens = std::str::from_utf8(text).ok().and_then(parse_whole);
        let tokens = tokens.and_then(|tokens| u64::try_from(tokens).ok());
        tokens.filter(|tokens| *tokens <= u64::from(MAX_TOKENS)).ok_or_else(|| fault(index, MUST_BE_TOKENS, text))
    };
    Ok(Record { prompt_tokens: tokens(1)?, output_tokens: tokens(2)?, time: Timestamp::whole(time_ns) })
}
