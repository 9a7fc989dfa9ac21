//! What every live executor needs beside arithmetic: prompts, transcripts, exits, and mirrors of the block tables.

mod exits;
mod prompts;
mod tables;
mod transcripts;

pub use exits::{ExitError, ExitPolicy, Exits};
pub use prompts::{PromptError, Prompts};
pub use tables::{Place, Tables};
pub use transcripts::{OutputToken, RecordedExits, Transcript, Transcripts};

use crate::executor::Executor;
use crate::models::initial_state::InitialState;
use crate::scheduler::SchedulerConfig;

/// What a live run consists of, apart from the model and the device.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The scheduler's settings: pool sizes, layout, depths, overlap and what ends a sequence.
    pub scheduler: SchedulerConfig,
    /// Who leaves the loop when.
    pub exits: Exits,
    /// What the requests ask.
    pub prompts: Prompts,
    /// Under `finish: eos`, the token that ends a sequence; without one, the arrival's true output length does.
    pub eos: Option<u32>,
    /// Where Huginn's loop starts.
    pub initial_state: InitialState,
    /// Keep the logits of every output token: for comparisons, since they take `vocab` numbers a token.
    pub keep_logits: bool,
}

/// An executor that makes real tokens.
pub trait LiveExecutor: Executor {
    /// Tokens, exit depths and logits so far.
    fn transcripts(&self) -> &Transcripts;

    /// Whose exits these are, as reports must name them.
    fn exit_label(&self) -> &'static str;
}
