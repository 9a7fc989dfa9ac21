//! Everything that can be wrong with a set of measurements, said so that the reader knows what to measure or change.

use std::path::PathBuf;

use thiserror::Error;

use crate::measurements::Stage;
use crate::plausible::Pace;

/// Why there is no fit.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a table.
    #[error("{file}: {source}")]
    Csv {
        /// The file.
        file: String,
        /// Why.
        source: csv::Error,
    },
    /// A column is missing.
    #[error("{file}: there is no column `{column}`; the header has {header}")]
    NoColumn {
        /// The file.
        file: String,
        /// The column.
        column: &'static str,
        /// What there is.
        header: String,
    },
    /// A cell is wrong.
    #[error("{file}:{line}: {column}: {reason}")]
    Cell {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// What it must be and what it is.
        reason: String,
    },
    /// A table without rows of fused decode steps.
    #[error(
        "there are no rows of stage `step`: time whole decode steps at several batch sizes, contexts and loop counts"
    )]
    NoSteps,
    /// A table with which a profile cannot be judged.
    #[error(
        "there are no rows of stage `core`, nor of stage `step`, and these are what a profile is judged by: time core steps, as \
         `calibrate check` does, or whole decode steps"
    )]
    NothingToJudge,
    /// Times that the device's memory and arithmetic do not allow.
    #[error(
        "{pace}: step_ms counts milliseconds; are these times in seconds, or of another device than {device}, or of another model?"
    )]
    TooFast {
        /// By how much, and where.
        pace: Pace,
        /// The device.
        device: String,
    },
    /// There is nothing to adjust a profile to.
    #[error("there are no rows of stage `core`: time core steps, as `calibrate check` does")]
    NoCore,
    /// A point of the grid has one loop count, from which a slope cannot be told.
    #[error(
        "line {line}: batch {batch} at context {context} was timed with {loops} loops only: tau(r) = tau_0 + tau_r r needs two or \
         more loop counts at every (batch, context)"
    )]
    OneLoopCount {
        /// A line with the point.
        line: u64,
        /// Its batch size.
        batch: u32,
        /// Its context.
        context: u32,
        /// Its loop count.
        loops: u32,
    },
    /// More loops take no longer.
    #[error(
        "line {line}: batch {batch} at context {context}: a loop takes {per_loop_ms:.4} ms by the fit over loops, but it must take \
         some time: measure the point again, or leave it out"
    )]
    NoSlope {
        /// A line with the point.
        line: u64,
        /// Its batch size.
        batch: u32,
        /// Its context.
        context: u32,
        /// The slope.
        per_loop_ms: f64,
    },
    /// Too few points for a fit that can be judged.
    #[error("{stage}: {points} points (batch, context) are too few, measure at least {needed}")]
    TooFew {
        /// The stage.
        stage: Stage,
        /// How many there are.
        points: usize,
        /// How many are needed.
        needed: usize,
    },
    /// The design cannot tell delta from gamma.
    #[error(
        "{stage}: every point pads to {rows} rows, so delta and gamma cannot be told apart: measure other batch sizes too"
    )]
    OneBatch {
        /// The stage.
        stage: Stage,
        /// The padded batch size.
        rows: f64,
    },
    /// The design cannot tell gamma from alpha.
    #[error(
        "{stage}: every point has context {context}, so gamma and alpha cannot be told apart: measure other contexts too"
    )]
    OneContext {
        /// The stage.
        stage: Stage,
        /// The context.
        context: u32,
    },
    /// The design is degenerate in another way.
    #[error(
        "{stage}: the points' rows and KV entries are collinear, so the coefficients cannot be told apart: measure a grid, several \
         batch sizes at each of several contexts"
    )]
    Collinear {
        /// The stage.
        stage: Stage,
    },
    /// Without one point the design is degenerate.
    #[error(
        "{stage}: only batch {batch} at context {context} tells two coefficients apart, so it cannot be left out to judge the fit: \
         measure another batch size at that context, or that batch size at another context"
    )]
    Leverage {
        /// The stage.
        stage: Stage,
        /// The point's batch size.
        batch: u32,
        /// The point's context.
        context: u32,
    },
    /// One boundary stage was timed, the other was not.
    #[error("there are rows of stage `{present}` but none of `{absent}`: time both, or neither")]
    HalfBoundary {
        /// The stage with rows.
        present: Stage,
        /// The stage without.
        absent: Stage,
    },
    /// A staged core was timed where no fused step was.
    #[error(
        "line {line}: the staged core was timed at batch {batch}, context {context}, where there are no rows of stage `step` to \
         compare it with: time fused steps there too, or leave it out"
    )]
    NoFusedStep {
        /// A line with the point.
        line: u64,
        /// Its batch size.
        batch: u32,
        /// Its context.
        context: u32,
    },
    /// The profile that came out, or the one to start from, cannot be simulated with.
    #[error("{name}: {source}")]
    Profile {
        /// Its name or file.
        name: String,
        /// Why.
        source: engine::profile::ProfileError,
    },
    /// A profile is not one, or cannot be written as one.
    #[error("{name}: {reason}")]
    Yaml {
        /// Its name or file.
        name: String,
        /// Why.
        reason: String,
    },
    /// A command-line value.
    #[error("{option}: {reason}")]
    Argument {
        /// The option.
        option: &'static str,
        /// What it must be and what it is.
        reason: String,
    },
    /// An output would replace a file that is read.
    #[error("--out: {0}")]
    Output(files::Clash),
    /// A measurement was cut off, and is not to be continued like this.
    #[error(
        "{} is an unfinished measurement of something else: delete it, or give another --out\n  there: {found}\n  now:   {expected}",
        path.display()
    )]
    OtherSetup {
        /// The file.
        path: PathBuf,
        /// What it says of itself.
        found: String,
        /// What was to be measured.
        expected: String,
    },
    /// The model's weights.
    #[error(transparent)]
    Weights(engine::live::weights::WeightsError),
    /// A table or figure beside the profile could not be written.
    #[error(transparent)]
    Report(reports::ReportError),
    /// The executor could not run a batch, or could not be made.
    #[error("{during}: {source}")]
    Execution {
        /// What was being measured.
        during: String,
        /// What the executor said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl CalibrateError {
    /// An executor's error.
    pub fn execution(during: String, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Execution { during, source: Box::new(source) }
    }
}
