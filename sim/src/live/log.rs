//! What is kept of a run to compare it with another, step by step and request by request.

use std::hash::{Hash, Hasher};

use engine::batch::{Batch, Emits, Stage};
use engine::event_loop::{Refused, Step};
use engine::metrics::RequestRecord;
use engine::request::Arrival;
use engine::units::Nanos;
use fnv::FnvHasher;
use reports::ReportError;
use serde::{Deserialize, Serialize};

use crate::run::output::FileSink;
use crate::run::serve::Sink;

/// One step, without its rows; in files a list, since there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Stage, u32, u64, u32)", into = "(Stage, u32, u64, u32)")]
pub(crate) struct LoggedStep {
    pub(crate) stage: Stage,
    pub(crate) rows: u32,
    pub(crate) took: Nanos,
    /// Of everything that the batch and those before it say: two steps with equal digests have run the same batches.
    digest: u32,
}

/// A run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Log {
    pub(crate) steps: Vec<LoggedStep>,
    pub(crate) requests: Vec<RequestRecord>,
}

impl Log {
    /// The first step at which the other run's batch was another, in words.
    pub(super) fn first_difference(&self, other: &Self) -> Option<String> {
        let show = |step: Option<&LoggedStep>| {
            step.map_or("nothing".into(), |step| format!("{} of {}", step.stage.name(), step.rows))
        };
        let steps = self.steps.len().max(other.steps.len());
        (0..steps).find_map(|index| {
            let (left, right) = (self.steps.get(index), other.steps.get(index));
            let same = left.map(|step| step.digest) == right.map(|step| step.digest);
            (!same).then(|| format!("step {index}: predicted {}, measured {}", show(left), show(right)))
        })
    }
}

/// Logs a run, and writes the files if there are any.
pub(crate) struct Logged<'a> {
    files: Option<FileSink<'a>>,
    log: Log,
    /// The standard library's hasher may change between its releases, and logs outlive a build.
    digest: FnvHasher,
}

impl<'a> Logged<'a> {
    pub(crate) fn new(files: Option<FileSink<'a>>) -> Self {
        Self { files, log: Log::default(), digest: FnvHasher::default() }
    }

    pub(crate) fn into_log(self) -> Log {
        self.log
    }
}

impl Sink for Logged<'_> {
    type Error = ReportError;

    fn step(&mut self, step: &Step) -> Result<(), ReportError> {
        let batch = &step.outcome.batch;
        add(batch, &mut self.digest);
        let hash = self.digest.finish();
        self.log.steps.push(LoggedStep {
            stage: batch.stage,
            rows: batch.rows.len() as u32,
            took: step.outcome.finished - step.outcome.started,
            // The upper half is mixed best.
            digest: (hash ^ hash >> 32) as u32,
        });
        self.files.as_mut().map_or(Ok(()), |files| files.step(step))
    }

    fn request(&mut self, record: &RequestRecord) -> Result<(), ReportError> {
        self.log.requests.push(*record);
        self.files.as_mut().map_or(Ok(()), |files| files.request(record))
    }

    fn refused(&mut self, arrival: &Arrival, refused: &Refused) -> Result<(), ReportError> {
        self.files.as_mut().map_or(Ok(()), |files| files.refused(arrival, refused))
    }
}

fn add(batch: &Batch, digest: &mut FnvHasher) {
    (batch.stage as u8).hash(digest);
    for row in &batch.rows {
        let emits = row.emits != Emits::Nothing;
        (row.slot.0, row.request.0, row.token, row.span.first, row.span.count, row.depth.0, emits).hash(digest);
    }
    // Which page a sequence gets is bookkeeping, and no decision.
    for (slot, request) in batch.admitted() {
        (slot.0, request.id.0).hash(digest);
    }
}

impl From<(Stage, u32, u64, u32)> for LoggedStep {
    fn from((stage, rows, took_ns, digest): (Stage, u32, u64, u32)) -> Self {
        Self { stage, rows, took: Nanos(took_ns), digest }
    }
}

impl From<LoggedStep> for (Stage, u32, u64, u32) {
    fn from(step: LoggedStep) -> Self {
        (step.stage, step.rows, step.took.0, step.digest)
    }
}
