//! One definition of each metric.
//!
//! Latencies are measured from a request's intended arrival. Refused requests count as refused and nowhere else; requests
//! with one token have a TTFT, an end-to-end and a normalized latency, but no TPOT and no ITL.

mod latency;
mod recorder;
mod series;

use serde::{Deserialize, Serialize};

pub use latency::{Latency, LatencySummary};
pub use recorder::{Latencies, Recorder};
pub use series::SeriesPoint;

use crate::batch::Stage;
use crate::request::RequestId;
use crate::units::Nanos;

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its number.
    pub request: RequestId,
    /// Intended arrival.
    pub arrival: Nanos,
    /// When it was handed to the scheduler: as soon as the host looked, which a running step can delay.
    pub sent: Nanos,
    /// Start of its first batch.
    pub admitted: Nanos,
    /// When its first output token was there.
    pub first_token: Nanos,
    /// When its last output token was there.
    pub finish: Nanos,
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Output tokens delivered.
    pub output_tokens: u32,
    /// Sum of the exit depths of its decoded tokens (all but the first).
    pub depth_sum: u64,
    /// How often it lost its slot.
    pub preemptions: u32,
}

impl RequestRecord {
    /// Time to first token.
    pub fn ttft(&self) -> Nanos {
        self.first_token - self.arrival
    }

    /// End-to-end latency.
    pub fn e2e(&self) -> Nanos {
        self.finish - self.arrival
    }

    /// Time per output token after the first; `None` with one token.
    pub fn tpot(&self) -> Option<Nanos> {
        let gaps = u64::from(self.output_tokens.checked_sub(1)?);
        (gaps > 0).then(|| Nanos((self.finish - self.first_token).0 / gaps))
    }

    /// End-to-end latency per output token.
    pub fn normalized(&self) -> Nanos {
        Nanos(self.e2e().0 / u64::from(self.output_tokens))
    }

    /// Mean exit depth of its decoded tokens; `None` with one token.
    pub fn mean_depth(&self) -> Option<f64> {
        let decoded = self.output_tokens.checked_sub(1).filter(|&tokens| tokens > 0)?;
        Some(self.depth_sum as f64 / f64::from(decoded))
    }
}

/// Limits that a request must keep to count as good; at least one is set.
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
    /// Share of requests that must keep the limits for a load to be carried: 0.99 makes them limits of the 99th percentile.
    pub attainment: f64,
}

impl Default for Slo {
    fn default() -> Self {
        Self { ttft_ms: None, tpot_ms: None, e2e_ms: None, normalized_ms: None, attainment: 0.9 }
    }
}

impl Slo {
    /// The limits that are set, by field.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let fields = [
            ("ttft_ms", self.ttft_ms),
            ("tpot_ms", self.tpot_ms),
            ("e2e_ms", self.e2e_ms),
            ("normalized_ms", self.normalized_ms),
        ];
        fields.into_iter().filter_map(|(field, limit)| Some((field, limit?)))
    }

    /// Whether a request kept every limit.
    pub fn met(&self, record: &RequestRecord) -> bool {
        let within = |limit: Option<f64>, value: Option<Nanos>| match (limit, value) {
            (Some(limit_ms), Some(value)) => value.as_millis() <= limit_ms,
            _ => true,
        };
        within(self.ttft_ms, Some(record.ttft()))
            && within(self.tpot_ms, record.tpot())
            && within(self.e2e_ms, Some(record.e2e()))
            && within(self.normalized_ms, Some(record.normalized()))
    }
}

/// Where requests went; `arrived = finished + refused` once a run is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Handed to the scheduler.
    pub arrived: u64,
    /// Got all their tokens.
    pub finished: u64,
    /// Could never fit.
    pub refused: u64,
    /// Finished with a single token.
    pub one_token: u64,
    /// Times that a finished request had lost its slot.
    pub preemptions: u64,
}

/// Sums over the steps of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTotals {
    /// Executor calls.
    pub steps: u64,
    /// Rows in them.
    pub rows: u64,
    /// Device time, in seconds.
    pub busy_s: f64,
}

/// Throughput while the system is full: from 2 W completions to the last admission.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyWindow {
    /// When 2 W requests had finished.
    pub opened_s: f64,
    /// When the last request was admitted.
    pub closed_s: f64,
    /// Output tokens per second in between.
    pub throughput_tokens_per_s: f64,
}

/// Requests that kept an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// The limits.
    pub slo: Slo,
    /// Share of finished requests.
    pub share: f64,
    /// Per second of the whole run.
    pub requests_per_s: f64,
}

/// Everything that is measured of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMetrics {
    /// Where requests went.
    pub requests: RequestCounts,
    /// Prompt tokens of finished requests.
    pub prompt_tokens: u64,
    /// Output tokens delivered.
    pub output_tokens: u64,
    /// From the first arrival to the end of the last step.
    pub makespan_s: f64,
    /// Output tokens / makespan.
    pub throughput_tokens_per_s: f64,
    /// The same in the steady window, if the run has one.
    pub steady: Option<SteadyWindow>,
    /// Under the scenario's SLO.
    pub goodput: Option<Goodput>,
    /// Time to first token.
    pub ttft: LatencySummary,
    /// Time per output token after the first.
    pub tpot: LatencySummary,
    /// Gaps between successive tokens.
    pub itl: LatencySummary,
    /// Arrival to last token.
    pub e2e: LatencySummary,
    /// End-to-end per output token.
    pub normalized: LatencySummary,
    /// How long after its intended arrival a request was handed to the scheduler.
    pub send_delay: LatencySummary,
    /// Totals of each stage that ran.
    pub stages: Vec<(Stage, StageTotals)>,
    /// Device time / makespan.
    pub gpu_busy_share: f64,
    /// Prefill's share of device time.
    pub prefill_share: f64,
    /// Mean exit depth of decoded tokens (all but each request's first).
    pub mean_exit_depth: f64,
    /// Decoded tokens by exit depth; index 0 is unused.
    pub exit_depths: Vec<u64>,
    /// Largest number of core blocks in use.
    pub kv_peak_blocks: u32,
    /// From the first to the last arrival; zero offline.
    pub arrival_window_s: f64,
    /// Queues and batches over time.
    pub series: Vec<SeriesPoint>,
}

impl RunMetrics {
    /// Totals of one stage; zero if it never ran.
    pub fn stage(&self, stage: Stage) -> StageTotals {
        self.stages.iter().find(|(other, _)| *other == stage).map_or_else(StageTotals::default, |(_, totals)| *totals)
    }

    /// Mean rows per step of a stage; zero if it never ran.
    pub fn mean_batch(&self, stage: Stage) -> f64 {
        let totals = self.stage(stage);
        totals.rows as f64 / totals.steps.max(1) as f64
    }

    /// Mean rows per core step, or per `forward` step under continuous batching.
    pub fn mean_core_batch(&self) -> f64 {
        let core = self.mean_batch(Stage::Core);
        if core > 0.0 { core } else { self.mean_batch(Stage::Forward) }
    }

    /// How fast the prompt queue grew over the last four fifths of the arrival window, in requests per second
    /// (least squares over the series); `None` offline.
    pub fn queue_growth_per_s(&self) -> Option<f64> {
        if self.arrival_window_s <= 0.0 {
            return None;
        }
        let window = 0.2 * self.arrival_window_s..=self.arrival_window_s;
        let points: Vec<(f64, f64)> =
            self.series.iter().map(|p| (p.end_s, p.prompt_queue)).filter(|(t, _)| window.contains(t)).collect();
        let n = points.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / n;
        let (t, q) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|p| (p.0 - t).powi(2)).sum();
        (spread > 0.0).then(|| points.iter().map(|p| (p.0 - t) * (p.1 - q)).sum::<f64>() / spread)
    }

    /// Past saturation: the prompt queue grows by more than 2% of the arrival rate; `None` offline.
    pub fn saturated(&self) -> Option<bool> {
        let rate_per_s = self.requests.arrived as f64 / self.arrival_window_s;
        Some(self.queue_growth_per_s()? > 0.02 * rate_per_s)
    }
}
