//! Mooncake's traces: `{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [..]}` a line.

use std::io::BufRead;
use std::path::Path;

use crate::error::TracesError;
use crate::import::collector::{Collector, Record};
use crate::import::fields::{self, Fault};
use crate::import::json_records::JsonRecords;

/// Reads a trace. The prefix-cache block ids have no place in a workload: they are counted.
pub(super) fn read(path: &Path, reader: impl BufRead, collector: &mut Collector) -> Result<(), TracesError> {
    let io_error = |source| TracesError::Io { path: path.into(), source };
    let mut records = JsonRecords::new(reader).map_err(io_error)?;
    if let Some(problem) = records.fault() {
        return Err(TracesError::Import { path: path.into(), problem });
    }
    while let Some((place, cut)) = records.next().map_err(io_error)? {
        let cut = cut.map_err(|got| Fault::new("", "must be complete", got));
        match cut.and_then(parse) {
            Ok((record, hash_ids)) => {
                collector.tally.ignore("hash_ids", hash_ids);
                collector.take(place, Ok(record));
            }
            Err(fault) => collector.take(place, Err(fault.into())),
        }
        if collector.is_full() {
            break;
        }
    }
    Ok(())
}

fn parse(text: &[u8]) -> Result<(Record, u64), Fault> {
    let entry = fields::object(text)?;
    let time = entry.get("timestamp");
    let whole = time.and_then(|time| time.as_i64()).and_then(|ms| ms.checked_mul(1_000_000));
    // Far beyond any trace, and well within i64.
    let fractional = || time.and_then(|time| time.as_f64()).filter(|ms| ms.abs() < 4e12).map(|ms| (ms * 1e6) as i64);
    let time_ns = whole
        .or_else(fractional)
        .ok_or_else(|| Fault::new("timestamp", "must be a number of milliseconds", fields::describe(time)))?;
    let prompt_tokens = fields::tokens(entry.get("input_length"), "input_length")?;
    let output_tokens = fields::tokens(entry.get("output_length"), "output_length")?;
    let hash_ids = match entry.get("hash_ids") {
        None => 0,
        ids => fields::list(ids, "hash_ids")?.len() as u64,
    };
    Ok((Record { prompt_tokens, output_tokens, time_ns }, hash_ids))
}
