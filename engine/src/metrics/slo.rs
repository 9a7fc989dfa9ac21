//! Latency limits that a service promises.

use serde::{Deserialize, Serialize};

use super::{LatencySummary, RequestRecord, RunMetrics};
use crate::units::Nanos;

/// What a load must keep to be carried; at least one limit is set.
///
/// The limits at the top hold for a share of the requests that arrive, the others for a mean or a percentile of those that
/// are served: `{ ttft_ms: 2000, attainment: 0.99, p50: { tpot_ms: 30 } }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slo {
    /// TTFT at most, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// TPOT at most, in milliseconds.
    pub tpot_ms: Option<f64>,
    /// End-to-end latency at most, in milliseconds.
    pub e2e_ms: Option<f64>,
    /// Normalized latency at most, in milliseconds per token.
    pub normalized_ms: Option<f64>,
    /// Share of the requests that arrive that must keep all of the above: 0.99 makes them limits of the 99th percentile. One
    /// that can never fit keeps none, so no more than the rest may be refused, whatever the limits are.
    pub attainment: f64,
    /// Limits of the means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Limits>,
    /// Limits of the medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<Limits>,
    /// Limits of the 90th percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<Limits>,
    /// Limits of the 95th percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95: Option<Limits>,
    /// Limits of the 99th percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<Limits>,
}

/// Limits of one statistic, each on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// TTFT at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// TPOT at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    /// End-to-end latency at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_ms: Option<f64>,
    /// Normalized latency at most, in milliseconds per token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalized_ms: Option<f64>,
}

impl Default for Slo {
    fn default() -> Self {
        Self {
            ttft_ms: None,
            tpot_ms: None,
            e2e_ms: None,
            normalized_ms: None,
            attainment: 0.9,
            mean: None,
            p50: None,
            p90: None,
            p95: None,
            p99: None,
        }
    }
}

impl Slo {
    /// Every limit that is set, by its path in scenarios: `ttft_ms`, `p99.tpot_ms`.
    pub fn limits(&self) -> impl Iterator<Item = (String, f64)> {
        let of_statistics = self.statistics().into_iter().flat_map(|(statistic, limits, _)| {
            limits.fields().into_iter().map(move |(field, limit)| (format!("{statistic}.{field}"), limit))
        });
        let of_requests = self.of_requests().fields().into_iter().map(|(field, limit)| (field.to_owned(), limit));
        of_requests.chain(of_statistics).filter_map(|(path, limit)| Some((path, limit?)))
    }

    /// Whether a request kept every limit that holds for single requests.
    pub fn met(&self, record: &RequestRecord) -> bool {
        let within = |limit: Option<f64>, value: Option<Nanos>| match (limit, value) {
            (Some(limit_ms), Some(value)) => keeps(value, limit_ms),
            _ => true,
        };
        within(self.ttft_ms, Some(record.ttft()))
            && within(self.tpot_ms, record.tpot())
            && within(self.e2e_ms, Some(record.e2e()))
            && within(self.normalized_ms, Some(record.normalized()))
    }

    /// Whether a run that was measured under this SLO kept all of it, and its queue was not seen to grow.
    pub fn carried(&self, metrics: &RunMetrics) -> bool {
        let requests = &metrics.requests;
        let kept = metrics.goodput.map_or(0.0, |goodput| (goodput.share * requests.finished as f64).round());
        let enough = kept / requests.arrived.max(1) as f64 >= self.attainment;
        let of_statistics = self.statistics().into_iter().all(|(_, limits, pick)| limits.kept(metrics, pick));
        enough && of_statistics && metrics.saturated() != Some(true)
    }

    fn of_requests(&self) -> Limits {
        Limits { ttft_ms: self.ttft_ms, tpot_ms: self.tpot_ms, e2e_ms: self.e2e_ms, normalized_ms: self.normalized_ms }
    }

    fn statistics(&self) -> Vec<(&'static str, Limits, Pick)> {
        let all: [(_, _, Pick); 5] = [
            ("mean", self.mean, |summary| summary.mean),
            ("p50", self.p50, |summary| summary.p50),
            ("p90", self.p90, |summary| summary.p90),
            ("p95", self.p95, |summary| summary.p95),
            ("p99", self.p99, |summary| summary.p99),
        ];
        all.into_iter().filter_map(|(name, limits, pick)| Some((name, limits?, pick))).collect()
    }
}

/// One comparison for single requests and for statistics, so that both say the same of the same duration.
fn keeps(duration: Nanos, limit_ms: f64) -> bool {
    duration.as_millis() <= limit_ms
}

/// Takes a statistic, in seconds.
type Pick = fn(&LatencySummary) -> f64;

impl Limits {
    fn fields(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("ttft_ms", self.ttft_ms),
            ("tpot_ms", self.tpot_ms),
            ("e2e_ms", self.e2e_ms),
            ("normalized_ms", self.normalized_ms),
        ]
    }

    fn kept(&self, metrics: &RunMetrics, pick: Pick) -> bool {
        let within =
            |limit: Option<f64>, summary| limit.is_none_or(|limit_ms| keeps(Nanos::from_secs(pick(summary)), limit_ms));
        within(self.ttft_ms, &metrics.ttft)
            && within(self.tpot_ms, &metrics.tpot)
            && within(self.e2e_ms, &metrics.e2e)
            && within(self.normalized_ms, &metrics.normalized)
    }
}
