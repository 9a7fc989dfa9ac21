//! Who gets a slot, and how prompts are packed (the paper's Appendix A.1 and A.2).

use super::{Preempted, Pressure, Scheduler, Sequence, Waiting, prefix};
use crate::batch::{Batch, Emits, Input, Row, Slot, Span, Stage, TableEdit};
use crate::kv::Hit;
use crate::request::Request;

/// The head of the prompt queue.
#[derive(Clone, Copy)]
struct Candidate {
    request: Request,
    generated: u32,
    offloaded: bool,
    /// Pages that it need not compute.
    hit: Hit,
}

impl Scheduler {
    /// `Prefill` or `Restore` if the admission predicate holds, which is the same for all modes: no decode work or more
    /// free blocks than the headroom, and S free slots or a prompt part done.
    pub(super) fn admission(&mut self) -> Option<Stage> {
        if self.partial.is_some() {
            // Its blocks are its own already.
            return Some(Stage::Prefill);
        }
        let room = !self.decodes() || self.kv.free_blocks() > self.config.kv.headroom_blocks;
        let slots = self.free_slots.len() >= self.config.min_free_slots as usize;
        if !(room && slots) {
            return None;
        }
        let candidate = self.candidate()?;
        self.fits(&candidate).then_some(if candidate.offloaded { Stage::Restore } else { Stage::Prefill })
    }

    /// The same, unless prompts have had their turn and there is something to decode.
    pub(super) fn admission_in_turn(&mut self, decodes: bool) -> Option<Stage> {
        let waits = decodes && self.prefills >= self.config.prefill.batches_max();
        if waits { None } else { self.admission() }
    }

    /// Packs prompts to M tokens: first the one that is part done, then the queue in order.
    pub(super) fn build_prefill(&mut self) -> Batch {
        let mut budget = self.config.max_num_batched_tokens;
        if self.decodes() {
            budget = self.config.prefill.tokens_max(budget);
        }
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

    /// Some sequence has its prompt done.
    fn decodes(&self) -> bool {
        !(self.decode_queue.is_empty() && self.core_queue.is_empty() && self.coda_queue.is_empty())
    }

    fn candidate(&mut self) -> Option<Candidate> {
        let (request, generated, offloaded, chain) = match self.preempted.front_mut() {
            Some(Preempted { request, generated, offloaded, chain, .. }) => (*request, *generated, *offloaded, chain),
            None => {
                let Waiting { request, chain } = self.waiting.front_mut()?;
                (*request, 0, false, chain)
            }
        };
        let known = request.prompt_tokens + generated;
        // What comes back from the host is written anew, which no shared page may be.
        let hit = if offloaded { Hit::default() } else { prefix::find(&self.kv, &self.config.kv, chain, known) };
        Some(Candidate { request, generated, offloaded, hit })
    }

    /// Pages that others hold are there already, and count once.
    fn fits(&self, candidate: &Candidate) -> bool {
        let held = u64::from(candidate.hit.held) * self.kv.blocks_for(1);
        match self.config.kv.pressure {
            Pressure::Reserve => {
                let needed = self.kv.blocks_for(candidate.request.max_tokens()) - held;
                self.kv.reserved_blocks() + needed <= self.kv.total_blocks()
            }
            // Every resident sequence can still grow by a block, or a sequence would come back only to give way again.
            Pressure::Recompute | Pressure::Offload => {
                let growth = u64::from(self.resident()) * self.kv.blocks_for(1);
                self.kv.blocks_for(u64::from(candidate.tokens())) - held + growth <= self.kv.free_blocks()
            }
        }
    }

    /// Takes the head of the prompt queue into a slot with pages for all its known tokens, or changes nothing and returns
    /// `None`.
    fn admit(&mut self, candidate: Candidate, edits: &mut Vec<TableEdit>) -> Option<Slot> {
        let slot = self.free_slots.pop()?;
        let (covered, chain) = match self.preempted.pop_front() {
            Some(parked) => (parked.covered, parked.chain),
            None => (0, self.waiting.pop_front().and_then(|waiting| waiting.chain)),
        };
        let Hit { pages, generated, .. } = candidate.hit;
        let block_tokens = self.config.kv.block_tokens;
        let found = pages * block_tokens;
        edits.push(TableEdit::Admit(slot, candidate.request));
        if let Some(chain) = &chain {
            self.kv.adopt_published(slot, &chain.known_keys(pages as usize)[..pages as usize], edits);
        }
        if self.config.kv.prefix_cache.is_some() && !candidate.offloaded {
            self.reuse.prompt_tokens += candidate.tokens();
            self.reuse.hit_tokens += found;
            self.reuse.generated_hit_tokens += generated * block_tokens;
        }
        self.sequences[slot.index()] = Sequence {
            prefilled: found,
            covered: if candidate.offloaded { covered } else { found },
            published: pages,
            chain,
            ..Sequence::new(candidate.request, candidate.generated)
        };
        if self.config.kv.pressure == Pressure::Reserve {
            self.kv.reserve(slot, candidate.request.max_tokens());
        }
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
