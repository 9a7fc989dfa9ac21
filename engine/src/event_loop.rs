//! The one loop that drives every executor, in virtual or real time.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::batch::Outcome;
use crate::executor::{Clock, Executor, Reject};
use crate::inbox::{Inbox, Message, Next};
use crate::request::{Arrival, RequestId};
use crate::scheduler::{Refusal, Scheduler, Settled};
use crate::submission::Submission;
use crate::units::Nanos;

/// Hears of everything that happens, in order.
pub trait Observer {
    /// A request was handed over at `now` (never before its intended arrival), or was refused.
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>);

    /// A request that is not over was cancelled at `now`. A row that runs for it may still make a token.
    fn cancelled(&mut self, _request: RequestId, _now: Nanos) {}

    /// A batch ran and its effects are settled. `Break` ends the run.
    fn step(&mut self, step: &Step) -> ControlFlow<()>;

    /// Nothing waits, runs or holds KV until something comes in. A step's queues are older where a request's end was found
    /// late, or it was cancelled.
    fn idle(&mut self) {}
}

/// Who refused a request, and why. It is refused alone; everything else goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It can never fit.
    #[error(transparent)]
    Scheduler(#[from] Refusal),
    /// It asks for what the executor cannot do.
    #[error(transparent)]
    Executor(#[from] Reject),
}

/// One executor call, seen from both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What ran, when, and what it decided.
    pub outcome: Outcome,
    /// The scheduler's queues afterwards.
    pub settled: Settled,
}

/// Serves what comes in to the end, or until the observer breaks off.
///
/// A message counts as known at the instant at which the scheduler is asked for a batch.
///
/// # Errors
/// The executor's first error; what was observed until then stands.
pub fn run<E: Executor>(
    scheduler: &mut Scheduler,
    executor: &mut E,
    clock: &mut dyn Clock,
    inbox: &mut dyn Inbox,
    observer: &mut impl Observer,
) -> Result<(), E::Error> {
    let mut event_loop = EventLoop::new(scheduler, executor, clock);
    loop {
        match event_loop.turn(inbox, observer)? {
            Turn::Ran => {}
            Turn::Idle => match inbox.next() {
                Next::At(time) => event_loop.idle(Some(time)),
                Next::Whenever => event_loop.idle(None),
                Next::Never => return Ok(()),
            },
            Turn::BrokenOff => return Ok(()),
        }
    }
}

/// One engine's loop, for whoever runs several side by side.
#[expect(missing_debug_implementations, reason = "it holds a clock of any kind")]
pub struct EventLoop<'a, E> {
    scheduler: &'a mut Scheduler,
    executor: &'a mut E,
    clock: &'a mut dyn Clock,
    in_flight: u32,
    outcomes: VecDeque<Outcome>,
}

/// What an engine did with its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It launched a batch, or waited for one.
    Ran,
    /// There is nothing to do until something comes.
    Idle,
    /// The observer wants no more.
    BrokenOff,
}

impl<'a, E: Executor> EventLoop<'a, E> {
    /// An engine that has done nothing yet.
    pub fn new(scheduler: &'a mut Scheduler, executor: &'a mut E, clock: &'a mut dyn Clock) -> Self {
        Self { scheduler, executor, clock, in_flight: 0, outcomes: VecDeque::new() }
    }

    /// Its time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Waits until `time`, or until it is woken.
    pub fn idle(&mut self, time: Option<Nanos>) {
        self.clock.idle(time);
    }

    /// Takes the messages that have come, and launches a batch; or if there is none, tells what has been settled and waits for
    /// the oldest batch in flight.
    ///
    /// # Errors
    /// The executor's first error; what was observed until then stands.
    pub fn turn(&mut self, inbox: &mut dyn Inbox, observer: &mut impl Observer) -> Result<Turn, E::Error> {
        let Self { scheduler, executor, clock, in_flight, outcomes } = self;
        while let Some(message) = inbox.poll(clock.now()) {
            match message {
                Message::Submit(submission) => {
                    let refused = submit(scheduler, *executor, &submission).err();
                    observer.arrived(&submission.arrival, clock.now(), refused.as_ref());
                }
                Message::Cancel(request) => {
                    if scheduler.cancel(request) {
                        observer.cancelled(request, clock.now());
                    }
                }
            }
        }
        if let Some(batch) = scheduler.next_batch() {
            executor.launch(batch, *clock)?;
            *in_flight += 1;
            return Ok(Turn::Ran);
        }
        // Under lookahead a batch can be settled before it has run; a step is told when both are there.
        while !outcomes.is_empty()
            && let Some(settled) = scheduler.take_settled()
        {
            let outcome = outcomes.pop_front().expect("there is one");
            assert_eq!(settled.id, outcome.batch.id, "batches are settled in the order in which they run");
            if observer.step(&Step { outcome, settled }).is_break() {
                return Ok(Turn::BrokenOff);
            }
        }
        while let Some(request) = scheduler.take_gone() {
            executor.forget(request);
        }
        if *in_flight > 0 {
            let outcome = executor.wait(*clock)?;
            scheduler.complete(&outcome);
            outcomes.push_back(outcome);
            *in_flight -= 1;
            return Ok(Turn::Ran);
        }
        assert!(scheduler.is_idle(), "work is left, and no batch can be formed of it");
        scheduler.check();
        observer.idle();
        Ok(Turn::Idle)
    }
}

/// Hands a request to both sides, or to neither.
fn submit<E: Executor>(scheduler: &mut Scheduler, executor: &mut E, submission: &Submission) -> Result<(), Refused> {
    let request = submission.arrival.request;
    executor.submit(submission)?;
    let content = scheduler.config().kv.prefix_cache.and_then(|_| submission.content());
    scheduler.arrive_with(request, content).inspect_err(|_| executor.forget(request.id))?;
    Ok(())
}
