//! What a scheduler is told once.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::StageCosts;
use crate::architecture::Architecture;
use crate::content::PageKey;
use crate::layout::Layout;
use crate::units::Depth;

/// W at most. A slot has tables before the first request comes, and no device runs as many rows at once.
pub const MAX_NUM_SEQS: u32 = 1 << 16;

/// KV blocks at most: the pool lists every free one.
pub const MAX_KV_BLOCKS: u32 = 1 << 25;

/// Which batches are formed (the paper's Algorithms 1 and 2, and its baseline).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "made once a run; boxed, a scheduler's settings could not be copied")]
pub enum Mode {
    /// Whole decode steps at full depth.
    ContinuousBatching,
    /// Exits shrink the core batch; the coda waits for the whole cohort.
    NoRefill,
    /// Successors of exited tokens refill the core batch.
    Refill {
        /// K: exits that must gather before the coda runs ahead of other work.
        min_coda_batch: u32,
    },
    /// Refill whose coda runs as soon as waiting for more exits would cost more than it saves.
    AdaptiveRefill(StageCosts),
}

impl Mode {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ContinuousBatching => "continuous_batching",
            Self::NoRefill => "no_refill",
            Self::Refill { .. } => "refill",
            Self::AdaptiveRefill(_) => "adaptive_refill",
        }
    }
}

/// How far the host runs ahead of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Nothing is queued behind the running batch.
    Synchronous,
    /// One batch is queued; the exits of a core batch still gate the next.
    Asynchronous,
    /// Exits are known one loop early, so the chain core, coda, prelude, core can be queued.
    Lookahead,
}

impl Overlap {
    /// What the outcome of a loop at `depth` says of a token that leaves at `exit`: its exit, once the scheduler may know
    /// it. Under lookahead that is one loop before the exit, otherwise the exit's own loop.
    #[inline]
    pub fn reveals(self, exit: Depth, depth: Depth) -> Option<Depth> {
        let horizon = match self {
            Self::Synchronous | Self::Asynchronous => depth,
            Self::Lookahead => depth.next(),
        };
        (exit <= horizon).then_some(exit)
    }
}

/// What ends a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// Its `max_output_tokens`, known from the start.
    Length,
    /// A token that the executor reports; found late, it costs one row.
    Eos,
}

/// What happens when running sequences need more KV than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pressure {
    /// It cannot happen: a request is admitted only if its longest output fits beside all others'.
    Reserve,
    /// The youngest sequence drops its KV and is prefilled again, at full depth.
    Recompute,
    /// The youngest sequence's KV moves to host memory and comes back.
    Offload,
}

/// What prompts and decode steps leave to each other. A decode step is a core step; in continuous batching a `forward`, and in
/// `no_refill`, which prefills between cohorts only, a cohort's prelude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Prefill {
    /// Whoever can be admitted is prefilled first: the shortest time to the first token.
    #[default]
    First,
    /// At most so many prefill batches between two decode steps.
    Share(u32),
    /// One prefill batch between two decode steps, of at most so many tokens.
    Interleave(u32),
}

impl Prefill {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    fn is_first(&self) -> bool {
        *self == Self::First
    }

    /// Prefill batches between two decode steps, if there is anything to decode.
    pub(super) fn batches_max(self) -> u32 {
        match self {
            Self::First => u32::MAX,
            Self::Share(batches) => batches,
            Self::Interleave(_) => 1,
        }
    }

    /// Tokens of a prefill batch, of the `most` that it may have, if there is anything to decode.
    pub(super) fn tokens_max(self, most: u32) -> u32 {
        match self {
            Self::First | Self::Share(_) => most,
            Self::Interleave(tokens) => tokens.min(most),
        }
    }
}

/// The KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvConfig {
    /// Where the KV of each loop is kept.
    pub layout: Layout,
    /// Blocks in the core's pool; one holds `block_tokens` tokens of one plane.
    pub blocks: u32,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Blocks that admission leaves free while anything decodes.
    pub headroom_blocks: u64,
    /// What to do when the pool runs dry.
    pub pressure: Pressure,
    /// The model has attention layers outside the loop.
    pub boundary_layers: bool,
    /// Which pages are kept for requests that begin alike; none without.
    // Keys of journals are made of settings: those that nobody sets are left out, so that older journals hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_cache: Option<PrefixCache>,
}

/// Pages that outlive their requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrefixCache {
    /// Which are published.
    pub pages: CachedPages,
    /// What all chains of keys begin with.
    pub root: PageKey,
}

/// Which pages a prefix cache publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachedPages {
    /// Those that hold nothing but a prompt, whose tokens have all run at full depth.
    Prompt,
    /// Those of outputs as well. Their tokens may have left early, so that adopting them is another computation than
    /// prefilling them.
    PromptAndOutput,
}

impl CachedPages {
    /// The name in scenarios and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::PromptAndOutput => "prompt_and_output",
        }
    }
}

/// Everything that a schedule depends on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SchedulerConfig {
    /// Which batches are formed.
    pub mode: Mode,
    /// How far ahead of the device.
    pub overlap: Overlap,
    /// What ends a sequence.
    pub finish: Finish,
    /// W: resident sequences at most.
    pub max_num_seqs: u32,
    /// M: prompt tokens per prefill batch at most.
    pub max_num_batched_tokens: u32,
    /// S: free slots that a prefill waits for.
    pub min_free_slots: u32,
    /// What prompts leave to decode steps.
    #[serde(skip_serializing_if = "Prefill::is_first")]
    pub prefill: Prefill,
    /// Prompt plus output at most; longer requests are refused.
    pub max_context_tokens: u32,
    /// Loops at full depth.
    pub r_max: Depth,
    /// No row leaves before this depth; at least 2 under lookahead.
    pub r_min: Depth,
    /// The KV pool.
    pub kv: KvConfig,
}

/// A setting that no scheduler can run with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ConfigError {
    /// The setting, by its name in scenarios.
    pub field: &'static str,
    /// What is wrong and what to change.
    pub reason: String,
}

impl SchedulerConfig {
    /// A model's, with the paper's Table 1 for all that is not the model's: refill with K = 1, 64 slots, 20,480 blocks of
    /// 16 tokens.
    pub fn of(model: &Architecture) -> Self {
        Self {
            mode: Mode::Refill { min_coda_batch: 1 },
            overlap: Overlap::Lookahead,
            finish: Finish::Length,
            max_num_seqs: 64,
            max_num_batched_tokens: 8192,
            min_free_slots: 8,
            prefill: Prefill::First,
            max_context_tokens: 16_384,
            r_max: model.r_max,
            r_min: model.r_min,
            kv: KvConfig {
                layout: Layout::Shared,
                blocks: 20_480,
                block_tokens: 16,
                headroom_blocks: 0,
                pressure: Pressure::Reserve,
                boundary_layers: model.has_boundary_layers(),
                prefix_cache: None,
            },
        }
    }

    /// Checks what the scheduler relies on.
    ///
    /// # Errors
    /// The first setting that is out of range, with what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ensure = |ok: bool, field, reason: fmt::Arguments<'_>| {
            if ok { Ok(()) } else { Err(ConfigError { field, reason: reason.to_string() }) }
        };
        let (w, s) = (self.max_num_seqs, self.min_free_slots);
        ensure(
            (1..=MAX_NUM_SEQS).contains(&w),
            "max_num_seqs",
            format_args!("must be between 1 and {MAX_NUM_SEQS} resident sequences, got {w}"),
        )?;
        ensure(
            self.max_num_batched_tokens >= 1,
            "max_num_batched_tokens",
            format_args!("a prefill batch needs room for at least one token, got 0"),
        )?;
        ensure(
            (1..=w).contains(&s),
            "min_free_slots",
            format_args!("must be between 1 and max_num_seqs = {w}, got {s}"),
        )?;
        if let Prefill::Share(0) | Prefill::Interleave(0) = self.prefill {
            let reason = format_args!("prompts need at least one batch, of at least one token: got 0");
            return ensure(false, "prefill", reason);
        }
        if let Mode::Refill { min_coda_batch: k } = self.mode {
            ensure(
                (1..=w).contains(&k),
                "min_coda_batch",
                format_args!(
                    "must be between 1 and max_num_seqs = {w}, got {k}: no more exits than sequences can gather"
                ),
            )?;
        }
        let (r_min, r_max) = (self.r_min, self.r_max);
        ensure(r_min <= r_max, "r_min", format_args!("must be at most r_max = {r_max}, got {r_min}"))?;
        ensure(
            self.overlap != Overlap::Lookahead || r_min.0 >= 2 || r_max.0 == 1,
            "r_min",
            format_args!("lookahead learns of an exit one loop early, so r_min must be at least 2, got {r_min}"),
        )?;
        ensure(
            (1..=MAX_KV_BLOCKS).contains(&self.kv.blocks),
            "kv.blocks",
            format_args!("must be between 1 and {MAX_KV_BLOCKS} blocks, got {}", self.kv.blocks),
        )?;
        ensure(self.kv.block_tokens >= 1, "kv.block_tokens", format_args!("a block holds at least one token, got 0"))?;
        ensure(
            self.kv.layout != Layout::FirstThenShared || r_min.0 >= 2 || self.mode == Mode::ContinuousBatching,
            "kv.layout",
            format_args!("first_then_shared needs r_min >= 2: a token that exits after one loop has no shared plane"),
        )
    }
}
