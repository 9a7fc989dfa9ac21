//! Live runs: one executor that decides what must be decided beside arithmetic, over any device that computes.
//!
//! Invariant: everything that a schedule must not change is decided here, once: which ids are known, who leaves the loop
//! and when the scheduler may know, how a token is chosen, what ends a sequence, what is said. A [`Backend`] computes.

mod backend;
mod channel;
mod check;
pub mod conformance;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod executor;
mod exits;
mod sampling;
mod scores;
mod sequences;
mod tables;
mod transcripts;
pub mod wall_clock;
pub mod weights;
mod work;

pub use backend::{Backend, Banned, Draw, Lane, NOT_FINITE, Ran, Score, ScoredId, Transfer, Work};
pub use channel::{Channel, Sender, channel};
pub use executor::{Live, LiveError};
pub use exits::{ExitError, LiveExits};
pub use sampling::choose;
pub use sequences::random_prompt;
pub use tables::{TableEntry, Tables};
pub use transcripts::{OutputToken, TakenExits, Transcript, Transcripts};

use crate::models::initial_state::InitialState;
use crate::scheduler::SchedulerConfig;
use crate::submission::Sampling;

/// What a live run consists of, apart from the model and the device.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The scheduler's settings: pool sizes, layout, depths, overlap and what ends a sequence.
    pub scheduler: SchedulerConfig,
    /// Who leaves the loop when.
    pub exits: LiveExits,
    /// The seed of prompts that requests do not bring.
    pub prompt_seed: u64,
    /// How tokens are chosen where a request does not say.
    pub sampling: Sampling,
    /// Under `finish: eos`, the tokens that end a sequence whose request does not say; without any, the arrival's true
    /// output length does.
    pub end_tokens: Vec<u32>,
    /// Where Huginn's loop starts.
    pub initial_state: InitialState,
    /// Positions of one sequence that can be on their way at once; ordinary decode has one.
    pub window: u32,
    /// Keep the logits of every output token: for comparisons, since they take `vocab` numbers a token.
    pub keep_logits: bool,
    /// Keep the transcripts of requests that are over. A server does not, and runs in constant memory.
    pub keep_transcripts: bool,
}

impl LiveConfig {
    /// Greedy tokens, made-up prompts, and all transcripts kept.
    pub fn new(scheduler: SchedulerConfig, exits: LiveExits) -> Self {
        Self {
            scheduler,
            exits,
            prompt_seed: 0,
            sampling: Sampling::GREEDY,
            end_tokens: Vec::new(),
            initial_state: InitialState::Zero,
            window: 1,
            keep_logits: false,
            keep_transcripts: true,
        }
    }
}
