//! Latency distributions in fixed memory.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A distribution of durations; the mean is exact, quantiles are within 0.1% (three significant digits).
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
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
    /// Largest sample.
    pub max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("three significant digits are a valid precision");
        Self { histogram, sum_ns: 0 }
    }
}

impl Latency {
    /// Adds `count` samples of the same duration.
    pub fn record(&mut self, duration: Nanos, count: u64) {
        self.histogram.record_n(duration.0, count).expect("the histogram grows with its samples");
        self.sum_ns += u128::from(duration.0) * u128::from(count);
    }

    /// Samples so far.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The smallest duration that a share `q` (0 to 1) of the samples does not exceed, in seconds; zero if empty.
    pub fn quantile(&self, q: f64) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.histogram.value_at_quantile(q) as f64 / 1e9 }
    }

    /// Mean and percentiles.
    pub fn summary(&self) -> LatencySummary {
        let count = self.count();
        if count == 0 {
            return LatencySummary::default();
        }
        LatencySummary {
            count,
            mean: self.sum_ns as f64 / count as f64 / 1e9,
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            max: self.histogram.max() as f64 / 1e9,
        }
    }

    /// The cumulative distribution as (seconds, share of samples at or below), ascending, for plots.
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        let total = self.count().max(1) as f64;
        let mut below = 0;
        self.histogram
            .iter_recorded()
            .map(|bucket| {
                below += bucket.count_since_last_iteration();
                (bucket.value_iterated_to() as f64 / 1e9, below as f64 / total)
            })
            .collect()
    }
}
