//! What a round times, in which order.

use engine::units::Nanos;

use super::plan::Plan;

/// Tokens of an offloaded sequence at most: pinning memory for more takes longer than all the rest.
const OFFLOADED_TOKENS: u32 = 512;

/// Something to time in one go: a line or a few of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The fused step at every loop count, and the three stages by themselves.
    Decode {
        /// Sequences.
        batch: u32,
        /// KV entries that rows read on average.
        context: u32,
    },
    /// A prompt chunk of each sequence.
    Prefill {
        /// Sequences.
        batch: u32,
        /// KV entries before the chunk.
        context: u32,
        /// New tokens per sequence.
        tokens: u32,
    },
    /// A sequence moved to host memory and back.
    Offload {
        /// Tokens that it holds.
        context: u32,
    },
    /// The event loop's own work, with full batches.
    Host {
        /// Rows of each batch.
        batch: u32,
    },
}

impl Plan {
    /// Everything that a round times. Each leading part is spread over the whole range, so that a budget that ends early
    /// leaves a coarser grid and not half of one.
    pub fn visits(&self) -> Vec<Visit> {
        let others = [self.host(), self.offloads(), self.prefills()].concat();
        let of_batch = |batch| {
            let fits = spread(&self.contexts).into_iter().filter(move |&context| self.fits(batch, context));
            fits.map(move |context| Visit::Decode { batch, context }).collect::<Vec<_>>()
        };
        let decode: Vec<Vec<Visit>> = spread(&self.batches).into_iter().map(of_batch).collect();
        // A device that settles stays with a batch size.
        let apart = if self.settle == Nanos::ZERO { 1 } else { usize::MAX };
        let groups: Vec<&[Visit]> = decode.iter().flat_map(|visits| visits.chunks(apart)).collect();
        // Interleaved, so that a slow moment of the machine does not fall on one stage alone.
        let (mut visits, mut done) = (Vec::new(), 0);
        for (number, group) in (1..).zip(&groups) {
            visits.extend_from_slice(group);
            let due = others.len() * number / groups.len();
            visits.extend_from_slice(&others[done..due]);
            done = due;
        }
        visits
    }

    /// Chunks from a few tokens to the whole cache, of one sequence and of many, with and without tokens before them.
    fn prefills(&self) -> Vec<Visit> {
        let (held, blocks) = (self.held_tokens(), self.plane_blocks());
        let mut visits = Vec::new();
        for &batch in &self.prefill_batches {
            for &tokens in &self.prefill_tokens {
                for &context in &self.prefill_contexts {
                    let all = context + tokens;
                    let rows = held.get(..batch as usize);
                    let room = self.blocks(batch, all) <= blocks
                        && rows.is_some_and(|rows| rows.iter().all(|&held| all <= held));
                    let pairs = batch * (tokens * context + tokens * (tokens + 1) / 2);
                    let fits = batch * tokens <= self.max_prefill_tokens && pairs <= self.max_prefill_pairs;
                    if room && fits {
                        visits.push(Visit::Prefill { batch, context, tokens });
                    }
                }
            }
        }
        spread(&visits)
    }

    /// A sequence with all that it holds.
    fn offloads(&self) -> Vec<Visit> {
        let held = self.held_tokens();
        let context = held.into_iter().filter(|&tokens| tokens <= OFFLOADED_TOKENS).max();
        context.map(|context| Visit::Offload { context }).into_iter().collect()
    }

    fn host(&self) -> Vec<Visit> {
        let largest = self.held_tokens().len() as u32;
        let mut batches: Vec<u32> =
            [1, 4, 16, 64].into_iter().filter(|&batch| batch < largest).chain([largest]).collect();
        batches.dedup();
        batches.into_iter().map(|batch| Visit::Host { batch }).collect()
    }
}

/// The first, the last, the middle, the middles of the halves, and so on.
fn spread<T: Copy>(list: &[T]) -> Vec<T> {
    let last = list.len().saturating_sub(1);
    let mut taken = vec![false; list.len()];
    let mut order = Vec::new();
    let mut parts = 1;
    while order.len() < list.len() {
        for part in 0..=parts {
            let at = last * part / parts;
            if !std::mem::replace(&mut taken[at], true) {
                order.push(list[at]);
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

    #[test]
    fn a_device_that_settles_stays_with_a_batch_size() {
        let model = Architecture::builtin("tiny-ouro").expect("built in");
        let large = Plan::large(&model, Layout::Shared, Nanos::ZERO, 1 << 26);
        let small = Plan::small(&model, Layout::Shared, Nanos::ZERO);
        for (plan, changes) in [(&large, large.batches.len()), (&small, small.batches.len())] {
            let visits = plan.visits();
            let batches = visits.iter().filter_map(|visit| match visit {
                Visit::Decode { batch, .. } => Some(batch),
                _ => None,
            });
            let batches: Vec<_> = batches.collect();
            assert_eq!(batches.chunk_by(|a, b| a == b).count(), changes);
            let unique = visits.iter().enumerate().all(|(i, visit)| !visits[..i].contains(visit));
            assert!(unique && visits.len() > batches.len(), "{visits:?}");
        }
        // What comes between: others behind whole batch sizes, or behind single visits.
        let interrupted = |plan: &Plan| {
            let visits = plan.visits();
            let batch = |visit: &Visit| if let Visit::Decode { batch, .. } = visit { Some(*batch) } else { None };
            let back = |three: &[Visit]| batch(&three[0]).is_some() && batch(&three[0]) == batch(&three[2]);
            visits.windows(3).any(|three| batch(&three[1]).is_none() && back(three))
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
