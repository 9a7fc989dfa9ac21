//! What a report is made of.

use engine::batch::Stage;
use engine::metrics::{Latencies, RunMetrics};
use engine::scheduler::Mode;
use serde::Serialize;

use crate::capacity::Capacity;
use crate::confidence::Confidence;

/// One scenario: several schedulers on the same requests.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario's name.
    pub title: String,
    /// What a reader must know to repeat the run, as name and value: model, profile, workload, seeds, git revision.
    pub facts: Vec<(String, String)>,
    /// What a reader must know to judge it: assumed shapes, ranges, provenance.
    pub notes: Vec<String>,
    /// The resolved scenario.
    pub scenario_yaml: String,
    /// Requests arrive over time; if not, all are there at the start.
    pub online: bool,
    /// The runs, in the order in which they are shown.
    pub schedulers: Vec<SchedulerReport>,
    /// Repeats of the same comparison, if the scenario asks for them.
    pub confidence: Option<Confidence>,
}

/// One scheduler's run.
#[derive(Clone, Debug)]
pub struct SchedulerReport {
    /// Name in tables and legends, like `refill K=1`.
    pub name: String,
    /// How it forms batches.
    pub mode: Mode,
    /// What was measured.
    pub metrics: RunMetrics,
    /// The distributions behind the percentiles.
    pub latencies: Latencies,
    /// Core KV blocks in the pool.
    pub kv_total_blocks: u64,
    /// Against full-depth continuous batching and the bounds; offline only.
    pub bounds: Option<Bounds>,
    /// The same run at the physical floor.
    pub floor: Option<Floor>,
    /// The highest rate that keeps an SLO; online only.
    pub capacity: Option<Capacity>,
}

/// A run against the full-depth continuous-batching run of the same requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// This run is that run.
    pub baseline: bool,
    /// Ratio of throughputs.
    pub speedup: f64,
    /// Ratio of throughputs in the steady windows.
    pub steady_speedup: Option<f64>,
    /// Bound on decode, by its linear layers.
    pub s_dec: f64,
    /// Bound on the whole run, likewise.
    pub s_e2e: f64,
    /// Bound by bytes and FLOPs on the profile's device; `None` if no limit of it is known.
    pub s_roof: Option<f64>,
    /// `speedup / s_e2e`.
    pub realised_share: f64,
}

/// What the same comparison gives without any overhead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    /// Output tokens per second.
    pub throughput_tokens_per_s: f64,
    /// Ratio to full-depth continuous batching at the floor.
    pub speedup: f64,
    /// `speedup / s_e2e`, with the prefill share at the floor.
    pub realised_share: f64,
}

impl SchedulerReport {
    /// A run without comparisons.
    pub fn new(
        name: impl Into<String>,
        mode: Mode,
        metrics: RunMetrics,
        latencies: Latencies,
        kv_total_blocks: u64,
    ) -> Self {
        Self { name: name.into(), mode, metrics, latencies, kv_total_blocks, bounds: None, floor: None, capacity: None }
    }

    /// Peak KV use as a share of the pool.
    pub fn kv_peak_share(&self) -> f64 {
        f64::from(self.metrics.kv_peak_blocks) / self.kv_total_blocks.max(1) as f64
    }

    /// Mean rows per step of a stage; `None` if it never ran.
    pub fn mean_batch(&self, stage: Stage) -> Option<f64> {
        (self.metrics.stage(stage).steps > 0).then(|| self.metrics.mean_batch(stage))
    }

    /// Mean rows per core (or forward) step; `None` if neither ran.
    pub fn mean_core_batch(&self) -> Option<f64> {
        self.mean_batch(Stage::Core).or_else(|| self.mean_batch(Stage::Forward))
    }

    /// Share of decoded tokens by exit depth, as (depth, tokens, share).
    pub fn exit_shares(&self) -> Vec<(usize, u64, f64)> {
        let total = self.metrics.exit_depths.iter().sum::<u64>().max(1) as f64;
        let depths = self.metrics.exit_depths.iter().enumerate().skip(1);
        depths.map(|(depth, &tokens)| (depth, tokens, tokens as f64 / total)).collect()
    }
}
