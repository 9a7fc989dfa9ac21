//! Who gets a slot, and how prompts are packed (the paper's Appendix A.1 and A.2).

use super::{Preempted, Pressure, Scheduler, Sequence};
use crate::batch::{Batch, Row, Slot, Stage};
use crate::request::Request;
use crate::units::Depth;

/// The head of the prompt queue.
#[derive(Clone, Copy)]
struct Candidate {
    request: Request,
    generated: u32,
    offloaded: bool,
}

impl Scheduler {
    /// `Prefill` or `Restore` if the admission predicate holds, which is the same for all modes: no decode work or more
    /// free blocks than the headroom, and S free slots or a prompt part done.
    pub(super) fn admission(&self) -> Option<Stage> {
        if self.partial.is_some() {
            // Its blocks are its own already.
            return Some(Stage::Prefill);
        }
        let candidate = self.candidate()?;
        let decodes = !(self.decode_queue.is_empty() && self.core_queue.is_empty() && self.coda_queue.is_empty());
        let room = !decodes || self.kv.free_blocks() > self.config.kv.headroom_blocks;
        let slots = self.free_slots.len() >= self.config.min_free_slots as usize;
        (room && slots && self.fits(&candidate)).then_some(if candidate.offloaded {
            Stage::Restore
        } else {
            Stage::Prefill
        })
    }

    /// Packs prompts to M tokens: first the one that is part done, then the queue in order.
    pub(super) fn build_prefill(&mut self) -> Batch {
        let mut budget = self.config.max_num_batched_tokens;
        let (mut rows, mut admitted, mut appended) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(slot) = self.partial {
            rows.push(self.chunk(slot, &mut budget));
        }
        while budget > 0 {
            let Some(candidate) = self.candidate().filter(|candidate| !candidate.offloaded && self.fits(candidate))
            else {
                break;
            };
            let Some(slot) = self.admit(candidate) else { break };
            let grown = self.kv.grow(slot, candidate.tokens(), &mut appended);
            assert!(grown, "admission counted the prompt's blocks");
            admitted.push((slot, candidate.request));
            rows.push(self.chunk(slot, &mut budget));
        }
        self.partial = rows.last().filter(|row| !row.ends_prompt).map(|row| row.slot);
        Batch { admitted, appended, ..self.issue(Stage::Prefill, rows, false) }
    }

    /// Brings offloaded sequences back, oldest first, as many as fit.
    pub(super) fn build_restore(&mut self) -> Batch {
        let (mut rows, mut admitted, mut appended) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(candidate) = self.candidate().filter(|candidate| candidate.offloaded && self.fits(candidate)) {
            let Some(slot) = self.admit(candidate) else { break };
            // One token more than it had, so that it makes progress before it can be preempted for want of a block.
            let grown = self.kv.grow(slot, candidate.tokens(), &mut appended);
            assert!(grown, "admission counted the sequence's blocks");
            admitted.push((slot, candidate.request));
            let tokens = self.sequences[slot.index()].position();
            rows.push(Row { position: 0, tokens, ..self.sequences[slot.index()].row(slot, Depth::FIRST) });
        }
        Batch { admitted, appended, ..self.issue(Stage::Restore, rows, false) }
    }

    fn candidate(&self) -> Option<Candidate> {
        let preempted = self.preempted.front().map(|&Preempted { request, generated, offloaded }| Candidate {
            request,
            generated,
            offloaded,
        });
        preempted.or_else(|| self.waiting.front().map(|&request| Candidate { request, generated: 0, offloaded: false }))
    }

    fn fits(&self, candidate: &Candidate) -> bool {
        match self.config.kv.pressure {
            Pressure::Reserve => {
                self.kv.reserved_blocks() + self.kv.blocks_for(candidate.request.max_tokens()) <= self.kv.total_blocks()
            }
            // Every resident sequence can still grow by a block, or a sequence would come back only to give way again.
            Pressure::Recompute | Pressure::Offload => {
                let growth = u64::from(self.resident()) * self.kv.blocks_for(1);
                self.kv.blocks_for(u64::from(candidate.tokens())) + growth <= self.kv.free_blocks()
            }
        }
    }

    /// Takes the head of the prompt queue into a slot, or changes nothing and returns `None`.
    fn admit(&mut self, candidate: Candidate) -> Option<Slot> {
        let slot = self.free_slots.pop()?;
        if self.preempted.pop_front().is_none() {
            self.waiting.pop_front();
        }
        self.sequences[slot.index()] = Sequence::new(candidate.request, candidate.generated);
        if self.config.kv.pressure == Pressure::Reserve {
            self.kv.reserve(slot, self.kv.blocks_for(candidate.request.max_tokens()));
        }
        Some(slot)
    }

    /// The next part of the prompt in `slot` that fits the budget.
    fn chunk(&mut self, slot: Slot, budget: &mut u32) -> Row {
        let sequence = &mut self.sequences[slot.index()];
        let tokens = (sequence.prefill_target - sequence.prefilled).min(*budget);
        *budget -= tokens;
        let position = sequence.prefilled;
        sequence.prefilled += tokens;
        Row {
            slot,
            request: sequence.request.id,
            token: sequence.generated,
            position,
            tokens,
            depth: self.config.r_max,
            ends_prompt: sequence.prefilled == sequence.prefill_target,
        }
    }
}

impl Candidate {
    /// Tokens whose KV it needs before it can make its next token.
    fn tokens(&self) -> u32 {
        self.request.prompt_tokens + self.generated
    }
}
