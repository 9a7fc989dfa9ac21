//! What a run's tokens ask of any device, in whatever batches they run.

use serde::{Deserialize, Serialize};

use crate::units::Depth;

/// Sums over a run's tokens that no schedule can change: what a preemption makes again is in none of them. What a prefix cache
/// finds is in none either, and depends on who ran before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Prompts, each of which made a first token.
    pub prompts: u64,
    /// Tokens of the prompts, but for those that were found in a prefix cache.
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
    /// Adds a request's prompt, the first `found` tokens of which need not run.
    pub fn add_prompt(&mut self, tokens: u32, found: u32) {
        let pairs = |tokens: u64| tokens * (tokens + 1) / 2;
        let (tokens, found) = (u64::from(tokens), u64::from(found));
        self.prompts += 1;
        self.prompt_tokens += tokens - found;
        self.prompt_pairs += pairs(tokens) - pairs(found);
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
