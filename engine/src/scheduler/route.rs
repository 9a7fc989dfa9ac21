//! Where the rows of a settled batch go.

use super::{Scheduler, Settled};
use crate::batch::{Row, Slot, Stage};
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
            Stage::Restore => {
                self.decode_queue.extend(pending.rows.iter().map(|row| row.slot));
                0
            }
        };
        let queues = self.queues();
        self.settled.push_back(Settled { id: pending.id, exits, queues });
    }

    fn settle_prefill(&mut self, rows: &[Row]) -> u32 {
        for row in rows.iter().filter(|row| row.ends_prompt) {
            if self.made_token(row.slot) {
                self.release(row.slot);
            } else {
                self.decode_queue.push(row.slot);
            }
        }
        0
    }

    fn settle_prelude(&mut self) -> u32 {
        for slot in std::mem::take(&mut self.decode_queue) {
            if self.drops_late(slot) {
                continue;
            }
            self.core_queue.push(self.sequences[slot.index()].row(slot, Depth::FIRST));
        }
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
                self.coda_queue.push(*row);
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
        for row in std::mem::take(&mut self.coda_queue) {
            if self.made_token(row.slot) {
                self.release(row.slot);
            } else {
                self.decode_queue.push(row.slot);
            }
        }
        0
    }

    fn settle_forward(&mut self) -> u32 {
        let mut slots = std::mem::take(&mut self.decode_queue);
        slots.retain(|&slot| {
            let over = self.made_token(slot);
            if over {
                self.release(slot);
            }
            !over
        });
        self.decode_queue = slots;
        0
    }

    /// Counts a token and says whether the sequence is over.
    fn made_token(&mut self, slot: Slot) -> bool {
        let sequence = &mut self.sequences[slot.index()];
        let token = sequence.generated;
        sequence.generated += 1;
        sequence.leaves_after = None;
        self.late_rows += u64::from(sequence.ended_with.is_some_and(|last| last < token));
        sequence.ended_with.is_some() || sequence.generated == sequence.request.max_output_tokens
    }

    /// Drops the row of a sequence that was found to have ended while the row ran.
    fn drops_late(&mut self, slot: Slot) -> bool {
        let late = self.sequences[slot.index()].ended_with.is_some();
        if late {
            self.late_rows += 1;
            self.release(slot);
        }
        late
    }

    /// Learns that `row` made its sequence's last token (`finish: eos`).
    pub(super) fn end(&mut self, row: &Row) {
        let slot = row.slot;
        self.preempted.retain(|preempted| preempted.request.id != row.request);
        let sequence = &mut self.sequences[slot.index()];
        if sequence.request.id != row.request {
            // Its length limit ended it at the same token, or it was preempted.
            return;
        }
        sequence.ended_with = Some(row.token);
        // Tokens past the end that were settled before the end was known.
        self.late_rows += u64::from(sequence.generated.saturating_sub(row.token + 1));
        let unsettled = sequence.generated == row.token;
        let running = self.pending.as_ref().is_some_and(|pending| match pending.stage {
            Stage::Prelude | Stage::Forward => self.decode_queue.contains(&slot),
            Stage::Core => self.core_queue.iter().any(|row| row.slot == slot),
            Stage::Coda => self.coda_queue.iter().any(|row| row.slot == slot),
            Stage::Prefill | Stage::Restore => pending.rows.iter().any(|row| row.slot == slot),
            Stage::Offload => false,
        });
        if unsettled || running {
            // Settling the row that runs will drop it.
            return;
        }
        self.decode_queue.retain(|&queued| queued != slot);
        self.core_queue.retain(|row| row.slot != slot);
        self.coda_queue.retain(|row| row.slot != slot);
        self.release(slot);
    }
}
