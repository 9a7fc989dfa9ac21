//! Decode batches grow the KV; when the pool runs dry, the youngest candidates give way.

use super::{NOBODY, Preempted, Pressure, Scheduler, Sequence};
use crate::batch::{Batch, Emits, Row, Slot, Stage};
use crate::units::Depth;

impl Scheduler {
    /// The prelude or forward batch of everything in the decode queue, or first an offload that makes room for it, or
    /// `None` if every candidate was preempted.
    pub(super) fn build_decode(&mut self, stage: Stage) -> Option<Batch> {
        if self.config.kv.pressure != Pressure::Reserve {
            let victims = self.preempt();
            if !victims.is_empty() {
                return Some(self.issue(Stage::Offload, victims, false));
            }
        }
        if self.decode_queue.is_empty() {
            return None;
        }
        let (depth, emits) = match stage {
            Stage::Forward => (self.config.r_max, Emits::Last),
            _ => (Depth::FIRST, Emits::Nothing),
        };
        let mut edits = Vec::new();
        let mut rows = Vec::with_capacity(self.decode_queue.len());
        for &slot in &self.decode_queue {
            let row = Row { emits, ..self.sequences[slot.index()].row(slot, depth) };
            // A block boundary is crossed once in `block_tokens` tokens.
            if row.span.first.is_multiple_of(self.config.kv.block_tokens) {
                let grown = self.kv.grow(slot, row.context(), &mut edits);
                assert!(grown, "room was made, or reserved, for every row");
            }
            rows.push(row);
        }
        Some(Batch { edits, ..self.issue(stage, rows, false) })
    }

    /// Takes the youngest sequences out of the decode queue until the rest can grow; returns those to be offloaded.
    ///
    /// Only sequences between two tokens are candidates: a hidden state inside the loop is never thrown away.
    fn preempt(&mut self) -> Vec<Row> {
        let mut offloaded = Vec::new();
        loop {
            let missing: u64 = self
                .decode_queue
                .iter()
                .map(|&slot| self.kv.missing_blocks(slot, self.sequences[slot.index()].position + 1))
                .sum();
            if missing <= self.kv.free_blocks() {
                return offloaded;
            }
            let (at, &slot) = self
                .decode_queue
                .iter()
                .enumerate()
                .max_by_key(|(_, slot)| self.sequences[slot.index()].request.id)
                .expect("an empty queue misses no block");
            self.decode_queue.remove(at);
            if self.config.kv.pressure == Pressure::Offload {
                offloaded.push(self.sequences[slot.index()].moved(slot));
            }
            self.park(slot);
        }
    }

    /// Gives up the slot and blocks of a sequence and queues it ahead of new requests, oldest first.
    fn park(&mut self, slot: Slot) {
        let Sequence { request, generated, covered, chain, .. } = self.release(slot);
        let offloaded = self.config.kv.pressure == Pressure::Offload;
        let at = self.preempted.partition_point(|other| other.request.id < request.id);
        self.preempted.insert(at, Preempted { request, generated, offloaded, covered, chain });
        self.preemptions += 1;
    }

    /// Frees a slot and its blocks, and says who had it. Batches run in order, so those in flight are done before a new owner
    /// writes.
    pub(super) fn release(&mut self, slot: Slot) -> Sequence {
        self.leave_behind(slot);
        self.free_slots.push(slot);
        std::mem::replace(&mut self.sequences[slot.index()], Sequence::new(NOBODY, 0))
    }
}
