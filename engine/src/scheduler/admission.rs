//! Who gets a slot, and how prompts are packed (the paper's Appendix A.1 and A.2).

use super::{Preempted, Pressure, Scheduler, Sequence};
use crate::batch::{Batch, Emits, Input, Row, Slot, Span, Stage, TableEdit};
use crate::request::Request;

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
        let (mut rows, mut edits) = (Vec::new(), Vec::new());
        if let Some(slot) = self.partial {
            rows.push(self.chunk(slot, &mut budget));
        }
        while budget > 0 {
            let Some(candidate) = self.candidate().filter(|candidate| !candidate.offloaded && self.fits(candidate))
            else {
                break;
            };
            let Some(slot) = self.admit(candidate, &mut edits) else { break };
            rows.push(self.chunk(slot, &mut budget));
        }
        self.partial = rows.last().filter(|row| row.emits == Emits::Nothing).map(|row| row.slot);
        Batch { edits, ..self.issue(Stage::Prefill, rows, false) }
    }

    /// Brings offloaded sequences back, oldest first, as many as fit.
    pub(super) fn build_restore(&mut self) -> Batch {
        let (mut rows, mut edits) = (Vec::new(), Vec::new());
        while let Some(candidate) = self.candidate().filter(|candidate| candidate.offloaded && self.fits(candidate)) {
            // With a page for one token more than it had, so that it makes progress before it can be preempted again.
            let Some(slot) = self.admit(candidate, &mut edits) else { break };
            rows.push(self.sequences[slot.index()].moved(slot));
        }
        Batch { edits, ..self.issue(Stage::Restore, rows, false) }
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

    /// Takes the head of the prompt queue into a slot with pages for all its known tokens, or changes nothing and returns
    /// `None`.
    fn admit(&mut self, candidate: Candidate, edits: &mut Vec<TableEdit>) -> Option<Slot> {
        let slot = self.free_slots.pop()?;
        if self.preempted.pop_front().is_none() {
            self.waiting.pop_front();
        }
        self.sequences[slot.index()] = Sequence::new(candidate.request, candidate.generated);
        if self.config.kv.pressure == Pressure::Reserve {
            self.kv.reserve(slot, self.kv.blocks_for(candidate.request.max_tokens()));
        }
        edits.push(TableEdit::Admit(slot, candidate.request));
        let grown = self.kv.grow(slot, candidate.tokens(), edits);
        assert!(grown, "admission counted the blocks of the known tokens");
        Some(slot)
    }

    /// The next part of the prompt in `slot` that fits the budget.
    fn chunk(&mut self, slot: Slot, budget: &mut u32) -> Row {
        let sequence = &mut self.sequences[slot.index()];
        let count = (sequence.prefill_target - sequence.prefilled).min(*budget);
        *budget -= count;
        let span = Span { first: sequence.prefilled, count };
        sequence.prefilled += count;
        let ends_prompt = sequence.prefilled == sequence.prefill_target;
        let emits = if ends_prompt { Emits::Last } else { Emits::Nothing };
        Row { span, input: Input::Given, emits, ..sequence.row(slot, self.config.r_max) }
    }
}

impl Candidate {
    /// Tokens whose KV it needs before it can make its next token.
    fn tokens(&self) -> u32 {
        self.request.prompt_tokens + self.generated
    }
}
