//! Requests on their way to the client's loop: bodies are made on a thread of their own, ahead of time, and an open load is
//! handed over at its intended times whatever became of the requests before.

use std::thread;
use std::time::Duration;

use engine::executor::Clock;
use engine::live::wall_clock::WallClock;
use engine::request::Arrival;
use engine::units::Nanos;
use hyper::body::Bytes;
use tokio::sync::mpsc::Sender;

use crate::dialect::Dialect;
use crate::run::Load;

/// A request that is ready to be sent.
pub(crate) struct Job {
    pub(crate) arrival: Arrival,
    /// When; a closed loop's are sent as soon as somebody is free.
    pub(crate) due: Option<Nanos>,
    pub(crate) body: Bytes,
}

/// How often the loop is asked how late it is.
const BEAT: Nanos = Nanos(10_000_000);

/// Hands every request over; ends early when nobody listens any more.
pub(crate) fn feed(
    arrivals: impl Iterator<Item = Arrival>,
    dialect: &Dialect,
    load: Load,
    clock: &WallClock,
    jobs: &Sender<Job>,
) {
    for arrival in arrivals {
        let body = dialect.body(&arrival);
        let due = (load == Load::Open).then_some(arrival.request.arrival);
        if let Some(due) = due {
            sleep_until(due, clock);
        }
        if jobs.blocking_send(Job { arrival, due, body }).is_err() {
            return;
        }
    }
}

/// Asks the loop how late it is, until nobody listens any more.
pub(crate) fn beat(clock: &WallClock, beats: &Sender<Nanos>) {
    loop {
        let now = clock.now();
        if beats.blocking_send(now).is_err() {
            return;
        }
        sleep_until(now + BEAT, clock);
    }
}

/// Without spinning: a core that the client takes may be the server's.
fn sleep_until(time: Nanos, clock: &WallClock) {
    let left = time.saturating_sub(clock.now());
    if left > Nanos::ZERO {
        thread::sleep(Duration::from_nanos(left.0));
    }
}
