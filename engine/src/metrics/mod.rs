//! One definition of each metric.
//!
//! Latencies are measured from a request's intended arrival. Requests that can never fit count as arrived and as refused and
//! nowhere else: every other figure is what it would be without them, the arrival rate and the makespan included. Requests
//! with one token have a TTFT, an end-to-end and a normalized latency, but no TPOT and no ITL.

mod arrivals;
mod latency;
mod recorder;
mod replicas;
mod saturation;
mod series;
mod slo;
mod work;

use serde::{Deserialize, Serialize};

pub use arrivals::Judged;
pub use latency::{Latency, LatencySummary};
pub use recorder::{Latencies, Recorder};
pub use replicas::ReplicaMetrics;
pub use saturation::Unjudged;
pub use series::SeriesPoint;
pub use slo::{Limits, Slo};
pub use work::Work;

use crate::batch::Stage;
use crate::request::RequestId;
use crate::scheduler::Reuse;
use crate::units::Nanos;

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Sum of the exit depths of its decoded tokens.
    pub depth_sum: u64,
    /// Output tokens after the first that prefill made, one after each recompute: they are no decoded tokens.
    #[serde(default)]
    pub prefilled_tokens: u32,
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

    /// Mean exit depth of its decoded tokens: all but the first and those that prefill made after a recompute. `None` without
    /// any.
    pub fn mean_depth(&self) -> Option<f64> {
        let decoded = self.output_tokens.checked_sub(1 + self.prefilled_tokens).filter(|&tokens| tokens > 0)?;
        Some(self.depth_sum as f64 / f64::from(decoded))
    }
}

/// Where requests went; `arrived = finished + refused + cancelled + failed` once a run is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Handed to the scheduler.
    pub arrived: u64,
    /// Got all their tokens.
    pub finished: u64,
    /// Could never fit.
    pub refused: u64,
    /// Were given up by their clients before they had all their tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// Ended because the model's numbers ran out of range.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Finished with a single token.
    pub one_token: u64,
    /// Times that a finished request had lost its slot.
    pub preemptions: u64,
}

impl RequestCounts {
    /// Those that nobody waits for any more.
    pub fn over(&self) -> u64 {
        self.finished + self.refused + self.cancelled + self.failed
    }

    /// Refused requests as a share of all that arrived; zero if none did.
    pub fn refused_share(&self) -> f64 {
        self.refused as f64 / self.arrived.max(1) as f64
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
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

/// Throughput while the system is full: from 2 W completions to the last first admission.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyWindow {
    /// When 2 W requests had finished.
    pub opened_s: f64,
    /// When the last request got its first slot; a preempted one that comes back does not count.
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

/// What a prefix cache saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrefixCacheMetrics {
    /// Tokens that admitted requests found in the cache, and that were not prefilled.
    pub hit_tokens: u64,
    /// Tokens that they needed there: prompts, after a recompute also what had been made.
    pub prompt_tokens: u64,
    /// The one over the other; zero without any.
    pub hit_rate: f64,
    /// Hit tokens in pages that hold outputs, whose tokens may have left early.
    pub generated_hit_tokens: u64,
    /// Pages that were given up for others.
    pub evicted_pages: u64,
}

impl PrefixCacheMetrics {
    /// Adds what happened for a batch.
    fn add(&mut self, reuse: Reuse) {
        self.hit_tokens += u64::from(reuse.hit_tokens);
        self.prompt_tokens += u64::from(reuse.prompt_tokens);
        self.generated_hit_tokens += u64::from(reuse.generated_hit_tokens);
        self.evicted_pages += u64::from(reuse.evicted_pages);
        self.hit_rate = self.hit_tokens as f64 / self.prompt_tokens.max(1) as f64;
    }
}

/// Everything that is measured of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunMetrics {
    /// Where requests went.
    pub requests: RequestCounts,
    /// Prompt tokens of finished requests.
    pub prompt_tokens: u64,
    /// Output tokens delivered.
    pub output_tokens: u64,
    /// From the first arrival of a request that is served to the end of the last step.
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
    /// Mean exit depth of decoded tokens (all but each request's first and those that prefill made after a recompute); zero
    /// without any.
    pub mean_exit_depth: f64,
    /// Decoded tokens by exit depth; index 0 is unused.
    pub exit_depths: Vec<u64>,
    /// What each of several replicas did; `None` of one engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaMetrics>,
    /// What the tokens ask of any device; `None` in journals of older programs.
    #[serde(default)]
    pub work: Option<Work>,
    /// Largest number of core blocks in use.
    pub kv_peak_blocks: u32,
    /// What the prefix cache saved, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_cache: Option<PrefixCacheMetrics>,
    /// When the first request that is served arrived.
    pub first_arrival_s: f64,
    /// From there to the last arrival of one; zero offline.
    pub arrival_window_s: f64,
    /// The arrivals on which saturation is judged; `None` offline.
    #[serde(default)]
    pub judged: Option<Judged>,
    /// Queues and batches over time.
    pub series: Vec<SeriesPoint>,
}

impl RunMetrics {
    /// What was measured is what a client saw: nothing is known of batches, of the device's time and of KV.
    pub fn is_from_outside(&self) -> bool {
        self.stages.is_empty() && self.requests.finished + self.requests.failed > 0
    }

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
}
