//! The one loop that drives every executor, in virtual or real time.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::batch::Outcome;
use crate::executor::{Clock, Executor};
use crate::request::Arrival;
use crate::scheduler::{Refusal, Scheduler, Settled};
use crate::units::Nanos;

/// Hears of everything that happens, in order.
pub trait Observer {
    /// A request was handed to the scheduler at `now` (never before its intended arrival), or was refused.
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refusal: Option<&Refusal>);

    /// A batch ran and its effects are settled. `Break` ends the run.
    fn step(&mut self, step: &Step) -> ControlFlow<()>;
}

/// One executor call, seen from both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What ran, when, and what it decided.
    pub outcome: Outcome,
    /// The scheduler's queues afterwards.
    pub settled: Settled,
}

/// Serves `arrivals` (in order of arrival) to the end, or until the observer breaks off.
///
/// Arrivals count as known at the instant at which the scheduler is asked for a batch; they are pulled from the iterator
/// only when their time has come.
///
/// # Errors
/// The executor's first error; what was observed until then stands.
pub fn run<E: Executor>(
    scheduler: &mut Scheduler,
    executor: &mut E,
    clock: &mut dyn Clock,
    arrivals: &mut dyn Iterator<Item = Arrival>,
    observer: &mut impl Observer,
) -> Result<(), E::Error> {
    let mut in_flight = 0_u32;
    let mut outcomes: VecDeque<Outcome> = VecDeque::new();
    let mut next_arrival = arrivals.next();
    loop {
        loop {
            while let Some(arrival) = next_arrival.filter(|arrival| arrival.request.arrival <= clock.now()) {
                let refusal = scheduler.arrive(arrival.request).err();
                observer.arrived(&arrival, clock.now(), refusal.as_ref());
                if refusal.is_none() {
                    executor.arrive(&arrival);
                }
                next_arrival = arrivals.next();
            }
            let Some(batch) = scheduler.next_batch() else { break };
            executor.launch(batch, clock)?;
            in_flight += 1;
        }
        // Under lookahead a batch can be settled before it has run; a step is told when both are there.
        while let Some(outcome) = outcomes.pop_front() {
            let Some(settled) = scheduler.take_settled() else {
                outcomes.push_front(outcome);
                break;
            };
            assert_eq!(settled.id, outcome.batch.id, "batches are settled in the order in which they run");
            if observer.step(&Step { outcome, settled }).is_break() {
                return Ok(());
            }
        }
        if in_flight > 0 {
            let outcome = executor.wait(clock)?;
            scheduler.complete(&outcome);
            outcomes.push_back(outcome);
            in_flight -= 1;
        } else if let Some(arrival) = &next_arrival {
            assert!(scheduler.is_idle(), "work is left, and no batch can be formed of it");
            clock.wait_until(arrival.request.arrival);
        } else {
            assert!(scheduler.is_idle(), "work is left, and no batch can be formed of it");
            scheduler.check();
            return Ok(());
        }
    }
}
