//! Batches of chosen rows, with the admissions and the pages that an executor needs to run them.

use engine::batch::{Batch, Emits, Input, Row, Slot, Span, Stage, TableEdit};
use engine::request::{Arrival, Request, RequestId};
use engine::submission::Submission;
use engine::units::{Depth, Nanos};

use super::memory::Pages;
use super::plan::MeasurementPlan;

/// Positions of the sequence in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positions {
    pub(super) slot: u32,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// The sequences that batches are made of, each in the slot of its own number.
#[derive(Debug)]
pub(super) struct ScriptedBatches {
    block_tokens: u32,
    pages: Pages,
    sequences: Vec<Sequence>,
    next_batch: u64,
}

#[derive(Debug)]
struct Sequence {
    request: Request,
    resident: bool,
    filled: u32,
    /// Output tokens so far, which is also the index of the next.
    generated: u32,
    pages: u32,
}

impl ScriptedBatches {
    pub(super) fn new(plan: &MeasurementPlan) -> Self {
        let sequence = |(id, tokens): (u32, u32)| Sequence {
            request: Request {
                id: RequestId(id),
                arrival: Nanos::ZERO,
                prompt_tokens: tokens,
                max_output_tokens: u32::MAX - tokens,
            },
            resident: false,
            filled: if plan.filled { tokens } else { 0 },
            generated: 0,
            pages: 0,
        };
        Self {
            block_tokens: plan.block_tokens,
            pages: Pages::new(plan),
            sequences: (0..).zip(plan.held_tokens()).map(sequence).collect(),
            next_batch: 0,
        }
    }

    /// What an executor needs before the first batch: all requests.
    pub(super) fn submissions(&self) -> impl Iterator<Item = Submission> {
        self.sequences.iter().map(|&Sequence { request, .. }| {
            Arrival { request, output_tokens: request.max_output_tokens, cancel_after: None }.into()
        })
    }

    /// The slot of a sequence whose prompt is so long.
    pub(super) fn slot_with(&self, prompt_tokens: u32) -> Option<u32> {
        let mut slots = (0..).zip(&self.sequences);
        slots.find_map(|(slot, sequence)| (sequence.request.prompt_tokens == prompt_tokens).then_some(slot))
    }

    /// Up to `most` prompt tokens that are not in the cache yet, at most `chunk` of each sequence.
    pub(super) fn unfilled(&self, most: u32, chunk: u32) -> Vec<Positions> {
        let mut left = most;
        let mut chunks = Vec::new();
        for (slot, sequence) in (0..).zip(&self.sequences) {
            let count = (sequence.request.prompt_tokens - sequence.filled).min(chunk).min(left);
            if count > 0 {
                left -= count;
                chunks.push(Positions { slot, first: sequence.filled, count });
            }
        }
        chunks
    }

    /// Notes that chunks were prefilled.
    pub(super) fn fill(&mut self, chunks: &[Positions]) {
        for &Positions { slot, first, count } in chunks {
            self.sequences[slot as usize].filled = first + count;
        }
    }

    /// A batch of the given rows.
    pub(super) fn batch(&mut self, (stage, depth): (Stage, Depth), rows: &[Positions]) -> Batch {
        let mut batch = Batch { id: self.next_batch, stage, rows: Vec::new(), edits: Vec::new() };
        self.next_batch += 1;
        for &Positions { slot, first, count } in rows {
            self.hold(slot, first + count, &mut batch);
            let sequence = &mut self.sequences[slot as usize];
            sequence.resident = stage != Stage::Offload;
            let (request, token) = (sequence.request.id, sequence.generated);
            // A prompt that is gone over again ends again: in a real run most prefill batches make tokens.
            let ends_prompt = stage == Stage::Prefill && sequence.filled == sequence.request.prompt_tokens;
            let emits =
                if ends_prompt || matches!(stage, Stage::Coda | Stage::Forward) { Emits::Last } else { Emits::Nothing };
            sequence.generated += u32::from(emits == Emits::Last);
            let input = match stage {
                Stage::Prefill => Input::Given,
                Stage::Prelude | Stage::Forward => Input::Sampled,
                Stage::Core | Stage::Coda | Stage::Offload | Stage::Restore => Input::Carried,
            };
            let span = Span { first, count };
            batch.rows.push(Row { slot: Slot(slot), request, epoch: 0, token, span, depth, input, emits });
        }
        batch
    }

    /// Admits a sequence that has no slot and appends the pages that it lacks.
    fn hold(&mut self, slot: u32, tokens: u32, batch: &mut Batch) {
        let sequence = &mut self.sequences[slot as usize];
        let mut held = sequence.pages;
        if !sequence.resident {
            batch.edits.push(TableEdit::Admit(Slot(slot), sequence.request));
            // One that returns gets its own pages back.
            held = 0;
        }
        sequence.pages = tokens.div_ceil(self.block_tokens).max(sequence.pages);
        // Slots that are never in one batch share pages, and what one wrote there the other still reads.
        let added = held..sequence.pages;
        batch.edits.extend(added.map(|index| TableEdit::Adopt(Slot(slot), self.pages.of(slot, index))));
    }
}
