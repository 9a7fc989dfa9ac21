//! Runs one scheduler, on the modelled device or on any other.

use std::ops::ControlFlow;

use engine::closed_loop::Clients;
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::{Clock, Executor, VirtualClock};
use engine::inbox::{Inbox, Replay};
use engine::metrics::{Recorder, RequestRecord};
use engine::models::criterion::Criterion;
use engine::request::{Arrival, RequestId};
use engine::scheduler::Scheduler;
use engine::units::Nanos;
use traces::Exits;

use crate::run::modelled::Modelled;
use crate::run::plan::{Plan, Planned};
use crate::run::replicas;

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
    if let Some(replicas) = plan.scenario.replicas {
        return replicas::serve(replicas, plan, planned, sink);
    }
    serve_on(&mut modelled(plan, planned), &mut VirtualClock::default(), plan, planned, sink).map_err(|error| {
        match error {
            RunError::Sink(error) => error,
            RunError::Executor(never) => match never {},
        }
    })
}

/// The device that the plan's profile describes.
pub(super) fn modelled(plan: &Plan, planned: &Planned) -> Modelled<Exits> {
    let plane_copies = plan.scenario.kv.plane_copies;
    let reads_out = plan.criterion().is_some_and(Criterion::reads_logits);
    Modelled::new(&plan.profile, &plan.model, &planned.config, plane_copies, planned.exits.clone())
        .reading_out(reads_out)
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
    let clients = plan.workload.clients();
    let mut inbox = inbox(plan, clients.as_ref());
    let mut observer = Observing { recorder, sink, clients: clients.as_ref(), result: Ok(()) };
    event_loop::run(&mut scheduler, executor, clock, &mut *inbox, &mut observer).map_err(RunError::Executor)?;
    observer.result.map_err(RunError::Sink)?;
    Ok(observer.recorder)
}

/// The plan's requests: at their arrivals, or from clients who wait for answers.
pub(super) fn inbox<'a>(plan: &'a Plan, clients: Option<&'a Clients>) -> Box<dyn Inbox + 'a> {
    let requests = plan.workload.submissions();
    match clients {
        None => Box::new(Replay::new(requests)),
        Some(clients) => Box::new(clients.send(requests)),
    }
}

/// Records, passes on to the sink, and tells clients who wait of ends.
struct Observing<'a, S: Sink> {
    recorder: Recorder,
    sink: &'a mut S,
    clients: Option<&'a Clients>,
    result: Result<(), S::Error>,
}

impl<S: Sink> Observing<'_, S> {
    /// Records something, and answers whoever's request it ended.
    fn record(&mut self, now: Nanos, what: impl FnOnce(&mut Recorder)) {
        let before = self.recorder.over();
        what(&mut self.recorder);
        if let Some(clients) = self.clients {
            (before..self.recorder.over()).for_each(|_| clients.answered(now));
        }
    }
}

impl<S: Sink> Observer for Observing<'_, S> {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.record(now, |recorder| recorder.arrived(arrival, now, refused));
        if let (Some(refused), Ok(())) = (refused, &self.result) {
            self.result = self.sink.refused(arrival, refused);
        }
    }

    fn cancelled(&mut self, request: RequestId, now: Nanos) {
        self.record(now, |recorder| recorder.cancelled(request));
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.record(step.outcome.finished, |recorder| recorder.step(step));
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
