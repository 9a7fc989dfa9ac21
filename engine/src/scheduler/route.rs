//! Where the rows of a settled batch go.

use super::{Scheduler, Settled};
use crate::batch::{Emits, Input, Row, Slot, Span, Stage};
use crate::units::Depth;

impl Scheduler {
    /// Moves the pending batch's rows on and notes the queues afterwards.
    pub(super) fn settle(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let exits = match pending.stage {
            Stage::Prefill => self.settle_prefill(&pending.rows),
            Stage::Prelude => self.settle_prelude(),
            Stage::Core => self.settle_core(),
            Stage::Coda => self.settle_coda(),
            Stage::Forward => self.settle_forward(),
            Stage::Offload => 0,
            Stage::Restore => self.settle_restore(&pending.rows),
        };
        let queues = self.queues();
        self.settled.push_back(Settled { id: pending.id, exits, reuse: pending.reuse, queues });
    }

    fn settle_prefill(&mut self, rows: &[Row]) -> u32 {
        for row in rows {
            self.cover(row.slot, row.span, row.depth);
            if row.emits == Emits::Last {
                if self.goes_on(row.slot) {
                    self.decode_queue.push(row.slot);
                }
            } else if self.drops_late(row.slot) {
                self.partial = None;
            }
        }
        0
    }

    fn settle_restore(&mut self, rows: &[Row]) -> u32 {
        for row in rows {
            self.publish(row.slot);
            if !self.drops_late(row.slot) {
                self.decode_queue.push(row.slot);
            }
        }
        0
    }

    fn settle_prelude(&mut self) -> u32 {
        // Put back empty, so that the next rows need no new memory.
        let mut slots = std::mem::take(&mut self.decode_queue);
        for slot in slots.drain(..) {
            if self.drops_late(slot) {
                continue;
            }
            let row = self.sequences[slot.index()].row(slot, Depth::FIRST);
            self.core_queue.push(Row { input: Input::Carried, ..row });
        }
        self.decode_queue = slots;
        0
    }

    /// Survivors keep their place at the head of the core queue; successors join behind.
    fn settle_core(&mut self) -> u32 {
        let mut rows = std::mem::take(&mut self.core_queue);
        let already = self.coda_queue.len();
        rows.retain_mut(|row| {
            if self.drops_late(row.slot) {
                return false;
            }
            let leaves =
                row.depth == self.config.r_max || self.sequences[row.slot.index()].leaves_after == Some(row.depth);
            if leaves {
                self.coda_queue.push(Row { emits: Emits::Last, ..*row });
            }
            row.depth = row.depth.next();
            !leaves
        });
        self.core_queue = rows;
        if let Some(timing) = &mut self.timing {
            self.coda_queue[already..].iter().for_each(|row| timing.exited(row.depth));
            timing.review((self.core_queue.len() + self.coda_queue.len()) as u32);
        }
        (self.coda_queue.len() - already) as u32
    }

    fn settle_coda(&mut self) -> u32 {
        // Put back empty, as in the prelude.
        let mut rows = std::mem::take(&mut self.coda_queue);
        for row in rows.drain(..) {
            self.cover(row.slot, row.span, row.depth);
            if self.goes_on(row.slot) {
                self.decode_queue.push(row.slot);
            }
        }
        self.coda_queue = rows;
        0
    }

    fn settle_forward(&mut self) -> u32 {
        let mut slots = std::mem::take(&mut self.decode_queue);
        slots.retain(|&slot| {
            self.cover(slot, Span::one(self.sequences[slot.index()].position), self.config.r_max);
            self.goes_on(slot)
        });
        self.decode_queue = slots;
        0
    }

    /// Counts a token and says whether the sequence goes on to the next one; if it does not, its slot is free.
    fn goes_on(&mut self, slot: Slot) -> bool {
        let sequence = &mut self.sequences[slot.index()];
        let token = sequence.generated;
        sequence.generated += 1;
        sequence.position += 1;
        sequence.leaves_after = None;
        self.late_rows += u64::from(sequence.ended_with.is_some_and(|last| last < token));
        let over = sequence.is_over() || sequence.generated == sequence.request.max_output_tokens;
        if over {
            self.retire(slot);
        }
        !over
    }
}
