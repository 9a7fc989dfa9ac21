//! What the event loop costs beside the device: forming batches, launching them, reading their results back.
//!
//! Measured in a real, short run with the scheduler and the executor: from the moment the device is done with a batch to
//! the moment it starts the next, divided where the loop calls the executor. Nothing overlaps in it, so all of it shows.

use std::ops::ControlFlow;

use engine::batch::{Batch, Outcome, Stage};
use engine::event_loop::{Observer, Refused, Step, run};
use engine::executor::{Clock, Executor, Reject};
use engine::inbox::replay;
use engine::metrics::Recorder;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Scheduler, SchedulerConfig};
use engine::submission::Submission;
use engine::units::Nanos;

use crate::error::CalibrateError;
use crate::measurements::Times;

/// Prompt of each request of the run.
pub(super) const PROMPT_TOKENS: u32 = 8;
/// Output of each request of the run.
pub(super) const OUTPUT_TOKENS: u32 = 12;

/// The event loop's work for one batch, in ms: forming it, launching it, reading it back.
#[derive(Clone, Debug, Default)]
struct Gaps {
    build_ms: Vec<f64>,
    launch_ms: Vec<f64>,
    read_ms: Vec<f64>,
}

/// An executor whose calls are timed.
struct Timed<'a, E> {
    inner: &'a mut E,
    rows: usize,
    returned: Option<Nanos>,
    launched: Nanos,
    launch_ms: f64,
    gaps: Gaps,
}

impl<E: Executor> Executor for Timed<'_, E> {
    type Error = E::Error;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        self.inner.submit(submission)
    }

    fn forget(&mut self, request: RequestId) {
        self.inner.forget(request);
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), E::Error> {
        let called = clock.now();
        // Only batches of the full size count, behind another: the run's first was formed of fresh arrivals.
        if let Some(returned) = self.returned.filter(|_| self.counts(&batch)) {
            self.gaps.build_ms.push((called - returned).as_millis());
        }
        self.inner.launch(batch, clock)?;
        self.launched = clock.now();
        self.launch_ms = (self.launched - called).as_millis();
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, E::Error> {
        let outcome = self.inner.wait(clock)?;
        let now = clock.now();
        if self.counts(&outcome.batch) {
            let queued = outcome.started.saturating_sub(self.launched).as_millis();
            self.gaps.launch_ms.push(self.launch_ms + queued);
            self.gaps.read_ms.push(now.saturating_sub(outcome.finished).as_millis());
        }
        self.returned = Some(now);
        Ok(outcome)
    }
}

impl<E> Timed<'_, E> {
    fn counts(&self, batch: &Batch) -> bool {
        batch.stage != Stage::Prefill && batch.rows.len() == self.rows
    }
}

/// Keeps what a live run keeps, so that its cost is in the gaps.
struct Recording(Recorder);

impl Observer for Recording {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.0.arrived(arrival, now, refused);
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.0.step(step);
        ControlFlow::Continue(())
    }
}

/// An executor for such runs; the requests' numbers go on from run to run.
#[derive(Debug)]
pub(super) struct HostBench<E> {
    executor: E,
    config: SchedulerConfig,
    next_request: u32,
}

impl<E: Executor> HostBench<E> {
    pub(super) fn new(executor: E, config: SchedulerConfig) -> Self {
        Self { executor, config, next_request: 0 }
    }

    /// Serves `rows` equal requests at full depth, so that every decode batch has so many rows: the mean times of
    /// building, launching and reading.
    pub(super) fn run(&mut self, rows: u32, clock: &mut dyn Clock) -> Result<[Times; 3], CalibrateError> {
        let config = SchedulerConfig { max_num_seqs: rows, ..self.config };
        let mut scheduler = Scheduler::new(config)
            .map_err(|error| CalibrateError::Argument { option: "--batches", reason: error.to_string() })?;
        let now = clock.now();
        let first = self.next_request;
        self.next_request += rows;
        let arrivals = (first..self.next_request).map(|id| {
            let request = Request {
                id: RequestId(id),
                arrival: now,
                prompt_tokens: PROMPT_TOKENS,
                max_output_tokens: OUTPUT_TOKENS,
            };
            Arrival { request, output_tokens: OUTPUT_TOKENS, cancel_after: None }
        });
        let mut timed = Timed {
            inner: &mut self.executor,
            rows: rows as usize,
            returned: None,
            launched: now,
            launch_ms: 0.0,
            gaps: Gaps::default(),
        };
        let mut recording = Recording(Recorder::new(rows, None));
        run(&mut scheduler, &mut timed, clock, &mut replay(arrivals), &mut recording)
            .map_err(|error| CalibrateError::execution(format!("a run of {rows} requests"), error))?;
        let Gaps { build_ms, launch_ms, read_ms } = timed.gaps;
        // The first batch of a size wakes what no later one has to.
        Ok([build_ms, launch_ms, read_ms].map(|times| Times::of(times.get(1..).unwrap_or_default())))
    }
}
