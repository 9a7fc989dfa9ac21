//! Latency distributions: sample by sample for requests, in fixed memory for tokens.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Samples that are kept one by one, 8 MB of them; a histogram counts more.
const EXACT: usize = 1 << 20;

/// A distribution of durations: count, mean and maximum are exact, and a quantile is one of the samples.
///
/// Beyond 1,048,576 samples, and from the first in [`Self::of_tokens`], quantiles are rounded up to three significant
/// digits (0.1%), but never beyond the largest sample.
#[derive(Clone, Debug)]
pub struct Latency {
    samples: Samples,
    sum_ns: u128,
    max_ns: u64,
}

#[derive(Clone, Debug)]
enum Samples {
    Exact(Vec<u64>),
    Rounded(Histogram<u64>),
}

/// What reports show of a distribution, in seconds; all zero if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest sample, exact.
    pub max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { samples: Samples::Exact(Vec::new()), sum_ns: 0, max_ns: 0 }
    }
}

impl Latency {
    /// Of gaps between tokens, of which there are too many to keep.
    pub fn of_tokens() -> Self {
        Self { samples: Samples::Rounded(histogram(&[])), ..Self::default() }
    }

    /// Adds a sample.
    pub fn record(&mut self, Nanos(ns): Nanos) {
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        match &mut self.samples {
            Samples::Exact(samples) if samples.len() < EXACT => samples.push(ns),
            Samples::Exact(samples) => {
                let mut rounded = histogram(samples);
                add(&mut rounded, ns);
                self.samples = Samples::Rounded(rounded);
            }
            Samples::Rounded(histogram) => add(histogram, ns),
        }
    }

    /// Samples so far.
    pub fn count(&self) -> u64 {
        match &self.samples {
            Samples::Exact(samples) => samples.len() as u64,
            Samples::Rounded(histogram) => histogram.len(),
        }
    }

    /// The smallest sample that a share `q` (0 to 1) of the samples does not exceed, in seconds; zero if empty.
    ///
    /// So at least the share `q` of the samples keeps a limit exactly if this one does.
    pub fn quantile(&self, q: f64) -> f64 {
        let [quantile] = self.quantiles([q]);
        quantile
    }

    fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        match &self.samples {
            Samples::Exact(samples) if samples.is_empty() => [0.0; N],
            Samples::Exact(samples) => {
                let mut sorted = samples.clone();
                sorted.sort_unstable();
                shares.map(|q| sorted[rank(q, sorted.len()) - 1] as f64 / 1e9)
            }
            Samples::Rounded(histogram) => shares.map(|q| histogram.value_at_quantile(q).min(self.max_ns) as f64 / 1e9),
        }
    }

    /// Mean and percentiles.
    pub fn summary(&self) -> LatencySummary {
        let count = self.count();
        if count == 0 {
            return LatencySummary::default();
        }
        let [p50, p90, p95, p99] = self.quantiles([0.5, 0.9, 0.95, 0.99]);
        let mean = self.sum_ns as f64 / count as f64 / 1e9;
        LatencySummary { count, mean, p50, p90, p95, p99, max: self.max_ns as f64 / 1e9 }
    }

    /// The cumulative distribution as (seconds, share of samples at or below), ascending, for plots: three significant
    /// digits, so that many samples make few points.
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        let histogram = match &self.samples {
            Samples::Exact(samples) => &histogram(samples),
            Samples::Rounded(histogram) => histogram,
        };
        let total = self.count().max(1) as f64;
        let mut below = 0;
        histogram
            .iter_recorded()
            .map(|bucket| {
                below += bucket.count_since_last_iteration();
                (bucket.value_iterated_to() as f64 / 1e9, below as f64 / total)
            })
            .collect()
    }
}

/// The smallest number of `count` samples that is a share `q` of them, counted as [`super::Goodput`] counts its share.
fn rank(q: f64, count: usize) -> usize {
    let share = |rank: usize| rank as f64 / count as f64;
    let mut rank = ((q * count as f64) as usize).clamp(1, count);
    while share(rank) < q && rank < count {
        rank += 1;
    }
    rank
}

fn histogram(samples: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three significant digits are a valid precision");
    samples.iter().for_each(|&ns| add(&mut histogram, ns));
    histogram
}

fn add(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.record(ns).expect("the histogram grows with its samples");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_the_maximum_are_samples() {
        let mut latency = Latency::default();
        (1..=200).rev().for_each(|ns| latency.record(Nanos(1_000_000_007 * ns)));
        let LatencySummary { p50, p90, p95, p99, max, .. } = latency.summary();
        assert_eq!([p50, p90, p95, p99, max].map(|s| Nanos::from_secs(s).0 / 1_000_000_007), [100, 180, 190, 198, 200]);
        assert_eq!([p50, max].map(|s| Nanos::from_secs(s).0 % 1_000_000_007), [0, 0]);
    }

    #[test]
    fn a_share_and_its_quantile_agree_for_every_count() {
        for count in 1..=1000 {
            for percent in 1..=100_u32 {
                let q = f64::from(percent) / 100.0;
                let exact = (count * percent as usize).div_ceil(100);
                assert_eq!(rank(q, count), exact, "{percent}% of {count}");
            }
        }
    }

    #[test]
    fn of_tokens_only_the_percentiles_are_rounded_and_never_beyond_the_maximum() {
        let mut gaps = Latency::of_tokens();
        [22_115_211, 22_115_211, 22_115_212].into_iter().for_each(|ns| gaps.record(Nanos(ns)));
        let LatencySummary { count, p50, max, .. } = gaps.summary();
        assert_eq!((count, p50, max), (3, 0.022_115_212, 0.022_115_212));
    }

    #[test]
    fn more_samples_than_are_kept_lose_digits_and_no_sample() {
        let mut latency = Latency::default();
        (1..=EXACT as u64 + 1).for_each(|ns| latency.record(Nanos(1000 * ns)));
        let LatencySummary { count, p50, max, .. } = latency.summary();
        assert_eq!((count, max), (EXACT as u64 + 1, (EXACT as f64 + 1.0) / 1e6));
        let exact = (EXACT as f64 / 2.0 + 1.0) / 1e6;
        assert!(p50 >= exact && p50 < 1.001 * exact, "{p50} for {exact}");
    }
}
