//! What a round times, in which order.

use std::fmt;

use engine::units::Nanos;

use super::plan::MeasurementPlan;
use crate::measurements::{Kind, Point, Timed};

/// Tokens of an offloaded sequence at most: pinning memory for more takes longer than all the rest.
const OFFLOADED_TOKENS: u32 = 512;

/// Batches with which the event loop is timed, beside the largest.
const HOST_BATCHES: [u32; 4] = [1, 4, 16, 64];

/// Points that are timed in one go, in the order of their rows in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group(Vec<Point>);

impl Group {
    /// The fused step at every loop count, and the three stages by themselves.
    fn decode(batch: u32, context: u32, loops: &[u8]) -> Self {
        let steps = loops.iter().map(|&loops| Point::step(batch, context, loops.into()));
        let stages = [Timed::Core, Timed::Prelude, Timed::Coda].map(|stage| Point::new(stage, batch, context));
        Self(steps.chain(stages).collect())
    }

    /// A prompt chunk of each sequence.
    fn prefill(batch: u32, context: u32, tokens: u32) -> Self {
        Self(vec![Point::prefill(batch, context, tokens)])
    }

    /// A sequence moved to host memory and back.
    fn offload(context: u32) -> Self {
        Self(vec![Point::new(Timed::Offload, 1, context)])
    }

    /// The event loop's own work, with full batches.
    fn host(batch: u32) -> Self {
        Self([Timed::Build, Timed::Launch, Timed::Read].map(|part| Point::new(part, batch, 0)).into())
    }

    /// All of them; at least one.
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    /// The first; batch, context and tokens are those of all.
    pub fn first(&self) -> Point {
        self.0[0]
    }

    /// The one whose row is written last.
    pub fn last(&self) -> Point {
        self.0[self.0.len() - 1]
    }

    /// What they have in common.
    pub fn kind(&self) -> Kind {
        self.first().timed.kind()
    }
}

/// For errors: what was being timed.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { batch, context, tokens, .. } = self.first();
        match self.kind() {
            Kind::Decode => write!(f, "decode steps of batch {batch} at context {context}"),
            Kind::Prefill => write!(f, "prefill of {batch} chunks of {tokens} tokens behind {context}"),
            Kind::Offload => write!(f, "offload of {context} tokens"),
            Kind::Host => write!(f, "the event loop with batches of {batch}"),
        }
    }
}

impl MeasurementPlan {
    /// Everything that a round times. Each leading part is spread over the whole range, so that a budget that ends early
    /// leaves a coarser grid and not half of one.
    pub fn schedule(&self) -> Vec<Group> {
        let others = [self.host(), self.offloads(), self.prefills()].concat();
        let of_batch = |batch| {
            let fits = spread(&self.contexts).into_iter().filter(move |&context| self.fits(batch, context));
            fits.map(move |context| Group::decode(batch, context, &self.loops)).collect::<Vec<_>>()
        };
        let decode: Vec<Vec<Group>> = spread(&self.batches).into_iter().map(of_batch).collect();
        // A device that settles stays with a batch size.
        let apart = if self.settle == Nanos::ZERO { 1 } else { usize::MAX };
        let runs: Vec<&[Group]> = decode.iter().flat_map(|groups| groups.chunks(apart)).collect();
        // Interleaved, so that a slow moment of the machine does not fall on one stage alone.
        let (mut schedule, mut done) = (Vec::new(), 0);
        for (number, run) in (1..).zip(&runs) {
            schedule.extend_from_slice(run);
            let due = others.len() * number / runs.len();
            schedule.extend_from_slice(&others[done..due]);
            done = due;
        }
        schedule
    }

    /// Chunks from a few tokens to the whole cache, of one sequence and of many, with and without tokens before them.
    fn prefills(&self) -> Vec<Group> {
        let (held, blocks) = (self.held_tokens(), self.plane_blocks());
        let mut groups = Vec::new();
        for &batch in &self.prefill_batches {
            for &tokens in &self.prefill_tokens {
                for &context in &self.prefill_contexts {
                    let all = context + tokens;
                    let rows = held.get(..batch as usize);
                    let has_memory = self.blocks(batch, all) <= blocks
                        && rows.is_some_and(|rows| rows.iter().all(|&held| all <= held));
                    let pairs = batch * (tokens * context + tokens * (tokens + 1) / 2);
                    let is_short = batch * tokens <= self.max_prefill_tokens && pairs <= self.max_prefill_pairs;
                    if has_memory && is_short {
                        groups.push(Group::prefill(batch, context, tokens));
                    }
                }
            }
        }
        spread(&groups)
    }

    /// A sequence with all that it holds.
    fn offloads(&self) -> Vec<Group> {
        let held = self.held_tokens();
        let context = held.into_iter().filter(|&tokens| tokens <= OFFLOADED_TOKENS).max();
        context.map(Group::offload).into_iter().collect()
    }

    fn host(&self) -> Vec<Group> {
        let largest = self.held_tokens().len() as u32;
        let mut batches: Vec<u32> =
            HOST_BATCHES.into_iter().filter(|&batch| batch < largest).chain([largest]).collect();
        batches.dedup();
        batches.into_iter().map(Group::host).collect()
    }
}

/// The first, the last, the middle, the middles of the halves, and so on.
fn spread<T: Clone>(list: &[T]) -> Vec<T> {
    let last = list.len().saturating_sub(1);
    let mut taken = vec![false; list.len()];
    let mut order = Vec::new();
    let mut parts = 1;
    while order.len() < list.len() {
        for part in 0..=parts {
            let at = last * part / parts;
            if !std::mem::replace(&mut taken[at], true) {
                order.push(list[at].clone());
            }
        }
        parts *= 2;
    }
    order
}

#[cfg(test)]
mod tests {
    use engine::architecture::Architecture;
    use engine::layout::Layout;

    use super::*;

    fn decode_batch(group: &Group) -> Option<u32> {
        (group.kind() == Kind::Decode).then_some(group.first().batch)
    }

    #[test]
    fn a_device_that_settles_stays_with_a_batch_size() {
        let model = Architecture::builtin("tiny-ouro").expect("built in");
        let large = MeasurementPlan::large(&model, Layout::Shared, Nanos::ZERO, 1 << 26);
        let small = MeasurementPlan::small(&model, Layout::Shared, Nanos::ZERO);
        for (plan, changes) in [(&large, large.batches.len()), (&small, small.batches.len())] {
            let schedule = plan.schedule();
            let batches: Vec<_> = schedule.iter().filter_map(decode_batch).collect();
            assert_eq!(batches.chunk_by(|a, b| a == b).count(), changes);
            let unique = schedule.iter().enumerate().all(|(i, group)| !schedule[..i].contains(group));
            assert!(unique && schedule.len() > batches.len(), "{schedule:?}");
        }
        // What comes between: others behind whole batch sizes, or behind single groups.
        let interrupted = |plan: &MeasurementPlan| {
            let back = |three: &[Group]| {
                decode_batch(&three[0]).is_some() && decode_batch(&three[0]) == decode_batch(&three[2])
            };
            plan.schedule().windows(3).any(|three| decode_batch(&three[1]).is_none() && back(three))
        };
        assert!(interrupted(&small) && !interrupted(&large));
    }

    #[test]
    fn a_spread_begins_with_the_ends() {
        assert_eq!(spread(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), [0, 8, 4, 2, 6, 1, 3, 5, 7]);
        assert_eq!(spread(&[5]), [5]);
        assert!(spread::<u32>(&[]).is_empty());
    }
}
