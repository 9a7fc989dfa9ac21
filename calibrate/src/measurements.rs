//! The table of measurements: `batch,context,loops,step_ms[,stage][,tokens][,round]`, described in this crate's README.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use csv::StringRecord;
use engine::architecture::Architecture;
use engine::scheduler::MAX_NUM_SEQS;
use engine::whole::Whole;

use crate::error::CalibrateError;

/// Tokens of a launch at most, and KV entries of a row: far beyond any device, and their products within 64 bits.
const TOKENS_MAX: u32 = 1 << 30;

/// What was timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Sequences moved to host memory, or back.
    Offload,
    /// The host's work from a batch's result to the launch of the next.
    Build,
    /// The host's work from there until the device starts.
    Launch,
    /// The host's work from the device's end until the result is there.
    Read,
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
    /// KV entries that a row reads on average, rounded; for prefill, entries cached before the chunk; for offload, tokens per
    /// sequence.
    pub context: u32,
    /// Core applications; 0 where the stage has none.
    pub loops: u32,
    /// New prompt tokens per sequence; 0 unless prefill.
    pub tokens: u32,
    /// The time: a mean, where it sums up several launches.
    pub time_ms: f64,
    /// The shortest of them.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Which repeat of the whole grid it belongs to; 0 where the table does not say.
    pub round: u32,
    /// Launches behind the time that did not wait for a core; 1 where the table does not say.
    pub calm: u32,
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
    pub const ALL: [Self; 9] = [
        Self::Step,
        Self::Core,
        Self::Prelude,
        Self::Coda,
        Self::Prefill,
        Self::Offload,
        Self::Build,
        Self::Launch,
        Self::Read,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Core => "core",
            Self::Prelude => "prelude",
            Self::Coda => "coda",
            Self::Prefill => "prefill",
            Self::Offload => "offload",
            Self::Build => "build",
            Self::Launch => "launch",
            Self::Read => "read",
        }
    }

    /// The host's work, which may take no time that a clock can tell.
    fn is_host(self) -> bool {
        matches!(self, Self::Build | Self::Launch | Self::Read)
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
    let known = ["batch", "context", "loops", "step_ms", "stage", "tokens", "round", "calm", "min_ms", "max_ms"];
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
    round: Option<usize>,
    calm: Option<usize>,
    min_ms: Option<usize>,
    max_ms: Option<usize>,
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
            round: place("round"),
            calm: place("calm"),
            min_ms: place("min_ms"),
            max_ms: place("max_ms"),
        })
    }

    fn measurement(&self, record: &StringRecord, file: &str) -> Result<Measurement, CalibrateError> {
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |column, reason| CalibrateError::Cell { file: file.into(), line, column, reason };
        let cell = |place: Option<usize>| place.and_then(|place| record.get(place)).unwrap_or("");
        let count = |column, place, least: u32, most: u32| {
            let text = cell(place);
            let value = text.parse().ok().and_then(|Whole(count)| u32::try_from(count).ok());
            let value = value.filter(|count| (least..=most).contains(count));
            value.ok_or_else(|| wrong(column, format!("must be a whole number from {least} to {most}, got `{text}`")))
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
        let takes_time = |time: &f64| *time > 0.0 || (stage.is_host() && *time == 0.0);
        let time_ms = f64::from_str(text).ok().filter(|time| time.is_finite() && takes_time(time));
        let time_ms = time_ms
            .ok_or_else(|| wrong("step_ms", format!("must be a time in ms, greater than zero, got `{text}`")))?;
        let spread = |column, place: Option<usize>| {
            let text = cell(place);
            let value = if place.is_some() { f64::from_str(text).ok() } else { Some(time_ms) };
            let value = value.filter(|ms| ms.is_finite() && *ms >= 0.0);
            value.ok_or_else(|| wrong(column, format!("must be a time in ms, got `{text}`")))
        };
        let batch = count("batch", Some(self.batch), 1, MAX_NUM_SEQS)?;
        let tokens = if prefill { count("tokens", self.tokens, 1, TOKENS_MAX / batch)? } else { 0 };
        // The mean over an even number of timed tokens lies between two whole ones.
        let text = cell(Some(self.context));
        let least = f64::from(u8::from(!prefill && !stage.is_host()));
        let context = f64::from_str(text).ok().filter(|context| (least..=f64::from(TOKENS_MAX)).contains(context));
        let context = context
            .ok_or_else(|| wrong("context", format!("must be a number from {least} to {TOKENS_MAX}, got `{text}`")))?;
        Ok(Measurement {
            line,
            stage,
            batch,
            context: context.round() as u32,
            loops: if stage == Stage::Step {
                count("loops", Some(self.loops), 1, Architecture::LOOPS_MAX.into())?
            } else {
                0
            },
            tokens,
            time_ms,
            min_ms: spread("min_ms", self.min_ms)?,
            max_ms: spread("max_ms", self.max_ms)?,
            round: if self.round.is_some() { count("round", self.round, 0, u32::MAX)? } else { 0 },
            calm: if self.calm.is_some() { count("calm", self.calm, 0, u32::MAX)? } else { 1 },
        })
    }
}

/// The repeats of every point as one measurement with their median: what disturbs a machine makes a few of them slow.
///
/// Repeats without a calm launch do not count. With `calm_only` a point of which nothing else is left is left out, all
/// stages of it; without, such repeats are better than none.
pub fn medians(measurements: &[Measurement], calm_only: bool) -> Vec<Measurement> {
    let mut groups: BTreeMap<_, Vec<&Measurement>> = BTreeMap::new();
    for row in measurements {
        groups.entry((row.stage, row.context, row.tokens, row.batch, row.loops)).or_default().push(row);
    }
    let point = |row: &Measurement| (row.stage.kind(), row.context, row.tokens, row.batch);
    let disturbed = groups.values().filter(|repeats| repeats.iter().all(|row| row.calm == 0));
    let left_out: BTreeSet<_> = disturbed.filter(|_| calm_only).map(|repeats| point(repeats[0])).collect();
    let middle = |repeats: Vec<&Measurement>| {
        let any_calm = repeats.iter().any(|row| row.calm > 0);
        let counts = repeats.iter().filter(|row| row.calm > 0 || !any_calm);
        Measurement { time_ms: median(counts.map(|row| row.time_ms)), ..*repeats[0] }
    };
    groups.into_values().filter(|repeats| !left_out.contains(&point(repeats[0]))).map(middle).collect()
}

/// Stages that are fitted together, and so left out together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Decode,
    Prefill,
    Offload,
    Host,
}

impl Stage {
    fn kind(self) -> Kind {
        match self {
            Self::Step | Self::Core | Self::Prelude | Self::Coda => Kind::Decode,
            Self::Prefill => Kind::Prefill,
            Self::Offload => Kind::Offload,
            Self::Build | Self::Launch | Self::Read => Kind::Host,
        }
    }
}

/// The middle value, or the mean of the middle two; NaN of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    match values.len() {
        0 => f64::NAN,
        count => f64::midpoint(at((count - 1) / 2), at(count / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_was_never_calm_is_left_out_on_demand() {
        let row = |batch: u32, loops: u32, calm: u32, time_ms: f64| Measurement {
            line: 0,
            stage: Stage::Step,
            batch,
            context: 64,
            loops,
            tokens: 0,
            time_ms,
            min_ms: time_ms,
            max_ms: time_ms,
            round: 0,
            calm,
        };
        let rows = [row(1, 1, 5, 1.0), row(1, 2, 5, 2.0), row(1, 2, 0, 9.0), row(2, 1, 0, 7.0), row(2, 2, 5, 3.0)];
        let kept = |calm_only| {
            medians(&rows, calm_only).iter().map(|row| (row.batch, row.loops, row.time_ms)).collect::<Vec<_>>()
        };
        assert_eq!(kept(true), [(1, 1, 1.0), (1, 2, 2.0)]);
        assert_eq!(kept(false), [(1, 1, 1.0), (1, 2, 2.0), (2, 1, 7.0), (2, 2, 3.0)]);
        assert!(median([].into_iter()).is_nan());
        assert_eq!(median([3.0, 1.0, 2.0, 10.0].into_iter()), 2.5);
    }
}
