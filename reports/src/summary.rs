//! `summary.json`: every number of a report, for scripts. Missing and non-finite numbers are `null`.

use engine::batch::Stage;
use engine::interval::Interval;
use engine::metrics::{Goodput, LatencySummary, PrefixCacheMetrics, ReplicaMetrics, RequestCounts, SteadyWindow};
use engine::scheduler::Mode;
use serde::{Serialize, Serializer};

use crate::capacity::Capacity;
use crate::confidence::{ByMeasure, PairedDifference, paired_differences};
use crate::headline::headline;
use crate::report::{Floor, Report, SchedulerReport};

/// The report as JSON, keys in a fixed order.
///
/// # Errors
/// None that is known; serde's signature has one.
pub fn summary_json(report: &Report) -> serde_json::Result<String> {
    let summary = Summary {
        scenario: &report.title,
        online: report.online,
        facts: &report.facts,
        headline: headline(report),
        notes: &report.notes,
        seeds: report.confidence.as_ref().map(|confidence| confidence.seeds.as_slice()),
        schedulers: report
            .schedulers
            .iter()
            .enumerate()
            .map(|(index, run)| SchedulerSummary::new(report, index, run))
            .collect(),
        paired_differences: paired_differences(report),
    };
    Ok(serde_json::to_string_pretty(&summary)? + "\n")
}

#[derive(Serialize)]
struct Summary<'a> {
    scenario: &'a str,
    online: bool,
    #[serde(serialize_with = "as_map")]
    facts: &'a [(String, String)],
    headline: Vec<String>,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seeds: Option<&'a [u64]>,
    schedulers: Vec<SchedulerSummary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paired_differences: Vec<PairedDifference<'a>>,
}

#[derive(Serialize)]
struct SchedulerSummary<'a> {
    name: &'a str,
    mode: &'static str,
    min_coda_batch: Option<u32>,
    baseline: bool,
    throughput_tokens_per_s: f64,
    speedup: Option<f64>,
    s_dec: Option<f64>,
    s_e2e: Option<f64>,
    s_roof: Option<f64>,
    realised_share: Option<f64>,
    steady: Option<SteadyWindow>,
    steady_speedup: Option<f64>,
    floor: Option<Floor>,
    capacity: Option<&'a Capacity>,
    goodput: Option<Goodput>,
    saturated: Option<bool>,
    /// Why an online run has no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<String>,
    queue_growth_per_s: Option<f64>,
    requests: RequestCounts,
    prompt_tokens: u64,
    output_tokens: u64,
    makespan_s: f64,
    arrival_window_s: f64,
    ttft_s: Percentiles,
    tpot_s: Percentiles,
    itl_s: Percentiles,
    e2e_s: Percentiles,
    normalized_s: Percentiles,
    send_delay_s: Percentiles,
    mean_core_batch: Option<f64>,
    mean_coda_batch: Option<f64>,
    mean_prelude_batch: Option<f64>,
    gpu_busy_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<&'a ReplicaMetrics>,
    prefill_share: Option<f64>,
    kv: Option<Kv>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_cache: Option<PrefixCacheMetrics>,
    mean_exit_depth: Option<f64>,
    exit_depths: Vec<ExitDepth>,
    stages: Vec<StageJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<ByMeasure<Interval>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_half_width: Option<ByMeasure<f64>>,
}

#[derive(Serialize)]
struct Percentiles {
    count: u64,
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

#[derive(Serialize)]
struct Kv {
    peak_blocks: u32,
    total_blocks: u64,
    peak_share: f64,
}

#[derive(Serialize)]
struct ExitDepth {
    depth: usize,
    tokens: u64,
    share: f64,
}

#[derive(Serialize)]
struct StageJson {
    stage: &'static str,
    steps: u64,
    rows: u64,
    busy_s: f64,
    mean_batch: f64,
}

impl<'a> SchedulerSummary<'a> {
    fn new(report: &Report, index: usize, run: &'a SchedulerReport) -> Self {
        let confidence = report.confidence.as_ref();
        let (metrics, bounds) = (&run.metrics, run.bounds);
        let inside = !metrics.is_from_outside();
        let stage = |&(stage, totals): &(Stage, engine::metrics::StageTotals)| StageJson {
            stage: stage.name(),
            steps: totals.steps,
            rows: totals.rows,
            busy_s: totals.busy_s,
            mean_batch: metrics.mean_batch(stage),
        };
        Self {
            name: &run.name,
            mode: run.mode.name(),
            min_coda_batch: match run.mode {
                Mode::Refill { min_coda_batch } => Some(min_coda_batch),
                Mode::NoRefill | Mode::ContinuousBatching | Mode::AdaptiveRefill(_) => None,
            },
            baseline: bounds.is_some_and(|bounds| bounds.baseline),
            throughput_tokens_per_s: metrics.throughput_tokens_per_s,
            speedup: bounds.map(|bounds| bounds.speedup),
            s_dec: bounds.map(|bounds| bounds.s_dec),
            s_e2e: bounds.map(|bounds| bounds.s_e2e),
            s_roof: bounds.and_then(|bounds| bounds.s_roof),
            realised_share: bounds.map(|bounds| bounds.realised_share),
            steady: metrics.steady,
            steady_speedup: bounds.and_then(|bounds| bounds.steady_speedup),
            floor: run.floor,
            capacity: run.capacity.as_ref(),
            goodput: metrics.goodput,
            saturated: metrics.saturated(),
            not_judged: metrics.saturation().err().filter(|_| report.online).map(|why| why.to_string()),
            queue_growth_per_s: metrics.queue_growth_per_s(),
            requests: metrics.requests,
            prompt_tokens: metrics.prompt_tokens,
            output_tokens: metrics.output_tokens,
            makespan_s: metrics.makespan_s,
            arrival_window_s: metrics.arrival_window_s,
            ttft_s: metrics.ttft.into(),
            tpot_s: metrics.tpot.into(),
            itl_s: metrics.itl.into(),
            e2e_s: metrics.e2e.into(),
            normalized_s: metrics.normalized.into(),
            send_delay_s: metrics.send_delay.into(),
            mean_core_batch: run.mean_core_batch(),
            mean_coda_batch: run.mean_batch(Stage::Coda),
            mean_prelude_batch: run.mean_batch(Stage::Prelude),
            gpu_busy_share: inside.then_some(metrics.gpu_busy_share),
            replicas: metrics.replicas.as_ref(),
            prefill_share: inside.then_some(metrics.prefill_share),
            kv: inside.then(|| Kv {
                peak_blocks: metrics.kv_peak_blocks,
                total_blocks: run.kv_total_blocks,
                peak_share: run.kv_peak_share(),
            }),
            prefix_cache: metrics.prefix_cache,
            mean_exit_depth: (metrics.mean_exit_depth > 0.0).then_some(metrics.mean_exit_depth),
            exit_depths: run.exit_shares().into_iter().map(ExitDepth::from).collect(),
            stages: metrics.stages.iter().map(stage).collect(),
            interval: confidence.map(|confidence| ByMeasure::new(confidence.intervals(index))),
            profile_half_width: confidence
                .and_then(|confidence| Some(ByMeasure::new(confidence.profile.as_ref()?[index].clone()))),
        }
    }
}

impl From<LatencySummary> for Percentiles {
    fn from(summary: LatencySummary) -> Self {
        let some = |value: f64| (summary.count > 0).then_some(value);
        Self {
            count: summary.count,
            mean: some(summary.mean),
            p50: some(summary.p50),
            p90: some(summary.p90),
            p95: some(summary.p95),
            p99: some(summary.p99),
            max: some(summary.max),
        }
    }
}

impl From<(usize, u64, f64)> for ExitDepth {
    fn from((depth, tokens, share): (usize, u64, f64)) -> Self {
        Self { depth, tokens, share }
    }
}

fn as_map<S: Serializer>(facts: &&[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(facts.iter().map(|(name, value)| (name, value)))
}
