//! What a device does for a live run: arithmetic, memory and streams. Everything that is decided is decided by [`super::Live`].

use crate::batch::{Scored, Slot, Stage, TableEdit, TokenAt};
use crate::executor::Clock;
use crate::request::RequestId;
use crate::submission::Sampling;
use crate::units::{Depth, Nanos};

/// A device with a model on it. Work runs first in, first out.
pub trait Backend {
    /// Why the device failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Token ids that the model knows.
    fn vocab(&self) -> u32;

    /// Queues work behind what was launched already.
    ///
    /// # Errors
    /// The device's.
    fn launch(&mut self, work: Work, clock: &mut dyn Clock) -> Result<(), Self::Error>;

    /// Waits for the oldest launched work. Panics if there is none.
    ///
    /// # Errors
    /// The device's.
    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Ran, Self::Error>;

    /// Frees what a request left behind that will not come back.
    fn forget(&mut self, request: RequestId);
}

/// One batch as a device sees it.
#[derive(Clone, Debug)]
pub struct Work {
    /// What to run.
    pub stage: Stage,
    /// Changes of page tables before it runs, in order.
    pub edits: Vec<TableEdit>,
    /// Every position that runs, row by row; none in offload and restore.
    pub lanes: Vec<Lane>,
    /// Some slot has several positions here that store their keys before any of them attends.
    pub spans: bool,
    /// The tokens to choose, in order.
    pub draws: Vec<Draw>,
    /// Tokens whose log-probabilities are asked for, in order of their lanes.
    pub scores: Vec<Score>,
    /// Sequences that are offloaded or restored.
    pub transfers: Vec<Transfer>,
    /// The exit criterion's signals are asked for (core).
    pub signals: bool,
}

/// One position on its way through layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Whose.
    pub slot: Slot,
    /// The request in that slot.
    pub request: RequestId,
    /// Where in its sequence.
    pub position: u32,
    /// Where its state lies, and its input token: at (slot, position mod window).
    pub place: u32,
    /// The loop that runs, or after which it is read out.
    pub depth: Depth,
    /// Prefill, prelude and forward: the input token, unless it is the one at its place.
    pub token: Option<u32>,
    /// The first position of its slot whose keys are stored together with its own.
    pub fresh: u32,
    /// Coda: it has left the loop; a draft has not.
    pub leaves: bool,
}

/// A token to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The lane whose logits decide.
    pub lane: u32,
    /// The place of the position behind it, whose input the token is.
    pub place: u32,
    /// Index of the output token.
    pub token: u32,
    /// How; the seed is the request's own.
    pub sampling: Sampling,
    /// Ids that cannot be chosen.
    pub banned: Banned,
}

/// Ids that a draw cannot choose: to it their logits are minus infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Banned {
    ids: [u32; Self::MAX],
    count: usize,
}

impl Banned {
    /// How many there can be.
    pub const MAX: usize = 8;

    /// These ids, or `None` if there are too many.
    pub fn new(ids: &[u32]) -> Option<Self> {
        let mut banned = Self { count: ids.len(), ..Self::default() };
        banned.ids.get_mut(..ids.len())?.copy_from_slice(ids);
        Some(banned)
    }

    /// The ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids[..self.count]
    }
}

/// A token whose log-probability is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Whose.
    pub request: RequestId,
    /// Which of its tokens.
    pub at: TokenAt,
    /// The lane whose logits say it.
    pub lane: u32,
    /// The token's id.
    pub id: ScoredId,
    /// How many of the most probable ids are told beside it.
    pub top: u32,
}

/// Which id is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoredId {
    /// A prompt's token.
    Given(u32),
    /// What is chosen by the draw of this index in [`Work::draws`], at the same lane.
    Drawn(u32),
}

/// A sequence on its way to host memory or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its slot.
    pub slot: Slot,
    /// The request.
    pub request: RequestId,
    /// Tokens that have KV.
    pub tokens: u32,
    /// The place of the position behind them.
    pub place: u32,
    /// Restore: the token there, which is the next step's input.
    pub token: Option<u32>,
}

/// What came of a piece of work.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// When the device started it.
    pub started: Nanos,
    /// When it finished.
    pub finished: Nanos,
    /// Core, if asked for: a pair of numbers a lane, by the run's [`crate::models::criterion::Criterion`]. Hazard: those of the
    /// released and the lookahead gate. All others: the number of [`crate::models::gate::Signal`], and nothing.
    pub signals: Vec<[f32; 2]>,
    /// A token a draw, or [`NOT_FINITE`].
    pub chosen: Vec<u32>,
    /// Logits of every draw, if the run keeps them.
    pub logits: Vec<Vec<f32>>,
    /// What [`Score::of`] says of each score's logits, in order; nothing where a logit is not finite.
    pub scores: Vec<Scored>,
}

/// In place of a token: a logit is not finite.
pub const NOT_FINITE: u32 = u32::MAX;
