//! Sequences that are over before their time: cancelled, or ended by a token that an outcome told late.

use super::Scheduler;
use crate::batch::{Row, Slot, Stage};
use crate::request::RequestId;

impl Scheduler {
    /// Forgets a request, and says whether it knew one that was not over.
    ///
    /// One that waits, is parked or has its prompt part done gives its pages back at once. A row that runs is dropped when
    /// its batch settles.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        let waiting = self.waiting.iter().position(|waiting| waiting.request.id == request);
        let parked = self.preempted.iter().position(|preempted| preempted.request.id == request);
        if let Some(at) = waiting {
            self.waiting.remove(at);
            self.gone.push_back((self.next_id, request));
        } else if let Some(at) = parked {
            self.preempted.remove(at);
            self.gone.push_back((self.next_id, request));
        } else {
            let place = self.sequences.iter().position(|sequence| sequence.request.id == request);
            let Some(slot) = place.map(|index| Slot(index as u32)) else { return false };
            if self.sequences[slot.index()].is_over() {
                return false;
            }
            self.sequences[slot.index()].cancelled = true;
            if !self.runs(slot) {
                self.withdraw(slot);
            }
        }
        true
    }

    /// Learns that `row` made its sequence's last token (`finish: eos`).
    pub(super) fn end(&mut self, row: &Row) {
        let slot = row.slot;
        if let Some(at) = self.preempted.iter().position(|preempted| preempted.request.id == row.request) {
            self.preempted.remove(at);
            self.gone.push_back((self.next_id, row.request));
        }
        let sequence = &mut self.sequences[slot.index()];
        if sequence.request.id != row.request || sequence.is_over() {
            // Its length limit ended it at the same token, it was preempted, or nobody wants it.
            return;
        }
        sequence.ended_with = Some(row.token);
        // Tokens past the end that were settled before the end was known.
        self.late_rows += u64::from(sequence.generated.saturating_sub(row.token + 1));
        let unsettled = sequence.generated == row.token;
        if !unsettled && !self.runs(slot) {
            self.withdraw(slot);
        }
    }

    /// Drops the row of a sequence that was found to be over while the row ran.
    pub(super) fn drops_late(&mut self, slot: Slot) -> bool {
        let late = self.sequences[slot.index()].is_over();
        if late {
            self.late_rows += 1;
            self.retire(slot);
        }
        late
    }

    /// Frees the slot of a sequence that is over.
    pub(super) fn retire(&mut self, slot: Slot) {
        self.gone.push_back((self.next_id, self.sequences[slot.index()].request.id));
        self.release(slot);
    }

    /// Whether the unsettled batch has a row of the sequence in `slot`; settling it will drop the sequence.
    fn runs(&self, slot: Slot) -> bool {
        self.pending.as_ref().is_some_and(|pending| match pending.stage {
            Stage::Prelude | Stage::Forward => self.decode_queue.contains(&slot),
            Stage::Core => self.core_queue.iter().any(|row| row.slot == slot),
            Stage::Coda => self.coda_queue.iter().any(|row| row.slot == slot),
            Stage::Prefill | Stage::Restore => pending.rows.iter().any(|row| row.slot == slot),
            Stage::Offload => false,
        })
    }

    /// Takes a sequence that is over out of the queues.
    fn withdraw(&mut self, slot: Slot) {
        self.partial = self.partial.filter(|&partial| partial != slot);
        self.decode_queue.retain(|&queued| queued != slot);
        self.core_queue.retain(|row| row.slot != slot);
        self.coda_queue.retain(|row| row.slot != slot);
        self.retire(slot);
    }
}
