//! How much load a scheduler carries, by the model and as far as the tested rates tell.

use super::super::tolerance::Verdict;
use crate::capacity::Capacity;

/// How far the predicted capacity may lie outside of what the tested rates allow.
const TOLERANCE: f64 = 0.05;

/// One scheduler's capacity under the SLO, on both sides.
#[derive(Clone, Debug)]
pub struct CapacityPair {
    /// The group of runs.
    pub group: String,
    /// The scheduler.
    pub scheduler: String,
    /// It is full-depth continuous batching, which the others are set against.
    pub baseline: bool,
    /// By the model's search.
    pub predicted: Capacity,
    /// By the model's search where only physics costs time.
    pub floor: Option<Capacity>,
    /// The rates of the live runs, rising.
    pub tested: Vec<Tested>,
}

/// A rate that was run on both sides, with the same number of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Whether the model carried it.
    pub predicted: bool,
    /// Whether every live run did.
    pub measured: bool,
}

impl CapacityPair {
    /// The largest tested rate that was carried live, in requests per second.
    pub fn carried_per_s(&self) -> Option<f64> {
        self.tested.iter().filter(|tested| tested.measured).map(|tested| tested.rate_per_s).reduce(f64::max)
    }

    /// The smallest tested rate above it, which was not; `None` if the largest was carried.
    pub fn refused_per_s(&self) -> Option<f64> {
        let above = |rate_per_s: &f64| self.carried_per_s().is_none_or(|carried| *rate_per_s > carried);
        self.tested.iter().map(|tested| tested.rate_per_s).filter(above).reduce(f64::min)
    }

    /// How far the prediction lies outside of the tested rates between which the live capacity is; `None` without either.
    pub fn verdict(&self) -> Option<Verdict> {
        let predicted = self.predicted.requests_per_s.filter(|_| !self.tested.is_empty())?;
        let below = self.carried_per_s().map_or(0.0, |carried| (predicted / carried - 1.0).min(0.0));
        let above = self.refused_per_s().map_or(0.0, |refused| (predicted / refused - 1.0).max(0.0));
        Some(Verdict::certain("capacity_requests_per_s", below + above, TOLERANCE))
    }

    /// The bound that the capacities' ratio is set against.
    pub fn s_e2e(&self) -> Option<f64> {
        Some(self.predicted.speedup? / self.predicted.realised_share?)
    }
}

/// Ratio of the live capacity to that of the group's full-depth continuous batching.
pub(super) fn measured_speedup(pair: &CapacityPair, all: &[CapacityPair]) -> Option<f64> {
    let baseline = all.iter().find(|other| other.baseline && other.group == pair.group)?;
    Some(pair.carried_per_s()? / baseline.carried_per_s()?)
}

/// That ratio's share of S_e2e.
pub(super) fn measured_share(pair: &CapacityPair, all: &[CapacityPair]) -> Option<f64> {
    Some(measured_speedup(pair, all)? / pair.s_e2e()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Bracket;

    #[test]
    fn a_prediction_between_the_tested_rates_is_right() {
        let check = |predicted, tested: &[(f64, bool)], off: f64| {
            let tested = tested.iter().map(|&(rate_per_s, measured)| Tested { rate_per_s, predicted: true, measured });
            let predicted = Capacity {
                requests_per_s: Some(predicted),
                rates: Bracket::default(),
                slo: String::new(),
                speedup: None,
                realised_share: None,
            };
            let pair = CapacityPair {
                group: String::new(),
                scheduler: String::new(),
                baseline: true,
                predicted,
                floor: None,
                tested: tested.collect(),
            };
            let found = pair.verdict().expect("rates were tested").off;
            assert!((found - off).abs() < 1e-9, "{found}");
        };
        check(10.0, &[(8.5, true), (9.5, true)], 0.0);
        check(10.0, &[(9.5, true), (10.5, false)], 0.0);
        check(10.0, &[(8.5, true), (9.5, false)], 10.0 / 9.5 - 1.0);
        check(10.0, &[(8.5, true), (12.5, true)], 10.0 / 12.5 - 1.0);
        check(10.0, &[(5.0, false)], 1.0);
    }
}
