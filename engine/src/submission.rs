//! What a client asks for: a request, and how its tokens are to be chosen.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::content::{Content, Piece, Tokens};
use crate::request::Arrival;
use crate::units::Depth;

/// A request on its way in. The scheduler gets `arrival.request`; everything else is the executor's.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// When, and how much.
    pub arrival: Arrival,
    /// The prompt's token ids, as many as the request says; made up by the executor if there are none.
    pub prompt: Option<Arc<[u32]>>,
    /// Where the prompt is made up, the texts that it begins with: equal texts are made up alike.
    pub pieces: Option<Arc<[Piece]>>,
    /// Whose pages it may take: see [`Content::salt`].
    pub cache_salt: Option<Arc<str>>,
    /// How its tokens are chosen; as the run says if nothing else is asked for.
    pub sampling: Option<Sampling>,
    /// When its tokens leave the loop; as the run says if nothing else is asked for.
    pub exit: Option<ExitRule>,
    /// Which tokens end it; the run's if nothing else is asked for.
    pub ends: Option<Ends>,
    /// Which log-probabilities are told of it; none if they are not asked for.
    pub logprobs: Option<Logprobs>,
}

impl From<Arrival> for Submission {
    fn from(arrival: Arrival) -> Self {
        Self {
            arrival,
            prompt: None,
            pieces: None,
            cache_salt: None,
            sampling: None,
            exit: None,
            ends: None,
            logprobs: None,
        }
    }
}

impl Submission {
    /// What its prompt has in common with others'. It shares nothing where the prompt's log-probabilities are asked for: they
    /// are told when a position runs.
    pub fn content(&self) -> Option<Content> {
        if self.logprobs.is_some_and(|logprobs| logprobs.prompt) {
            return None;
        }
        let tokens = match (&self.prompt, &self.pieces) {
            (Some(ids), _) => Tokens::Ids(ids.clone()),
            (None, pieces) => Tokens::Pieces(pieces.clone().unwrap_or_default()),
        };
        Some(Content { salt: self.cache_salt.clone(), tokens })
    }
}

/// How a token is chosen from its logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// 0 takes the largest logit.
    pub temperature: f32,
    /// Only the k most probable tokens; 0 takes all. Tokens of equal probability stay together.
    pub top_k: u32,
    /// Only the most probable tokens that together reach this probability; 1 takes all.
    pub top_p: f32,
    /// Another seed, other draws. A draw depends on the seed and the output token's index; where the seed is the run's, on
    /// the request as well.
    pub seed: u64,
}

impl Sampling {
    /// The largest logit, of equal ones the lowest id.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 };

    /// Whether a token can be chosen so.
    ///
    /// # Errors
    /// What is out of range, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let Self { temperature, top_p, .. } = *self;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(format!("temperature must be zero or more, got {temperature}"));
        }
        if temperature > 0.0 && !temperature.recip().is_finite() {
            return Err(format!("temperature {temperature:e} is too small to divide by: 0 takes the largest logit"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(format!("top_p must be above 0 and at most 1, got {top_p}"));
        }
        Ok(())
    }
}

/// When a request's tokens leave the loop, in place of what the run says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExitRule {
    /// At full depth.
    FullDepth,
    /// By the run's gate at another threshold, in the gate's own unit.
    Threshold {
        /// See [`crate::models::gate::GateSpec::threshold`].
        threshold: f32,
        /// See [`crate::models::gate::GateSpec::min_depth`]; the run's if there is none.
        min_depth: Option<Depth>,
    },
}

/// Which tokens end a request under `finish: eos`, in place of the run's. Under `finish: length` they end nothing, and can
/// be held back all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Any of these ends it. Without any, nothing does but its `max_output_tokens`.
    pub tokens: Arc<[u32]>,
    /// While it has fewer output tokens than this, none of `tokens` can be chosen: to a draw their logits are minus
    /// infinity. A live executor says how many tokens can be held back so (`live::Banned::MAX`).
    pub min_tokens: u32,
}

/// The log-probabilities that come with a request's tokens, see [`crate::batch::Scored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logprobs {
    /// How many of the most probable tokens are told beside each token, at most [`Logprobs::TOP_MAX`].
    pub top: u32,
    /// Also of the prompt's tokens, but for the first, before which there is nothing.
    pub prompt: bool,
}

impl Logprobs {
    /// The most that can be told of one token.
    pub const TOP_MAX: u32 = 20;
}
