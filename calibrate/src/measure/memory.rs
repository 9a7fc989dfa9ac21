//! KV memory of a measurement: how much its sequences hold, and in which pages.

use engine::batch::Page;

use super::plan::MeasurementPlan;
use crate::contexts::contexts;

/// Which pages a slot gets: long sequences run in small batches and short ones in large batches, so that slots share pages
/// with slots that are never in the same batch.
///
/// A batch of up to 2^k rows has a 2^k-th of the pool for each. The two of a pair, see [`contexts`], begin at the ends of their
/// shares that lie apart and grow towards each other, so that one may be longer by what the other is shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    /// Divisible by the largest batch's 2^k.
    pool: u32,
}

impl MeasurementPlan {
    /// Tokens that a sequence has to hold, by slot: as many as in its longest row.
    pub fn held_tokens(&self) -> Vec<u32> {
        let mut held = Vec::new();
        for (batch, context) in self.points() {
            let rows = contexts(batch, context);
            held.resize(held.len().max(rows.len()), 0);
            held.iter_mut().zip(rows).for_each(|(held, tokens)| *held = tokens.max(*held));
        }
        held
    }

    /// Blocks of one plane that hold every batch of the grid, each row in pages of its own, see `Pages`.
    pub fn plane_blocks(&self) -> u32 {
        let blocks = self.points().map(|(batch, context)| self.blocks(batch, context));
        let slots = self.points().map(|(batch, _)| batch).max().unwrap_or(1);
        blocks.max().unwrap_or(1).next_multiple_of(slots.next_power_of_two())
    }

    /// Blocks of one plane for a batch: for pairs of rows with twice the context, and rounding up for both.
    pub(super) fn blocks(&self, batch: u32, context: u32) -> u32 {
        batch.next_power_of_two() * (context.div_ceil(self.block_tokens) + 1)
    }

    fn points(&self) -> impl Iterator<Item = (u32, u32)> {
        let all = self.batches.iter().flat_map(|&batch| self.contexts.iter().map(move |&context| (batch, context)));
        all.filter(|&(batch, context)| self.fits(batch, context))
    }

    pub(super) fn fits(&self, batch: u32, context: u32) -> bool {
        u64::from(batch.next_power_of_two()) * u64::from(context) <= u64::from(self.max_entries)
    }
}

impl Pages {
    pub(super) fn new(plan: &MeasurementPlan) -> Self {
        Self { pool: plan.plane_blocks() }
    }

    /// A slot's page number `index`.
    pub(super) fn of(self, slot: u32, index: u32) -> Page {
        let (mut start, mut share, mut grows_up) = (0, self.pool, true);
        for bit in 0..u32::BITS - slot.leading_zeros() {
            // In a batch of twice the rows it keeps the half of its share where it begins, and its partner has the other.
            let partner = slot >> bit & 1 == 1;
            share /= 2;
            start += if grows_up == partner { share } else { 0 };
            grows_up ^= partner;
        }
        Page(if grows_up { start + index } else { start + share - 1 - index })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use engine::architecture::Architecture;
    use engine::layout::Layout;
    use engine::units::Nanos;

    use super::super::schedule::Group;
    use super::*;
    use crate::measurements::{Kind, Point};

    /// Tokens that each row of a batch needs, by slot.
    fn row_tokens(group: &Group) -> Vec<u32> {
        let Point { batch, context, tokens, .. } = group.first();
        match group.kind() {
            Kind::Decode => contexts(batch, context),
            Kind::Prefill => vec![context + tokens; batch as usize],
            Kind::Offload => vec![context],
            Kind::Host => vec![1; batch as usize],
        }
    }

    #[test]
    fn slots_hold_what_the_batches_that_they_are_in_need() {
        let model = Architecture::builtin("tiny-ouro").unwrap();
        let plan = MeasurementPlan::small(&model, Layout::Shared, Nanos::ZERO);
        plan.check(&model).unwrap();
        let held = plan.held_tokens();
        assert_eq!((held.len(), held[0], held[63]), (64, 512, 65));
        for group in plan.schedule() {
            let rows = row_tokens(&group);
            let offloaded = group.kind() == Kind::Offload && held.contains(&rows[0]);
            assert!(offloaded || rows.iter().zip(&held).all(|(tokens, held)| tokens <= held), "{group}");
        }
    }

    #[test]
    fn rows_of_a_batch_share_no_page() {
        let model = Architecture::builtin("tiny-ouro").expect("built in");
        let small = MeasurementPlan::small(&model, Layout::Shared, Nanos::ZERO);
        let odd =
            MeasurementPlan { batches: vec![1, 2, 3, 7, 20, 33], contexts: vec![1, 17, 100, 257], ..small.clone() };
        let large = MeasurementPlan::large(&model, Layout::Shared, Nanos::ZERO, 1 << 26);
        for plan in [small, odd, large] {
            let pages = Pages::new(&plan);
            let uses_pages = |group: &Group| matches!(group.kind(), Kind::Decode | Kind::Prefill);
            for group in plan.schedule().iter().filter(|group| uses_pages(group)) {
                let mut taken = BTreeSet::new();
                for (slot, tokens) in (0..).zip(row_tokens(group)) {
                    for index in 0..tokens.div_ceil(plan.block_tokens) {
                        let page = pages.of(slot, index);
                        assert!(page.0 < pages.pool && taken.insert(page), "{group}: {page:?} of slot {slot}");
                    }
                }
            }
        }
    }
}
