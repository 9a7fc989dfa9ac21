//! A batch as a device sees it: its rows as positions, with the ids that the host knows and the tokens to choose.

use std::collections::BTreeMap;

use super::backend::{Draw, Lane, Score, ScoredId, Transfer, Work};
use super::exits::Decider;
use super::sequences::Sequence;
use crate::batch::{Batch, Emits, Input, Row, Stage, TokenAt};
use crate::layout::Layout;
use crate::request::RequestId;
use crate::submission::Logprobs;

/// What is the same for all batches of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Translator {
    pub(super) layout: Layout,
    pub(super) slots: u32,
    pub(super) window: u32,
    /// A gate may decide; its signals are read of core batches in which it does.
    pub(super) signals: bool,
}

impl Translator {
    /// What a device has to do for `batch`.
    pub(super) fn work(&self, batch: &Batch, sequences: &BTreeMap<RequestId, Sequence>) -> Work {
        let asks = |row: &Row| matches!(sequences[&row.request].decider, Decider::Gate(_));
        let mut work = Work {
            stage: batch.stage,
            edits: batch.edits.clone(),
            lanes: Vec::with_capacity(batch.rows.len()),
            spans: false,
            draws: Vec::new(),
            scores: Vec::new(),
            transfers: Vec::new(),
            signals: self.signals && batch.stage == Stage::Core && batch.rows.iter().any(asks),
        };
        for row in &batch.rows {
            let sequence = &sequences[&row.request];
            if matches!(batch.stage, Stage::Offload | Stage::Restore) {
                let (slot, request, tokens, place) =
                    (row.slot, row.request, row.span.end(), self.place(row, row.span.end()));
                let token = sequence.ids().get(tokens as usize).copied();
                work.transfers.push(Transfer { slot, request, tokens, place, token });
                continue;
            }
            let positions = row.span.positions();
            work.lanes.extend(positions.map(|position| Lane {
                slot: row.slot,
                request: row.request,
                position,
                place: self.place(row, position),
                depth: row.depth,
                token: (row.input == Input::Given).then(|| sequence.ids()[position as usize]),
                fresh: row.span.first,
                leaves: row.emits != Emits::Draft,
            }));
            let lanes = work.lanes.len() as u32;
            let emitted = row.emitted();
            work.draws.extend((0..emitted).map(|index| Draw {
                lane: lanes - emitted + index,
                place: self.place(row, row.span.end() - emitted + index + 1),
                token: row.token + index,
                sampling: sequence.sampling,
                banned: sequence.banned(row.token + index),
            }));
            if let Some(logprobs) = sequence.logprobs {
                self.score(row, sequence, logprobs, &mut work);
            }
        }
        if !matches!(batch.stage, Stage::Prefill | Stage::Offload | Stage::Restore) {
            work.spans = self.join(&mut work.lanes, batch.stage == Stage::Coda);
        }
        work
    }

    /// Asks for the log-probabilities of the tokens behind a row's positions, whose lanes and draws are the work's last.
    fn score(&self, row: &Row, sequence: &Sequence, Logprobs { top, prompt }: Logprobs, work: &mut Work) {
        let request = row.request;
        let first_lane = work.lanes.len() as u32 - row.span.count;
        let lane = |position: u32| first_lane + position - row.span.first;
        if prompt && work.stage == Stage::Prefill {
            let positions = row.span.first.max(sequence.prefilled)..row.span.end().min(sequence.prompt_tokens - 1);
            work.scores.extend(positions.map(|position| {
                let id = ScoredId::Given(sequence.ids()[position as usize + 1]);
                Score { request, at: TokenAt::Prompt(position + 1), lane: lane(position), id, top }
            }));
        }
        if row.emits != Emits::Draft {
            let emitted = row.emitted();
            let first_draw = work.draws.len() as u32 - emitted;
            work.scores.extend((0..emitted).map(|index| Score {
                request,
                at: TokenAt::Output(row.token + index),
                lane: work.lanes.len() as u32 - emitted + index,
                id: ScoredId::Drawn(first_draw + index),
                top,
            }));
        }
    }

    /// Where a position's state lies.
    fn place(&self, row: &Row, position: u32) -> u32 {
        row.slot.0 * self.window + position % self.window
    }

    /// Finds the lanes of one slot that store their keys together: those at one depth, and in the coda all. True if there
    /// are any.
    fn join(&self, lanes: &mut [Lane], at_any_depth: bool) -> bool {
        let mut seen = vec![false; self.slots as usize];
        // In ordinary decode every slot has one position, and there is nothing to find.
        if !lanes.iter().any(|lane| std::mem::replace(&mut seen[lane.slot.index()], true)) {
            return false;
        }
        let key = |lane: &Lane| (lane.slot, if at_any_depth { 0 } else { lane.depth.0 });
        let mut first = BTreeMap::new();
        for lane in lanes.iter() {
            let first = first.entry(key(lane)).or_insert(lane.position);
            *first = lane.position.min(*first);
        }
        if matches!(self.layout, Layout::Shared | Layout::FirstThenShared) && !at_any_depth {
            let slots = seen.iter().filter(|&&seen| seen).count();
            assert_eq!(first.len(), slots, "{}: a slot's positions are at one depth in a batch", self.layout);
        }
        lanes.iter_mut().for_each(|lane| lane.fresh = first[&key(lane)]);
        lanes.iter().any(|lane| lane.fresh < lane.position)
    }
}
