//! What a run's tokens ask of any device, in whatever batches they run.

use serde::{Deserialize, Serialize};

use crate::units::Depth;

/// Sums over a run's tokens that no schedule can change: what a preemption makes again is in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Prompts, each of which made a first token.
    pub prompts: u64,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// (token, KV entry) pairs of causal attention over the prompts.
    pub prompt_pairs: u64,
    /// Tokens that decode steps made.
    pub decoded: u64,
    /// Core loops of the decoded tokens: the sum of their exit depths.
    pub loops: u64,
    /// KV entries that the decoded tokens attend to, their own included, once each.
    pub entries: u64,
    /// The same, once per core loop.
    pub looped_entries: u64,
}

impl Work {
    /// Adds a request's prompt.
    pub fn add_prompt(&mut self, tokens: u32) {
        let tokens = u64::from(tokens);
        self.prompts += 1;
        self.prompt_tokens += tokens;
        self.prompt_pairs += tokens * (tokens + 1) / 2;
    }

    /// Adds a decoded token that left at `depth` and attends to `context` KV entries.
    pub fn add_token(&mut self, depth: Depth, context: u32) {
        let (depth, context) = (u64::from(depth.0), u64::from(context));
        self.decoded += 1;
        self.loops += depth;
        self.entries += context;
        self.looped_entries += depth * context;
    }
}
