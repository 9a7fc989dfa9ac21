//! Runs one scheduler, on the modelled device or on any other.

use std::ops::ControlFlow;

use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::{Clock, Executor, VirtualClock};
use engine::inbox::Replay;
use engine::metrics::{Recorder, RequestRecord};
use engine::models::criterion::Criterion;
use engine::request::{Arrival, RequestId};
use engine::scheduler::Scheduler;
use engine::units::Nanos;

use crate::run::modelled::Modelled;
use crate::run::plan::{Plan, Planned};

/// Takes what a run produces as it goes; every method may be left out.
pub trait Sink {
    /// Why it could not take it.
    type Error;

    /// A step, settled.
    fn step(&mut self, _step: &Step) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A finished request.
    fn request(&mut self, _record: &RequestRecord) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A request that cannot be served.
    fn refused(&mut self, _arrival: &Arrival, _refused: &Refused) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Keeps nothing.
pub struct Discard;

impl Sink for Discard {
    type Error = std::convert::Infallible;
}

/// Why a run broke off.
#[derive(Debug)]
pub enum RunError<X, S> {
    /// The executor could not run a batch.
    Executor(X),
    /// The sink could not take what it was given.
    Sink(S),
}

/// Serves the plan's requests with one of its schedulers on the modelled device, and returns what was recorded.
///
/// # Errors
/// The sink's first error, which ends the run.
pub fn serve<S: Sink>(plan: &Plan, planned: &Planned, sink: &mut S) -> Result<Recorder, S::Error> {
    let plane_copies = plan.scenario.kv.plane_copies;
    let reads_out = plan.criterion().is_some_and(Criterion::reads_logits);
    let mut executor = Modelled::new(&plan.profile, &plan.model, &planned.config, plane_copies, planned.exits.clone())
        .reading_out(reads_out);
    serve_on(&mut executor, &mut VirtualClock::default(), plan, planned, sink).map_err(|error| match error {
        RunError::Sink(error) => error,
        RunError::Executor(never) => match never {},
    })
}

/// The same on any executor and clock.
///
/// # Errors
/// The first error of the executor or the sink, which ends the run.
pub fn serve_on<X: Executor, S: Sink>(
    executor: &mut X,
    clock: &mut dyn Clock,
    plan: &Plan,
    planned: &Planned,
    sink: &mut S,
) -> Result<Recorder, RunError<X::Error, S::Error>> {
    let mut scheduler = Scheduler::new(planned.config).expect("a plan's settings were checked");
    let recorder = Recorder::new(planned.config.max_num_seqs, plan.slo());
    let mut observer = Observing { recorder, sink, result: Ok(()) };
    event_loop::run(&mut scheduler, executor, clock, &mut Replay::new(plan.workload.submissions()), &mut observer)
        .map_err(RunError::Executor)?;
    observer.result.map_err(RunError::Sink)?;
    Ok(observer.recorder)
}

/// Records, and passes on to the sink.
struct Observing<'a, S: Sink> {
    recorder: Recorder,
    sink: &'a mut S,
    result: Result<(), S::Error>,
}

impl<S: Sink> Observer for Observing<'_, S> {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.recorder.arrived(arrival, now, refused);
        if let (Some(refused), Ok(())) = (refused, &self.result) {
            self.result = self.sink.refused(arrival, refused);
        }
    }

    fn cancelled(&mut self, request: RequestId, _: Nanos) {
        self.recorder.cancelled(request);
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.recorder.step(step);
        let given = self
            .sink
            .step(step)
            .and_then(|()| self.recorder.take_finished().try_for_each(|record| self.sink.request(&record)));
        // The first failure stands.
        if self.result.is_ok() {
            self.result = given;
        }
        if self.result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
