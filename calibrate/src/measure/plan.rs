//! What is to be timed: the grid, and how.

use std::fmt;

use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::scheduler::MAX_NUM_SEQS;
use engine::units::{Depth, Nanos};

use crate::error::CalibrateError;

/// A context at most: its longest row reads twice as much.
const CONTEXT_MAX: u32 = 1 << 24;

/// The grid and how often it is gone through.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementPlan {
    /// Batch sizes, rising.
    pub batches: Vec<u32>,
    /// KV entries that rows read on average, rising; see [`contexts`](crate::contexts::contexts).
    pub contexts: Vec<u32>,
    /// Loop counts of the fused step, rising; the last is the model's `r_max`, at which the stages are timed.
    pub loops: Vec<u8>,
    /// Points with more KV entries than this in all (batch sizes rounded up to powers of two) are left out: they take the time
    /// of many others, and memory.
    pub max_entries: u32,
    /// Sequences of a timed prefill batch.
    pub prefill_batches: Vec<u32>,
    /// New tokens of each.
    pub prefill_tokens: Vec<u32>,
    /// Tokens that each holds already.
    pub prefill_contexts: Vec<u32>,
    /// Prompt tokens of a timed prefill batch at most.
    pub max_prefill_tokens: u32,
    /// (Token, KV entry) pairs of a timed prefill batch at most.
    pub max_prefill_pairs: u32,
    /// Timed tokens at each point, as in the paper.
    pub tokens: u32,
    /// Tokens before those.
    pub warm_up: u32,
    /// Times that the grid is gone through at most.
    pub rounds: u32,
    /// When to stop, from the start of the measurement; filling the cache counts.
    pub budget: Nanos,
    /// Work of the same kind before the first timing of a batch size: a GPU at its power limit takes a while to find its clock.
    pub settle: Nanos,
    /// Launches that wait behind the running one: 0 times each by itself; a device that is never idle in real runs must not
    /// be so here.
    pub queued: u32,
    /// Executors come with a full cache, so that none is prefilled.
    pub filled: bool,
    /// Where KV is kept.
    pub layout: Layout,
    /// Tokens per KV block.
    pub block_tokens: u32,
}

impl MeasurementPlan {
    /// A grid for models of a megabyte on a few cores: some hundred milliseconds of decoding at most per point.
    ///
    /// Batch sizes on both sides of multiples of eight say to what a row count is padded.
    pub fn small(model: &Architecture, layout: Layout, budget: Nanos) -> Self {
        let full = model.r_max.0;
        let mut loops = vec![full.div_ceil(4), full.div_ceil(2), full];
        loops.dedup();
        Self {
            batches: vec![1, 2, 4, 8, 12, 16, 24, 32, 48, 64],
            contexts: vec![32, 64, 128, 256, 512],
            loops,
            max_entries: 4096,
            prefill_batches: vec![1, 4, 16, 64],
            prefill_tokens: vec![8, 32, 128, 512],
            prefill_contexts: vec![0, 128, 384],
            max_prefill_tokens: 1024,
            max_prefill_pairs: 150_000,
            tokens: 16,
            warm_up: 2,
            rounds: 15,
            budget,
            settle: Nanos::ZERO,
            queued: 0,
            filled: false,
            layout,
            block_tokens: 16,
        }
    }

    /// A grid for models of gigabytes on a GPU: batches up to 512 and contexts up to 8192, as far as 70% of `free_bytes` hold
    /// their KV, and a block more for each row. The rest is for activations and for the runs that time the host.
    ///
    /// Every batch size has a graph of its own, so the padding is known. Times are steps over the context too, where attention's
    /// work fills the device once more, so there are many contexts, each timed briefly. Prompts just above powers of two show what
    /// the next larger product costs.
    pub fn large(model: &Architecture, layout: Layout, budget: Nanos, free_bytes: u64) -> Self {
        let small = Self::small(model, layout, budget);
        let planes = small.loops.iter().map(|&loops| u64::from(layout.planes(Depth(loops))));
        let boundary = small.loops.len() as u64 * model.boundary_kv_bytes();
        let bytes_per_entry = planes.sum::<u64>() * model.core_kv_bytes() + boundary;
        let entries = (free_bytes as f64 * 0.7 / bytes_per_entry as f64).max(1.0) as u32;
        Self {
            batches: vec![1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256, 320, 384, 512],
            contexts: vec![32, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048, 3072, 4096, 8192],
            max_entries: 1 << entries.ilog2(),
            prefill_batches: vec![1, 8, 64],
            prefill_tokens: vec![32, 40, 64, 80, 128, 160, 256, 640, 1024, 4096],
            prefill_contexts: vec![0, 1024, 4096],
            max_prefill_tokens: 8192,
            max_prefill_pairs: 1 << 25,
            tokens: 3,
            warm_up: 1,
            rounds: 9,
            settle: Nanos::from_secs(1.0),
            queued: 2,
            filled: true,
            ..small
        }
    }

    /// Points that this grid does not have, once: between its batch sizes, contexts and chunks, and its smallest batch and the
    /// empty cache again.
    #[must_use]
    pub fn held_out(self) -> Self {
        let between = |list: &[u32]| -> Vec<u32> {
            let middles = list.windows(2).map(|pair| u32::midpoint(pair[0], pair[1]));
            middles.filter(|middle| !list.contains(middle)).collect()
        };
        let with_first = |list: &[u32]| [&list[..1], &between(list)].concat();
        Self {
            batches: with_first(&self.batches),
            contexts: between(&self.contexts),
            prefill_tokens: between(&self.prefill_tokens),
            prefill_contexts: with_first(&self.prefill_contexts),
            rounds: 1,
            ..self
        }
    }

    /// Checks what the measurement relies on.
    ///
    /// # Errors
    /// The first option that no measurement can be made with.
    pub fn check(&self, model: &Architecture) -> Result<(), CalibrateError> {
        let ensure =
            |ok, option, reason: String| if ok { Ok(()) } else { Err(CalibrateError::Argument { option, reason }) };
        let rising = |list: &[u32]| list.len() > 1 && list[0] > 0 && list.is_sorted_by(|a, b| a < b);
        let (batches, contexts) = (&self.batches, &self.contexts);
        ensure(
            rising(batches),
            "--batches",
            format!("must be a rising list of two or more batch sizes, got {batches:?}"),
        )?;
        ensure(
            rising(contexts),
            "--contexts",
            format!("must be a rising list of two or more contexts, got {contexts:?}"),
        )?;
        let largest = |list: &[u32]| list.last().copied().unwrap_or(0);
        ensure(
            largest(batches) <= MAX_NUM_SEQS,
            "--batches",
            format!("a batch must be of at most {MAX_NUM_SEQS} rows, got {}", largest(batches)),
        )?;
        ensure(
            largest(contexts) <= CONTEXT_MAX,
            "--contexts",
            format!("a context must be of at most {CONTEXT_MAX} entries, got {}", largest(contexts)),
        )?;
        let (loops, full) = (&self.loops, model.r_max.0);
        ensure(
            loops.len() > 1 && loops[0] > 0 && loops.is_sorted_by(|a, b| a < b) && loops.last() == Some(&full),
            "--loops",
            format!(
                "must be a rising list of two or more loop counts that ends with the model's r_max = {full}, got {loops:?}"
            ),
        )?;
        ensure(self.tokens > 0, "--tokens", "must be at least 1, got 0".into())?;
        ensure(self.rounds > 0, "--rounds", "must be at least 1, got 0".into())?;
        let smallest = u64::from(batches[1].next_power_of_two()) * u64::from(contexts[1]);
        ensure(
            u64::from(self.max_entries) >= smallest,
            "--max-entries",
            format!("must allow two batch sizes at two contexts, {smallest} KV entries, got {}", self.max_entries),
        )
    }
}

/// One line: two plans that say the same can continue each other's tables.
impl fmt::Display for MeasurementPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            batches,
            contexts,
            loops,
            max_entries,
            prefill_batches,
            prefill_tokens,
            prefill_contexts,
            max_prefill_tokens,
            max_prefill_pairs,
            tokens,
            warm_up,
            settle,
            queued,
            layout,
            block_tokens,
            ..
        } = self;
        write!(
            f,
            "batches {batches:?}, contexts {contexts:?}, loops {loops:?}, at most {max_entries} entries; prompts {prefill_tokens:?} \
             behind {prefill_contexts:?} times {prefill_batches:?}, at most {max_prefill_tokens} tokens and {max_prefill_pairs} \
             pairs; {tokens} tokens after {warm_up}, {} s to settle, {queued} queued, {}, blocks of {block_tokens}",
            settle.as_secs(),
            layout.name()
        )
    }
}
