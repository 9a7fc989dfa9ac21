//! Several modelled engines behind a router, on one virtual time.
//!
//! Every engine has a clock, which a turn takes to the end of a batch. Whoever's is earliest takes the next turn, so nothing
//! that another does can reach it before that. Messages and what engines did are told in order of time in between: a request
//! is routed when all that was over by then is known to be.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use engine::closed_loop::Clients;
use engine::event_loop::{EventLoop, Observer, Refused, Step, Turn};
use engine::executor::VirtualClock;
use engine::inbox::{Inbox, Message, Next};
use engine::metrics::Recorder;
use engine::request::{Arrival, RequestId};
use engine::scheduler::Scheduler;
use engine::units::Nanos;

use crate::run::plan::{Plan, Planned};
use crate::run::serve::{Sink, inbox, modelled};
use crate::scenario::{Replicas, Routing};

/// Serves the plan's requests with `replicas.count` engines that have one of its schedulers each. The sink gets requests; steps
/// are several engines', and are recorded alone.
///
/// # Errors
/// The sink's first error, which ends the run.
pub(super) fn serve<S: Sink>(
    replicas: Replicas,
    plan: &Plan,
    planned: &Planned,
    sink: &mut S,
) -> Result<Recorder, S::Error> {
    let count = replicas.count.0 as usize;
    let clients = plan.workload.clients();
    let mut requests = inbox(plan, clients.as_ref());
    let engine = || (Scheduler::new(planned.config).expect("a plan's settings were checked"), modelled(plan, planned));
    let mut engines: Vec<_> = (0..count).map(|_| (engine(), VirtualClock::default())).collect();
    let mut loops: Vec<_> =
        engines.iter_mut().map(|((scheduler, device), clock)| EventLoop::new(scheduler, device, clock)).collect();
    let mut queues: Vec<Queue> = (0..count).map(|_| Queue::default()).collect();
    let mut router = Router::new(replicas.routing, count);
    let mut told = Told {
        recorder: Recorder::of_replicas(count, planned.config.max_num_seqs, plan.slo()),
        clients: clients.as_ref(),
        sink,
    };
    let mut events = Events::default();
    // Those with something to do.
    let mut busy = vec![false; count];
    loop {
        let turn = (0..count).filter(|&replica| busy[replica]).min_by_key(|&replica| (loops[replica].now(), replica));
        let horizon = turn.map(|replica| loops[replica].now());
        let reached = |time: Nanos| horizon.is_none_or(|horizon| time <= horizon);
        let message = match requests.next() {
            Next::At(time) => Some(time),
            Next::Whenever | Next::Never => None,
        };
        if let Some(event) = events.pop_until(|time| reached(time) && message.is_none_or(|message| time <= message)) {
            let (replica, over) = told.tell(event)?;
            router.over(replica, over);
        } else if let Some(time) = message.filter(|&time| reached(time)) {
            let message = requests.poll(time).expect("its time has come");
            let Some((replica, is_new)) = router.route(&message) else { continue };
            if is_new {
                told.recorder.sent_to(replica);
            }
            queues[replica].0.push_back((time, message));
            if !std::mem::replace(&mut busy[replica], true) {
                loops[replica].idle(Some(time));
            }
        } else if let Some(replica) = turn {
            let mut hearing = Hearing { replica, events: &mut events };
            let Ok(turn) = loops[replica].turn(&mut queues[replica], &mut hearing);
            if turn == Turn::Idle {
                match queues[replica].next() {
                    Next::At(time) => loops[replica].idle(Some(time)),
                    Next::Whenever | Next::Never => busy[replica] = false,
                }
            }
        } else {
            return Ok(told.recorder);
        }
    }
}

/// What was routed to an engine and not taken yet, with its time.
#[derive(Debug, Default)]
struct Queue(VecDeque<(Nanos, Message)>);

impl Inbox for Queue {
    fn poll(&mut self, now: Nanos) -> Option<Message> {
        self.0.pop_front_if(|(time, _)| *time <= now).map(|(_, message)| message)
    }

    fn next(&mut self) -> Next {
        self.0.front().map_or(Next::Never, |&(time, _)| Next::At(time))
    }
}

/// Who gets which message.
#[derive(Debug)]
struct Router {
    routing: Routing,
    /// Requests of each that are not over.
    loads: Vec<u64>,
    /// Who got the last one.
    last: usize,
    /// Where requests are that may be cancelled.
    cancellable: BTreeMap<RequestId, usize>,
}

impl Router {
    fn new(routing: Routing, count: usize) -> Self {
        Self { routing, loads: vec![0; count], last: count - 1, cancellable: BTreeMap::new() }
    }

    /// The replica that a message goes to, and whether it is a request; `None` if nobody knows whom it is about.
    fn route(&mut self, message: &Message) -> Option<(usize, bool)> {
        let arrival = match message {
            Message::Submit(submission) => &submission.arrival,
            Message::Cancel(request) => return Some((self.cancellable.remove(request)?, false)),
        };
        let replica = match self.routing {
            Routing::RoundRobin => {
                self.last = (self.last + 1) % self.loads.len();
                self.last
            }
            Routing::LeastLoaded => {
                let fewest = (0..self.loads.len()).min_by_key(|&replica| (self.loads[replica], replica));
                fewest.expect("there is a replica")
            }
        };
        self.loads[replica] += 1;
        if arrival.cancel_after.is_some() {
            self.cancellable.insert(arrival.request.id, replica);
        }
        Some((replica, true))
    }

    fn over(&mut self, replica: usize, requests: u64) {
        self.loads[replica] -= requests;
    }
}

/// What an engine did.
#[derive(Debug)]
enum Happened {
    Arrived(Arrival, Option<Refused>),
    Cancelled(RequestId),
    Ran(Step),
}

#[derive(Debug)]
struct Event {
    time: Nanos,
    replica: usize,
    happened: Happened,
}

/// What engines did and nobody was told yet, in order of time, and of happening where times are equal.
#[derive(Debug, Default)]
struct Events {
    events: BTreeMap<(Nanos, u64), Event>,
    next: u64,
}

impl Events {
    fn push(&mut self, event: Event) {
        self.events.insert((event.time, self.next), event);
        self.next += 1;
    }

    /// The first one, if its time will do.
    fn pop_until(&mut self, until: impl Fn(Nanos) -> bool) -> Option<Event> {
        let first = self.events.first_entry().filter(|first| until(first.key().0))?;
        Some(first.remove())
    }
}

/// Notes what an engine does in its turn.
struct Hearing<'a> {
    replica: usize,
    events: &'a mut Events,
}

impl Hearing<'_> {
    fn note(&mut self, time: Nanos, happened: Happened) {
        self.events.push(Event { time, replica: self.replica, happened });
    }
}

impl Observer for Hearing<'_> {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.note(now, Happened::Arrived(*arrival, refused.cloned()));
    }

    fn cancelled(&mut self, request: RequestId, now: Nanos) {
        self.note(now, Happened::Cancelled(request));
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.note(step.outcome.finished, Happened::Ran(step.clone()));
        ControlFlow::Continue(())
    }
}

/// Who is told of it.
struct Told<'a, S> {
    recorder: Recorder,
    clients: Option<&'a Clients>,
    sink: &'a mut S,
}

impl<S: Sink> Told<'_, S> {
    /// Gives the replica, and how many of its requests are over by it.
    fn tell(&mut self, Event { time, replica, happened }: Event) -> Result<(usize, u64), S::Error> {
        let before = self.recorder.over();
        match happened {
            Happened::Arrived(arrival, refused) => {
                self.recorder.arrived(&arrival, time, refused.as_ref());
                if let Some(refused) = refused {
                    self.sink.refused(&arrival, &refused)?;
                }
            }
            Happened::Cancelled(request) => self.recorder.cancelled(request),
            Happened::Ran(step) => {
                self.recorder.step_of(replica, &step);
                self.recorder.take_finished().try_for_each(|record| self.sink.request(&record))?;
            }
        }
        let over = self.recorder.over() - before;
        if let Some(clients) = self.clients {
            (0..over).for_each(|_| clients.answered(time));
        }
        Ok((replica, over))
    }
}
