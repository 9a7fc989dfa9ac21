//! How probable a token was, computed on the host from its logits, alike for every device.

use std::cmp::Ordering;

use super::backend::{Score, ScoredId};
use crate::batch::Scored;

impl Score {
    /// The log-probability of a token, and the most probable ones, by a lane's logits, one per id; `None` if one is not
    /// finite. `chosen`: the ids that the work's draws gave.
    pub fn of(&self, logits: &[f32], chosen: &[u32]) -> Option<Scored> {
        let log_softmax = LogSoftmax::of(logits)?;
        let id = match self.id {
            ScoredId::Given(id) => id,
            ScoredId::Drawn(draw) => chosen[draw as usize],
        };
        let logprob = |id: u32| log_softmax.at(logits[id as usize]);
        let top = largest(logits, self.top as usize).into_iter().map(|id| (id, logprob(id))).collect();
        Some(Scored { request: self.request, at: self.at, id, logprob: logprob(id), top })
    }
}

/// What turns a logit into a log-probability.
struct LogSoftmax {
    largest: f32,
    /// The logarithm of the sum of all exponentials, relative to the largest logit's.
    log_sum: f32,
}

impl LogSoftmax {
    fn of(logits: &[f32]) -> Option<Self> {
        if !logits.iter().all(|logit| logit.is_finite()) {
            return None;
        }
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from((logit - largest).exp())).sum();
        Some(Self { largest, log_sum: sum.ln() as f32 })
    }

    /// A function of the logit alone, so that one token has one value wherever it is told.
    fn at(&self, logit: f32) -> f32 {
        (logit - self.largest) - self.log_sum
    }
}

/// The ids of the `count` largest logits, largest first; of equal ones the lowest id first.
fn largest(logits: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| {
        let by_logit = logits[*b as usize].partial_cmp(&logits[*a as usize]);
        by_logit.unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::TokenAt;
    use crate::request::RequestId;

    fn score(id: ScoredId, top: u32) -> Score {
        Score { request: RequestId(7), at: TokenAt::Output(3), lane: 0, id, top }
    }

    #[test]
    fn probabilities_are_the_softmax_and_of_equal_ones_the_lowest_id_comes_first() {
        let logits = [0.5, 2.0, -1.0, 2.0, 100.0, 99.0, -80.0];
        let scored = score(ScoredId::Drawn(1), 4).of(&logits, &[0, 3]).unwrap();
        assert_eq!((scored.request, scored.at, scored.id), (RequestId(7), TokenAt::Output(3), 3));
        assert_eq!(scored.top.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [4, 5, 1, 3]);
        assert_eq!(scored.top[3].1.to_bits(), scored.logprob.to_bits(), "one token, one value");
        let total: f64 = logits.iter().map(|&logit| (f64::from(logit) - 100.0).exp()).sum();
        for &(id, logprob) in &scored.top {
            let expected = f64::from(logits[id as usize]) - 100.0 - total.ln();
            assert!((f64::from(logprob) - expected).abs() < 1e-5, "id {id}: {logprob}, not {expected}");
        }
    }

    #[test]
    fn all_of_a_vocabulary_can_be_told_and_nothing_of_numbers_that_are_not_finite() {
        let logits = [1.0, -2.0, 0.25];
        let scored = score(ScoredId::Given(1), 20).of(&logits, &[]).unwrap();
        assert_eq!(scored.top.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [0, 2, 1]);
        let total: f64 = scored.top.iter().map(|&(_, logprob)| f64::from(logprob).exp()).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        assert_eq!(score(ScoredId::Given(1), 0).of(&logits, &[]).unwrap().top, []);
        assert_eq!(score(ScoredId::Given(1), 2).of(&[1.0, f32::NAN, 0.0], &[]), None);
        assert_eq!(score(ScoredId::Given(1), 2).of(&[1.0, f32::INFINITY, 0.0], &[]), None);
    }
}
