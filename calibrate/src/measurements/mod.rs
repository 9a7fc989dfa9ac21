//! What was timed, and how long it took: the rows of a table of measurements.

mod repeats;
mod table;

use std::fmt;

pub(crate) use repeats::median;
pub use repeats::medians;
pub(crate) use table::{HEADER, to_csv};
pub use table::{Table, parse, read, table_text};

/// What a row of the table times.
///
/// This is more than [`engine::batch::Stage`]: whole steps are timed at several loop counts, the two ways of an offload are one
/// here, and the event loop's own work is no stage at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timed {
    /// A whole decode step in one graph: prelude, `loops` core applications, coda.
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

/// What is timed in one go, fitted together, and so left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Whole steps and their three stages.
    Decode,
    /// Prompt chunks.
    Prefill,
    /// The way to host memory.
    Offload,
    /// The event loop's work.
    Host,
}

/// A place in the grid: repeats of a measurement have it in common. Tables are sorted by its fields in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// What was timed there.
    pub timed: Timed,
    /// KV entries that a row reads on average, rounded; for prefill, entries cached before the chunk; for offload, tokens per
    /// sequence.
    pub context: u32,
    /// New prompt tokens per sequence; 0 unless prefill.
    pub tokens: u32,
    /// Sequences, not padded.
    pub batch: u32,
    /// Core applications of a whole step; 0 for all else.
    pub loops: u32,
}

/// How long equal launches took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Their mean, since a run takes the sum of its steps, slow ones included.
    pub time_ms: f64,
    /// The shortest launch.
    pub min_ms: f64,
    /// The longest launch.
    pub max_ms: f64,
    /// Launches that did not wait for a core (the column `calm`). Only these count; if there are none, the others.
    pub undisturbed: u32,
}

/// One row of a table: a point, timed once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The row's line in its file, from 1.
    pub line: u64,
    /// What was timed, and at which batch size and context.
    pub point: Point,
    /// Which repeat of the whole grid it belongs to; 0 where the table does not say.
    pub round: u32,
    /// How long it took.
    pub times: Times,
}

impl Timed {
    /// Everything that can be timed, in the order of tables.
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

    /// Its name in tables, in the column `stage`.
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

    /// With what it is timed and fitted.
    pub fn kind(self) -> Kind {
        match self {
            Self::Step | Self::Core | Self::Prelude | Self::Coda => Kind::Decode,
            Self::Prefill => Kind::Prefill,
            Self::Offload => Kind::Offload,
            Self::Build | Self::Launch | Self::Read => Kind::Host,
        }
    }
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Point {
    /// A point of anything but a whole step, which has loops, or a prompt chunk, which has tokens.
    pub fn new(timed: Timed, batch: u32, context: u32) -> Self {
        Self { timed, context, tokens: 0, batch, loops: 0 }
    }

    /// A whole decode step.
    pub fn step(batch: u32, context: u32, loops: u32) -> Self {
        Self { loops, ..Self::new(Timed::Step, batch, context) }
    }

    /// A prompt chunk of each of `batch` sequences.
    pub fn prefill(batch: u32, context: u32, tokens: u32) -> Self {
        Self { tokens, ..Self::new(Timed::Prefill, batch, context) }
    }
}

impl Times {
    /// Of a single launch that did not wait for a core.
    pub fn once(time_ms: f64) -> Self {
        Self { time_ms, min_ms: time_ms, max_ms: time_ms, undisturbed: 1 }
    }

    /// Of launches of which none waited for a core.
    pub(crate) fn of(times_ms: &[f64]) -> Self {
        Self {
            time_ms: times_ms.iter().sum::<f64>() / times_ms.len() as f64,
            min_ms: times_ms.iter().copied().fold(f64::INFINITY, f64::min),
            max_ms: times_ms.iter().copied().fold(0.0, f64::max),
            undisturbed: times_ms.len() as u32,
        }
    }
}

impl Measurement {
    /// A point's only measurement, of a single launch.
    pub fn once(point: Point, time_ms: f64) -> Self {
        Self { line: 0, point, round: 0, times: Times::once(time_ms) }
    }

    /// At least one launch did not wait for a core.
    pub fn is_undisturbed(&self) -> bool {
        self.times.undisturbed > 0
    }
}
