//! Everything that can be wrong with a set of measurements. A message names the place and says what to measure or change.

use std::path::PathBuf;

use thiserror::Error;

use crate::measurements::{Point, Timed};
use crate::plausible::Pace;

/// What to do where no more than the budget is missing. Builds for debugging take tens of times as long.
const MORE_TIME: &str =
    if cfg!(debug_assertions) { "raise --budget, or build with --release" } else { "raise --budget" };

/// Why there is no profile, or no verdict on one.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// Check the name, and whether you may read the file.
    #[error("{}: {source}", path.display())]
    Read {
        /// As the command line names it.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Check that the folder exists and is yours, and that the disk is not full.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// As `--out` names it, or beside that.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Every line needs as many cells as the header.
    #[error("{file}: {source}")]
    Csv {
        /// The table's name.
        file: String,
        /// The line, and what is wrong there.
        source: csv::Error,
    },
    /// Add the column, or correct its name in the header.
    #[error("{file}: there is no column `{column}`; the header has {header}")]
    NoColumn {
        /// The table's name.
        file: String,
        /// One without which there is no measurement.
        column: &'static str,
        /// The names that were found, to spot a misspelling.
        header: String,
    },
    /// Correct the cell, or remove its line.
    #[error("{file}:{line}: {column}: {reason}")]
    Cell {
        /// The table's name.
        file: String,
        /// Counted from 1, comments included.
        line: u64,
        /// By its name in the header.
        column: &'static str,
        /// What the cell must be and what it is.
        reason: String,
    },
    /// A longer budget, a faster build, or a grid whose caches are filled sooner.
    #[error(
        "no point was measured within the budget (of {points} in a round; filling the caches counts): {MORE_TIME}, or give fewer \
         --batches and --contexts"
    )]
    NothingMeasured {
        /// Those of one round.
        points: usize,
    },
    /// The core's cost is the slope of whole steps over loop counts, so there must be some.
    #[error(
        "there are no rows of stage `step`: time whole decode steps at several batch sizes, contexts and loop counts"
    )]
    NoSteps,
    /// A profile is judged by core steps, or else by whole ones.
    #[error(
        "there are no rows of stage `core`, nor of stage `step`, and these are what a profile is judged by: time core steps, as \
         `calibrate check` does, or whole decode steps"
    )]
    NothingToJudge,
    /// Correct the unit of the times, or the names of device and model.
    #[error(
        "{pace}: step_ms counts milliseconds; are these times in seconds, or of another device than {device}, or of another model?"
    )]
    TooFast {
        /// By how much, and where.
        pace: Pace,
        /// The one whose limits they break.
        device: String,
    },
    /// A profile is scaled by times of the core at least.
    #[error("there are no rows of stage `core`: time core steps, as `calibrate check` does")]
    NoCore,
    /// A line through one time has any slope: add a loop count.
    #[error(
        "line {line}: batch {} at context {} was timed with {} loops only: tau(r) = tau_0 + tau_r r needs two or \
         more loop counts at every (batch, context)", point.batch, point.context, point.loops
    )]
    OneLoopCount {
        /// One of the rows there.
        line: u64,
        /// That row's place in the grid.
        point: Point,
    },
    /// Noise, most often: measure the point again, or leave it out.
    #[error(
        "line {line}: batch {} at context {}: a loop takes {per_loop_ms:.4} ms by the fit over loops, but it must take \
         some time: measure the point again, or leave it out", point.batch, point.context
    )]
    NoSlope {
        /// One of the rows there.
        line: u64,
        /// That row's place in the grid.
        point: Point,
        /// Zero or less.
        per_loop_ms: f64,
    },
    /// Left-out points would have nothing to be predicted from: measure more.
    #[error("{timed}: {points} points (batch, context) are too few, measure at least {needed}")]
    TooFew {
        /// Whose fit it is.
        timed: Timed,
        /// Different places in the grid; repeats do not count.
        points: usize,
        /// With one left out they still decide every coefficient.
        needed: usize,
    },
    /// Batch sizes tell delta from gamma, after padding.
    #[error(
        "{timed}: every point pads to {rows} rows, so delta and gamma cannot be told apart: measure other batch sizes too"
    )]
    OneBatch {
        /// Whose fit it is.
        timed: Timed,
        /// What all batch sizes pad to.
        rows: f64,
    },
    /// Contexts tell gamma from alpha.
    #[error(
        "{timed}: every point has context {context}, so gamma and alpha cannot be told apart: measure other contexts too"
    )]
    OneContext {
        /// Whose fit it is.
        timed: Timed,
        /// The only one.
        context: u32,
    },
    /// Points on a line, such as large batches at short contexts only: measure a grid.
    #[error(
        "{timed}: the points' rows and KV entries are collinear, so the coefficients cannot be told apart: measure a grid, several \
         batch sizes at each of several contexts"
    )]
    Collinear {
        /// Whose fit it is.
        timed: Timed,
    },
    /// One point decides a coefficient alone: measure its neighbours.
    #[error(
        "{}: only batch {} at context {} tells two coefficients apart, so it cannot be left out to judge the fit: \
         measure another batch size at that context, or that batch size at another context",
        point.timed, point.batch, point.context
    )]
    Leverage {
        /// The one without which there is no fit.
        point: Point,
    },
    /// Prelude and coda come from rows of their own, or both from whole steps.
    #[error("there are rows of stage `{present}` but none of `{absent}`: time both, or neither")]
    HalfBoundary {
        /// The one that was timed.
        present: Timed,
        /// The one that was not.
        absent: Timed,
    },
    /// A stage's overhead is its time less that inside the whole step at the same point.
    #[error(
        "line {line}: the staged core was timed at batch {}, context {}, where there are no rows of stage `step` to \
         compare it with: time fused steps there too, or leave it out", point.batch, point.context
    )]
    NoFusedStep {
        /// The staged core's row.
        line: u64,
        /// That row's place in the grid.
        point: Point,
    },
    /// A fitted profile that no simulation can use needs better times; one to start from must be corrected.
    #[error("{name}: {source}")]
    Profile {
        /// The profile's name, or its file's.
        name: String,
        /// The field that is wrong.
        source: engine::profile::ProfileError,
    },
    /// Correct the file's YAML.
    #[error("{name}: {reason}")]
    Yaml {
        /// The profile's name, or its file's.
        name: String,
        /// The parser's words, with line and column.
        reason: String,
    },
    /// Give the option another value.
    #[error("{option}: {reason}")]
    Argument {
        /// As it is typed.
        option: &'static str,
        /// What its value must be and what it is.
        reason: String,
    },
    /// Write somewhere else: no command replaces a file that it reads.
    #[error("--out: {0}")]
    Output(files::Clash),
    /// Continue the unfinished measurement by its own command, or measure into another file.
    #[error(
        "{} is an unfinished measurement of something else: delete it, or give another --out\n  there: {found}\n  now:   {expected}",
        path.display()
    )]
    OtherSetup {
        /// The unfinished table.
        path: PathBuf,
        /// What its first line says that it measures.
        found: String,
        /// What was to be measured now.
        expected: String,
    },
    /// Weights of another model, or a file that is damaged.
    #[error(transparent)]
    Weights(engine::live::weights::WeightsError),
    /// As [`CalibrateError::Write`], of a table or a figure beside the profile.
    #[error(transparent)]
    Report(reports::ReportError),
    /// Check the address, the key and the server's log.
    #[error("{endpoint}: {reason}")]
    Server {
        /// Which server.
        endpoint: String,
        /// What it said, or what the client says of it.
        reason: String,
    },
    /// Most often the device's memory is too small: lower `--max-entries`, or give fewer `--batches`.
    #[error("{during}: {source}")]
    Execution {
        /// What was being timed or prepared.
        during: String,
        /// The executor's own words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl CalibrateError {
    /// An executor's error.
    pub fn execution(during: String, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Execution { during, source: Box::new(source) }
    }
}
