//! Which format a file has, told by its first record.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use crate::error::TracesError;
use crate::import::Format;
use crate::import::azure;
use crate::import::fields;
use crate::import::json_records::JsonRecords;

/// Fields that only one format has, or one of its variants.
const FIELDS: [(&[&str], Format); 6] = [
    (&["conversations"], Format::ShareGpt),
    (&["instruction", "output"], Format::Alpaca),
    (&["article"], Format::Arxiv),
    (&["article_text"], Format::Arxiv),
    (&["timestamp", "input_length"], Format::Mooncake),
    (&["requests", "exit_pdf_file"], Format::Bundle),
];

/// Reads as far as the first record.
///
/// # Errors
/// The file cannot be read, or looks like no format.
pub fn detect(path: &Path) -> Result<Format, TracesError> {
    let io_error = |source| TracesError::Io { path: path.into(), source };
    let mut reader = BufReader::new(File::open(path).map_err(io_error)?);
    let mut header = String::new();
    // A list may be one line of gigabytes; the header of a trace is short. Bytes that are no UTF-8 are no header.
    let _ = std::io::Read::take(&mut reader, 4096).read_line(&mut header);
    let names: Vec<&str> =
        header.trim_start_matches('\u{feff}').split(',').map(|name| name.trim().trim_matches('"')).collect();
    if azure::COLUMNS.iter().all(|column| names.iter().any(|name| name.eq_ignore_ascii_case(column))) {
        return Ok(Format::Azure);
    }
    let unknown = |what: &str| {
        let known: Vec<&str> = Format::NAMED.iter().map(|(name, _)| *name).collect();
        let problem = format!("{what}; say what it is with --format (one of {})", known.join(", "));
        TracesError::Import { path: path.into(), problem }
    };
    if names.contains(&"prompt_tokens") {
        let problem = "is a workload file already, and needs no import".into();
        return Err(TracesError::Import { path: path.into(), problem });
    }
    reader.rewind().map_err(io_error)?;
    let mut records = JsonRecords::new(reader).map_err(io_error)?;
    if let Some(problem) = records.fault() {
        let columns = if header.is_empty() { String::new() } else { columns(&names) };
        return Err(unknown(&format!("looks like no known format: it {problem}{columns}")));
    }
    let first = match records.next().map_err(io_error)? {
        Some((_, Ok(text))) => fields::object(text).ok(),
        _ => None,
    };
    let Some(first) = first else { return Err(unknown("its first record is no JSON object")) };
    let matching = FIELDS.iter().find(|(fields, _)| fields.iter().all(|field| first.contains_key(*field)));
    matching.map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<&str> = first.keys().map(String::as_str).take(12).collect();
        unknown(&format!("its first record has the fields of no known format: {}", names.join(", ")))
    })
}

/// What a file has, taken for a CSV, and what it would have to have.
fn columns(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().take(12).map(|name| fields::shorten(name)).collect();
    format!("; as a CSV it has the columns {}, and azure has {}", names.join(", "), azure::COLUMNS.join(", "))
}
