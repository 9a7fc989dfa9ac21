//! Mooncake's traces and those shaped like them: `{"timestamp": .., "input_length": n, "output_length": n, "hash_ids": [..]}` a
//! line. Mooncake's own timestamps are milliseconds; others have `chat_id` and `parent_chat_id`, and seconds.

use std::io::BufRead;
use std::path::Path;

use serde_json::Value;

use crate::error::TracesError;
use crate::import::collector::{Collector, Record};
use crate::import::fields::{self, Fault};
use crate::import::json_records::JsonRecords;
use crate::import::time_unit::{Seen, TimeUnit, Timestamp};

/// What of a line becomes a record, and what tells the unit.
struct Line {
    record: Record,
    hash_ids: HashIds,
    chat_id: bool,
}

/// A line's prefix-cache block ids.
enum HashIds {
    Numbers(Vec<u64>),
    /// So many of what cannot be used.
    Other(u64),
}

/// Reads a trace. Its prefix-cache block ids become what prompts begin with.
pub(super) fn read(
    path: &Path,
    reader: impl BufRead,
    unit: Option<TimeUnit>,
    collector: &mut Collector,
) -> Result<(), TracesError> {
    let io_error = |source| TracesError::Io { path: path.into(), source };
    let mut records = JsonRecords::new(reader).map_err(io_error)?;
    if let Some(problem) = records.fault() {
        return Err(TracesError::Import { path: path.into(), problem });
    }
    let mut seen = Seen::default();
    while let Some((place, cut)) = records.next().map_err(io_error)? {
        let cut = cut.map_err(|got| Fault::new("", "must be complete", got));
        match cut.and_then(parse) {
            Ok(Line { record, hash_ids, chat_id }) => {
                seen.add(record.time, chat_id);
                match hash_ids {
                    HashIds::Numbers(ids) => collector.take_with_blocks(place, Ok(record), &ids),
                    HashIds::Other(count) => {
                        collector.tally.ignore("hash_ids", count);
                        collector.take_with_blocks(place, Ok(record), &[]);
                    }
                }
            }
            Err(fault) => collector.take_with_blocks(place, Err(fault.into()), &[]),
        }
        if collector.is_full() {
            break;
        }
    }
    let told = seen.unit(unit).map_err(|problem| TracesError::Import { path: path.into(), problem })?;
    collector.time_unit = told.unit;
    collector.remarks.extend(told.remark);
    Ok(())
}

fn parse(text: &[u8]) -> Result<Line, Fault> {
    let entry = fields::object(text)?;
    let time = entry.get("timestamp");
    let time = Timestamp::parse(time).ok_or_else(|| {
        Fault::new("timestamp", "must be a number of milliseconds or seconds", fields::describe(time))
    })?;
    let prompt_tokens = fields::tokens(entry.get("input_length"), "input_length")?;
    let output_tokens = fields::tokens(entry.get("output_length"), "output_length")?;
    let hash_ids = match entry.get("hash_ids") {
        None | Some(Value::Null) => HashIds::Numbers(Vec::new()),
        ids => {
            let ids = fields::list(ids, "hash_ids")?;
            let numbers = ids.iter().map(fields::whole).collect::<Option<_>>();
            numbers.map_or(HashIds::Other(ids.len() as u64), HashIds::Numbers)
        }
    };
    let chat_id = ["chat_id", "parent_chat_id"].iter().any(|field| entry.contains_key(*field));
    Ok(Line { record: Record { prompt_tokens, output_tokens, time }, hash_ids, chat_id })
}
