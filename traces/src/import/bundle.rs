//! The CDB authors' workloads: `<name>.json` and, beside it, `<name>.exit_pdf.npz`.
//!
//! The definition is `{"meta": {"total_steps": n, ..}, "exit_pdf_file": "..", "requests": [{"id", "input_len",
//! "output_len"}, ..]}`. The archive has `offsets` (request i's output tokens are rows `offsets[i]..offsets[i + 1]`) and one
//! of `exit_pdf` and `exit_values` (floats, `[tokens, steps]`) and `exit_depths` (integers, `[tokens]`).

use std::io::Read;
use std::path::{Path, PathBuf};

use engine::units::Depth;
use serde_json::{Map, Value};

use crate::error::{Place, TracesError};
use crate::import::collector::{Collector, Record};
use crate::import::depth_rule::{DepthRule, Recorded};
use crate::import::fields::{self, Fault, Miss};
use crate::import::npz::{Array, Npz};
use crate::import::time_unit::Timestamp;

const SCHEDULES: [(&str, Recorded); 3] =
    [("exit_pdf", Recorded::Pdf), ("exit_values", Recorded::Values), ("exit_depths", Recorded::Depth)];

/// Reads the definition, then the schedule beside it; `progress` is told the tokens of the schedule.
pub(super) fn read(
    path: &Path,
    mut reader: impl Read,
    rule: DepthRule,
    collector: &mut Collector,
    progress: &dyn Fn(u64, u64),
) -> Result<(), TracesError> {
    let fault = |problem: String| TracesError::Import { path: path.into(), problem };
    let mut text = Vec::new();
    reader.read_to_end(&mut text).map_err(|source| TracesError::Io { path: path.into(), source })?;
    let definition = fields::object(&text).map_err(|error| fault(format!("{}, got {}", error.must, error.got)))?;
    drop(text);
    let requests = fields::list(definition.get("requests"), "requests")
        .map_err(|error| fault(format!("field `requests` {}, got {}", error.must, error.got)))?;

    let archive = archive_path(path, &definition);
    let fault = |problem: String| TracesError::Import { path: archive.clone(), problem };
    let mut npz = Npz::open(&archive)?;
    collector.files.push(archive.clone());
    let offsets = offsets(&mut npz, requests.len()).map_err(fault)?;
    let names = npz.names();
    let present: Vec<_> = SCHEDULES.iter().filter(|(name, _)| names.iter().any(|found| found == name)).collect();
    let [(name, recorded)] = present[..] else {
        return Err(fault(format!(
            "must have one of the arrays exit_pdf, exit_values and exit_depths; it has: {}",
            names.join(", ")
        )));
    };
    if *recorded != Recorded::Depth && rule.threshold.is_none() {
        return Err(fault(format!("array `{name}` becomes depths by a threshold: give --threshold")));
    }
    let array = npz.array(name)?.ok_or_else(|| fault(format!("array `{name}` is missing")))?;
    let total_steps = definition.get("meta").and_then(|meta| meta.get("total_steps")).and_then(fields::whole);
    let (columns, steps) = shape(&array, name, *recorded, total_steps, offsets[requests.len()]).map_err(fault)?;

    let mut schedule = Schedule { array, columns, steps, recorded: *recorded, rule, token: Vec::new() };
    let mut depths = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        if collector.is_full() {
            break;
        }
        let rows = offsets[index + 1] - offsets[index];
        let record = parse(request, rows);
        // Rows are read even for a malformed request: they stand before the next one's.
        let read = schedule.read_request(rows, &mut depths);
        let read = read.map_err(|error| fault(format!("array `{name}`, request {}: {error}", index + 1)))?;
        let record = record.and_then(|record| read.map(|()| record).map_err(Miss::from));
        collector.take_with_exits(Place::Row(index as u64 + 1), record, &depths);
        progress(offsets[index + 1], offsets[requests.len()]);
    }
    Ok(())
}

/// The file that the definition names, beside it; a definition that names none means its own name's.
fn archive_path(path: &Path, definition: &Map<String, Value>) -> PathBuf {
    let named = definition.get("exit_pdf_file").and_then(Value::as_str).and_then(|name| Path::new(name).file_name());
    match named {
        Some(name) => path.with_file_name(name),
        None => path.with_extension("exit_pdf.npz"),
    }
}

/// One more than requests, rising from 0.
fn offsets(npz: &mut Npz<'_>, requests: usize) -> Result<Vec<u64>, String> {
    let array = npz.array("offsets").map_err(|error| error.to_string())?;
    let mut array = array.ok_or_else(|| "has no array `offsets`".to_owned())?;
    if array.is_float() || array.shape[..] != [requests as u64 + 1] {
        return Err(format!(
            "array `offsets` must hold {} integers, one more than the definition has requests, and has the shape {:?}",
            requests + 1,
            array.shape
        ));
    }
    let mut offsets = Vec::with_capacity(requests + 1);
    for index in 0..=requests {
        let offset = array.next().map_err(|error| format!("array `offsets`: {error}"))?;
        if offset < offsets.last().map_or(0.0, |last: &u64| *last as f64) || (index == 0 && offset != 0.0) {
            return Err(format!("array `offsets` must rise from 0, and its entry {index} is {offset}"));
        }
        offsets.push(offset as u64);
    }
    Ok(offsets)
}

/// Numbers per row, and steps, of a schedule of `rows` rows.
fn shape(
    array: &Array<'_>,
    name: &str,
    recorded: Recorded,
    total_steps: Option<u64>,
    rows: u64,
) -> Result<(usize, u8), String> {
    let (columns, steps) = match (recorded, &array.shape[..]) {
        (Recorded::Depth, [_]) if !array.is_float() => {
            (1, total_steps.ok_or("array `exit_depths` needs the definition's `meta.total_steps`, and it has none")?)
        }
        (Recorded::Pdf | Recorded::Values, [_, steps]) if array.is_float() => (*steps, *steps),
        (_, shape) => {
            let must = if recorded == Recorded::Depth { "integers [tokens]" } else { "floats [tokens, steps]" };
            return Err(format!("array `{name}` must hold {must}, and has the shape {shape:?}"));
        }
    };
    if array.shape[0] != rows {
        return Err(format!("array `{name}` has {} rows, and the last of `offsets` is {rows}", array.shape[0]));
    }
    let steps = u8::try_from(steps).ok().filter(|steps| *steps > 0);
    let steps =
        steps.ok_or_else(|| format!("array `{name}` must have from 1 to 255 steps, and has {:?}", array.shape))?;
    Ok((columns as usize, steps))
}

fn parse(request: &Value, rows: u64) -> Result<Record, Miss> {
    let Value::Object(request) = request else {
        return Err(Fault::new("", "must be a JSON object", fields::describe(Some(request))).into());
    };
    let prompt_tokens = fields::tokens(request.get("input_len"), "input_len")?;
    let output_tokens = fields::tokens(request.get("output_len"), "output_len")?;
    if output_tokens != rows {
        let got = format!("{output_tokens} for {rows} rows");
        return Err(Fault::new("output_len", "must be the number of rows that `offsets` gives the request", got).into());
    }
    Ok(Record { prompt_tokens, output_tokens, time: Timestamp::whole(0) })
}

/// The rows of a schedule, and where reading them is.
struct Schedule<'a> {
    array: Array<'a>,
    columns: usize,
    steps: u8,
    recorded: Recorded,
    rule: DepthRule,
    token: Vec<f64>,
}

impl Schedule<'_> {
    /// Reads a request's rows into depths; the first row is the token that prefill yields, at full depth whatever it says.
    fn read_request(&mut self, rows: u64, depths: &mut Vec<Depth>) -> std::io::Result<Result<(), Fault>> {
        depths.clear();
        let mut fault = Ok(());
        for row in 0..rows {
            self.token.clear();
            for _ in 0..self.columns {
                let number = self.array.next()?;
                self.token.push(number);
            }
            if row == 0 || fault.is_err() {
                continue;
            }
            match self.rule.depth(self.recorded, &self.token, self.steps) {
                Ok(depth) => depths.push(Depth(depth)),
                Err(problem) => {
                    fault = Err(Fault { got: format!("{} at output token {}", problem.got, row + 1), ..problem })
                }
            }
        }
        Ok(fault)
    }
}
