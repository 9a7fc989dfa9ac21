//! The table of measurements: `batch,context,loops,step_ms[,stage][,tokens]`, described in this crate's README.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use csv::StringRecord;

use crate::error::CalibrateError;

/// What was timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// A whole decode step in one graph: prelude, `loops` core applications, coda.
    #[default]
    Step,
    /// One core application as a launch of its own.
    Core,
    /// The prelude as a launch of its own.
    Prelude,
    /// The coda as a launch of its own.
    Coda,
    /// A packed prompt chunk at full depth.
    Prefill,
}

/// One timed launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Where it stands in its file, from 1.
    pub line: u64,
    /// What was timed.
    pub stage: Stage,
    /// Sequences, not padded.
    pub batch: u32,
    /// KV entries that each row reads; for prefill, entries cached before the chunk.
    pub context: u32,
    /// Core applications; 0 where the stage has none.
    pub loops: u32,
    /// New prompt tokens per sequence; 0 unless prefill.
    pub tokens: u32,
    /// The time.
    pub time_ms: f64,
}

/// A table and what was not read of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its rows.
    pub rows: Vec<Measurement>,
    /// Columns without a meaning here, for the reader to notice a misspelling.
    pub ignored: Vec<String>,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 5] = [Self::Step, Self::Core, Self::Prelude, Self::Coda, Self::Prefill];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Core => "core",
            Self::Prelude => "prelude",
            Self::Coda => "coda",
            Self::Prefill => "prefill",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a file of measurements.
///
/// # Errors
/// A file that cannot be read, a missing column, or the first cell that is not what its column needs.
pub fn read(path: &Path) -> Result<Table, CalibrateError> {
    let file = std::fs::File::open(path).map_err(|source| CalibrateError::Read { path: path.into(), source })?;
    parse(file, &path.display().to_string())
}

/// Reads measurements; `file` names them in errors. Lines that start with `#` are comments.
///
/// # Errors
/// As [`read`].
pub fn parse(input: impl io::Read, file: &str) -> Result<Table, CalibrateError> {
    let broken = |source| CalibrateError::Csv { file: file.into(), source };
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(input);
    let header = reader.headers().map_err(broken)?.clone();
    let columns = Columns::find(&header, file)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        rows.push(columns.measurement(&record, file)?);
    }
    let known = ["batch", "context", "loops", "step_ms", "stage", "tokens"];
    let ignored = header.iter().filter(|column| !known.contains(column)).map(str::to_owned).collect();
    Ok(Table { rows, ignored })
}

/// Where each column stands.
struct Columns {
    batch: usize,
    context: usize,
    loops: usize,
    step_ms: usize,
    stage: Option<usize>,
    tokens: Option<usize>,
}

impl Columns {
    fn find(header: &StringRecord, file: &str) -> Result<Self, CalibrateError> {
        let place = |column| header.iter().position(|name| name == column);
        let needed = |column| {
            place(column).ok_or_else(|| CalibrateError::NoColumn {
                file: file.into(),
                column,
                header: header.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            })
        };
        Ok(Self {
            batch: needed("batch")?,
            context: needed("context")?,
            loops: needed("loops")?,
            step_ms: needed("step_ms")?,
            stage: place("stage"),
            tokens: place("tokens"),
        })
    }

    fn measurement(&self, record: &StringRecord, file: &str) -> Result<Measurement, CalibrateError> {
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |column, reason| CalibrateError::Cell { file: file.into(), line, column, reason };
        let cell = |place: Option<usize>| place.and_then(|place| record.get(place)).unwrap_or("");
        let count = |column, place, least| {
            let text = cell(place);
            let value = text.parse::<u32>().ok().filter(|&count| count >= least);
            value.ok_or_else(|| wrong(column, format!("must be a whole number from {least}, got `{text}`")))
        };
        let name = cell(self.stage);
        let stage =
            Stage::ALL.into_iter().find(|stage| stage.name() == name || (name.is_empty() && *stage == Stage::Step));
        let stage = stage.ok_or_else(|| {
            let known = Stage::ALL.map(Stage::name).join(", ");
            wrong("stage", format!("must be one of {known}, or empty for step, got `{name}`"))
        })?;
        let prefill = stage == Stage::Prefill;
        let text = cell(Some(self.step_ms));
        let time_ms = f64::from_str(text).ok().filter(|time| time.is_finite() && *time > 0.0);
        Ok(Measurement {
            line,
            stage,
            batch: count("batch", Some(self.batch), 1)?,
            context: count("context", Some(self.context), u32::from(!prefill))?,
            loops: if stage == Stage::Step { count("loops", Some(self.loops), 1)? } else { 0 },
            tokens: if prefill { count("tokens", self.tokens, 1)? } else { 0 },
            time_ms: time_ms
                .ok_or_else(|| wrong("step_ms", format!("must be a time in ms, greater than zero, got `{text}`")))?,
        })
    }
}
