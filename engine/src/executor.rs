//! Whoever runs batches, whoever tells the time, and who knows the exits in a replay.

use crate::batch::{Batch, Outcome};
use crate::request::RequestId;
use crate::submission::Submission;
use crate::units::{Depth, Nanos};

/// Runs batches first in, first out.
///
/// The modelled executor spends virtual time through the clock; live ones let the clock tell what passed.
pub trait Executor {
    /// Why a batch could not run.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Hears of a request when the scheduler does: the one way by which prompts and true output lengths come in.
    ///
    /// # Errors
    /// It cannot serve this one, and forgets it; everything else goes on.
    fn submit(&mut self, submission: &Submission) -> Result<(), Reject>;

    /// Hears that a request is over, behind the last batch that names it.
    fn forget(&mut self, request: RequestId);

    /// Queues a batch behind those already launched.
    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Self::Error>;

    /// Waits for the oldest launched batch. Panics if none is in flight.
    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Self::Error>;
}

/// Why an executor cannot serve a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Reject {
    /// The prompt is not as long as the request says.
    #[error("the prompt has {found} tokens, the request says {expected}")]
    PromptLength { expected: u32, found: usize },
    /// A token that the model does not know.
    #[error("the prompt holds token {token}, the vocabulary has {vocab}")]
    Vocabulary { token: u32, vocab: u32 },
    /// Its prompt repeats output that is not there.
    #[error(
        "the prompt repeats {needed} output tokens of request {}, of which {known} are known: submit it once that request is \
         over", of.0
    )]
    Output { of: RequestId, needed: u32, known: usize },
    /// Its tokens cannot be chosen so.
    #[error("{0}")]
    Sampling(String),
    /// Its tokens cannot leave so.
    #[error("{0}")]
    Exit(String),
    /// It cannot end so.
    #[error("{0}")]
    Ends(String),
    /// Its log-probabilities cannot be told so.
    #[error("{0}")]
    Logprobs(String),
    /// Its number is taken.
    #[error("request {} is being served already: give every request a number of its own", .0.0)]
    Duplicate(RequestId),
}

/// Virtual or real time.
pub trait Clock {
    /// Time since the start of the run.
    fn now(&self) -> Nanos;

    /// Waits until `time`; returns at once if it has passed.
    fn wait_until(&mut self, time: Nanos);

    /// Waits for something to do: until `time` if there is one, or until it is woken.
    fn idle(&mut self, time: Option<Nanos>);
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

    fn idle(&mut self, time: Option<Nanos>) {
        self.wait_until(time.expect("nobody wakes a virtual clock, so it is told until when to wait"));
    }
}

/// Replayed exits: a pure function of request and token, so that no schedule can change them.
pub trait ExitSource {
    /// Exit depth of output token `token >= 1` of `request` (token 0 comes from prefill, at full depth).
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth;
}
