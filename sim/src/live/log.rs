//! What is kept of a run to compare it with another, step by step and request by request.

use std::hash::{DefaultHasher, Hash, Hasher};

use engine::batch::{Batch, Stage};
use engine::event_loop::Step;
use engine::metrics::RequestRecord;
use engine::request::Arrival;
use engine::scheduler::Refusal;
use engine::units::Nanos;
use reports::ReportError;

use crate::output::FileSink;
use crate::run::Sink;

/// One step, without its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedStep {
    pub(super) stage: Stage,
    pub(super) rows: usize,
    pub(super) took: Nanos,
    /// Of everything that the batch says: two steps with equal digests ran the same batch.
    digest: u64,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) steps: Vec<LoggedStep>,
    pub(super) requests: Vec<RequestRecord>,
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

/// Logs a run, and writes the files if it is the one to be written.
pub(super) struct Logged<'a> {
    files: FileSink<'a>,
    write: bool,
    log: Log,
}

impl<'a> Logged<'a> {
    pub(super) fn new(files: FileSink<'a>, write: bool) -> Self {
        Self { files, write, log: Log::default() }
    }

    pub(super) fn into_log(self) -> Log {
        self.log
    }
}

impl Sink for Logged<'_> {
    type Error = ReportError;

    fn step(&mut self, step: &Step) -> Result<(), ReportError> {
        let batch = &step.outcome.batch;
        self.log.steps.push(LoggedStep {
            stage: batch.stage,
            rows: batch.rows.len(),
            took: step.outcome.finished - step.outcome.started,
            digest: digest(batch),
        });
        if self.write { self.files.step(step) } else { Ok(()) }
    }

    fn request(&mut self, record: &RequestRecord) -> Result<(), ReportError> {
        self.log.requests.push(*record);
        if self.write { self.files.request(record) } else { Ok(()) }
    }

    fn refused(&mut self, arrival: &Arrival, refusal: &Refusal) -> Result<(), ReportError> {
        if self.write { self.files.refused(arrival, refusal) } else { Ok(()) }
    }
}

fn digest(batch: &Batch) -> u64 {
    let mut hasher = DefaultHasher::new();
    batch.stage.name().hash(&mut hasher);
    for row in &batch.rows {
        (row.slot.0, row.request.0, row.token, row.position, row.tokens, row.depth.0, row.ends_prompt)
            .hash(&mut hasher);
    }
    for (slot, request) in &batch.admitted {
        (slot.0, request.id.0).hash(&mut hasher);
    }
    for added in &batch.appended {
        (added.slot.0, added.plane, added.block).hash(&mut hasher);
    }
    hasher.finish()
}
