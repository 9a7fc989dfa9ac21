//! Pages that requests have in common: looked up when a request is admitted, published once their tokens have run.
//!
//! Batches run in order, so a page can be adopted as soon as the batch that completes it is settled. Two equal prompts of one
//! batch stay private: when they are admitted, neither has run.

use super::{CachedPages, KvConfig, Scheduler, Sequence};
use crate::batch::{Outcome, Slot, Span};
use crate::content::Chain;
use crate::kv::{Hit, KvCache};
use crate::units::Depth;

/// What the prefix cache did for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Tokens that admitted requests needed in the cache: their prompts, after a recompute also what they had made.
    pub prompt_tokens: u32,
    /// Those of them that were there.
    pub hit_tokens: u32,
    /// Those in pages that hold output tokens, which may have left early.
    pub generated_hit_tokens: u32,
    /// Pages that were given up for others.
    pub evicted_pages: u32,
}

/// The published pages that a sequence with `known` tokens can begin with. The last token is not among them: its state makes
/// the next one.
pub(super) fn find(kv: &KvCache, config: &KvConfig, chain: &mut Option<Box<Chain>>, known: u32) -> Hit {
    let (Some(cache), Some(chain)) = (config.prefix_cache, chain) else { return Hit::default() };
    let pages = (known - 1) / config.block_tokens;
    kv.hit(chain.keys(cache.root, pages as usize, config.block_tokens))
}

impl Scheduler {
    /// Notes that positions have run to the end and left at `exit`, and publishes the pages that they complete.
    pub(super) fn cover(&mut self, slot: Slot, span: Span, exit: Depth) {
        let Some(cache) = self.config.kv.prefix_cache else { return };
        let KvConfig { layout, block_tokens, .. } = self.config.kv;
        let sequence = &mut self.sequences[slot.index()];
        let is_published = cache.pages == CachedPages::PromptAndOutput || span.first < sequence.request.prompt_tokens;
        // Behind a token that does not serve every loop nothing is covered any more.
        if sequence.chain.is_none() || !is_published || sequence.covered != span.first {
            return;
        }
        if exit == self.config.r_max || layout.serves(exit, self.config.r_max) {
            sequence.covered = span.end();
            if span.first / block_tokens < span.end() / block_tokens {
                self.publish(slot);
            }
        }
    }

    /// Publishes all that a sequence has, and gives its pages back; those that stay are the last to go.
    pub(super) fn leave_behind(&mut self, slot: Slot) {
        // Where a page's key had another page, which has gone since, its own can take the place.
        self.sequences[slot.index()].published = 0;
        self.publish(slot);
        self.kv.release(slot);
        let Sequence { published, chain, .. } = &self.sequences[slot.index()];
        if let Some(chain) = chain {
            self.kv.touch(chain.known_keys(*published as usize));
        }
    }

    /// Learns which tokens were chosen, where outputs are published by their ids.
    pub(super) fn learn_ids(&mut self, outcome: &Outcome) {
        let cache = self.config.kv.prefix_cache;
        if outcome.tokens.is_empty() || cache.is_none_or(|cache| cache.pages == CachedPages::Prompt) {
            return;
        }
        let mut ids = &outcome.tokens[..];
        for (row, row_outcome) in outcome.batch.rows.iter().zip(&outcome.rows) {
            let sequence = &mut self.sequences[row.slot.index()];
            let resident = sequence.request.id == row.request;
            let chain = if resident {
                sequence.chain.as_mut()
            } else {
                let parked = self.preempted.iter_mut().find(|parked| parked.request.id == row.request);
                parked.and_then(|parked| parked.chain.as_mut())
            };
            let (told, rest) = ids.split_at(row.emitted() as usize);
            ids = rest;
            if let Some(chain) = chain {
                let tokens = row.token..row.token + row.delivered(row_outcome);
                tokens.zip(told).for_each(|(token, &id)| chain.told(token, id));
            }
            if resident {
                self.publish(row.slot);
            }
        }
    }

    /// What the cache did since the last call.
    pub(super) fn take_reuse(&mut self) -> Reuse {
        let evicted = self.kv.evicted_pages();
        let evicted_pages = (evicted - std::mem::replace(&mut self.evicted, evicted)) as u32;
        Reuse { evicted_pages, ..std::mem::take(&mut self.reuse) }
    }

    /// Publishes the pages of a sequence that are complete, as far as their tokens are known.
    pub(super) fn publish(&mut self, slot: Slot) {
        let Some(cache) = self.config.kv.prefix_cache else { return };
        let block_tokens = self.config.kv.block_tokens;
        let Sequence { request, covered, published, chain: Some(chain), .. } = &mut self.sequences[slot.index()] else {
            return;
        };
        let most = match cache.pages {
            CachedPages::Prompt => (*covered).min(request.prompt_tokens),
            CachedPages::PromptAndOutput => *covered,
        };
        let complete = (most / block_tokens) as usize;
        let keys = chain.keys(cache.root, complete, block_tokens);
        for (index, &key) in keys.iter().enumerate().skip(*published as usize) {
            let generated = (index as u32 + 1) * block_tokens > request.prompt_tokens;
            self.kv.publish(slot, index, key, generated);
        }
        *published = keys.len() as u32;
    }
}
