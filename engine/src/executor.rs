//! Whoever runs batches, whoever tells the time, and who knows the exits in a replay.

use crate::batch::{Batch, Outcome};
use crate::request::{Arrival, RequestId};
use crate::units::{Depth, Nanos};

/// Runs batches first in, first out.
///
/// The modelled executor spends virtual time through the clock; live ones let the clock tell what passed.
pub trait Executor {
    /// Why a batch could not run.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Hears of a request when the scheduler does: the one way by which prompts and true output lengths come in.
    fn arrive(&mut self, arrival: &Arrival);

    /// Queues a batch behind those already launched.
    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Self::Error>;

    /// Waits for the oldest launched batch. Panics if none is in flight.
    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Self::Error>;
}

/// Virtual or real time.
pub trait Clock {
    /// Time since the start of the run.
    fn now(&self) -> Nanos;

    /// Waits until `time`; returns at once if it has passed.
    fn wait_until(&mut self, time: Nanos);
}

/// The clock of a simulation: waiting costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualClock {
    now: Nanos,
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.now
    }

    fn wait_until(&mut self, time: Nanos) {
        self.now = self.now.max(time);
    }
}

/// Replayed exits: a pure function of request and token, so that no schedule can change them.
pub trait ExitSource {
    /// Exit depth of output token `token >= 1` of `request` (token 0 comes from prefill, at full depth).
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth;
}
