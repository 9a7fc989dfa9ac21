//! The headline figures of a run, as one flat record: what sweeps tabulate and repeats give intervals for.

use engine::batch::Stage;
use engine::interval::Interval;
use engine::metrics::{LatencySummary, RunMetrics};
use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::definitions::{self as d, Definition};
use crate::report::{Bounds, SchedulerReport};

/// A headline figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Column and key in files, unit last.
    pub column: &'static str,
    /// What it means.
    pub definition: Definition,
    /// Which statistic of a distribution; empty otherwise.
    pub statistic: &'static str,
}

/// Declares the record and the list of its fields.
macro_rules! measures {
    ($($column:ident: $definition:ident $statistic:literal;)*) => {
        /// One run's headline figures; `None` where a run has no such figure.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Measures {
            $(#[doc = concat!("See [`d::", stringify!($definition), "`].")] pub $column: Option<f64>,)*
        }

        impl Measures {
            /// The figures, in the order of the tables.
            pub const ALL: &[Measure] = &[$(Measure {
                column: stringify!($column),
                definition: d::$definition,
                statistic: $statistic,
            }),*];

            /// The values, in the order of [`Self::ALL`].
            pub fn values(&self) -> Vec<Option<f64>> {
                vec![$(self.$column),*]
            }
        }
    };
}

measures! {
    throughput_tokens_per_s: THROUGHPUT "";
    speedup: SPEEDUP "";
    s_dec: S_DEC "";
    s_e2e: S_E2E "";
    s_roof: S_ROOF "";
    realised_share: REALISED_SHARE "";
    capacity_requests_per_s: CAPACITY "";
    goodput_requests_per_s: GOODPUT "";
    within_slo_share: WITHIN_SLO "";
    mean_core_batch: MEAN_CORE_BATCH "";
    mean_coda_batch: MEAN_CODA_BATCH "";
    mean_exit_depth: MEAN_EXIT_DEPTH "";
    gpu_busy_share: GPU_BUSY "";
    prefill_share: PREFILL_SHARE "";
    ttft_mean_s: TTFT "mean";
    ttft_p50_s: TTFT "p50";
    ttft_p90_s: TTFT "p90";
    ttft_p95_s: TTFT "p95";
    ttft_p99_s: TTFT "p99";
    tpot_mean_s: TPOT "mean";
    tpot_p50_s: TPOT "p50";
    tpot_p90_s: TPOT "p90";
    tpot_p95_s: TPOT "p95";
    tpot_p99_s: TPOT "p99";
    itl_mean_s: ITL "mean";
    itl_p50_s: ITL "p50";
    itl_p90_s: ITL "p90";
    itl_p95_s: ITL "p95";
    itl_p99_s: ITL "p99";
    e2e_mean_s: E2E "mean";
    e2e_p50_s: E2E "p50";
    e2e_p90_s: E2E "p90";
    e2e_p95_s: E2E "p95";
    e2e_p99_s: E2E "p99";
    normalized_mean_s: NORMALIZED "mean";
    normalized_p50_s: NORMALIZED "p50";
    normalized_p90_s: NORMALIZED "p90";
    normalized_p95_s: NORMALIZED "p95";
    normalized_p99_s: NORMALIZED "p99";
    saturated: SATURATED "";
    queue_growth_per_s: QUEUE_GROWTH "";
    refused: REFUSED "";
    preemptions: PREEMPTIONS "";
    prefix_hit_rate: PREFIX_HIT_RATE "";
}

impl Measures {
    /// What a run says by itself. Past saturation is 1, else 0: the mean over repeats is the share that is.
    pub fn new(metrics: &RunMetrics) -> Self {
        let mean_batch = |stage| (metrics.stage(stage).steps > 0).then(|| metrics.mean_batch(stage));
        let some = |summary: &LatencySummary, value: f64| (summary.count > 0).then_some(value);
        let inside = |value: f64| (!metrics.is_from_outside()).then_some(value);
        let five = |summary: &LatencySummary| {
            let LatencySummary { mean, p50, p90, p95, p99, .. } = *summary;
            [mean, p50, p90, p95, p99].map(|value| some(summary, value))
        };
        let [ttft_mean_s, ttft_p50_s, ttft_p90_s, ttft_p95_s, ttft_p99_s] = five(&metrics.ttft);
        let [tpot_mean_s, tpot_p50_s, tpot_p90_s, tpot_p95_s, tpot_p99_s] = five(&metrics.tpot);
        let [itl_mean_s, itl_p50_s, itl_p90_s, itl_p95_s, itl_p99_s] = five(&metrics.itl);
        let [e2e_mean_s, e2e_p50_s, e2e_p90_s, e2e_p95_s, e2e_p99_s] = five(&metrics.e2e);
        let [normalized_mean_s, normalized_p50_s, normalized_p90_s, normalized_p95_s, normalized_p99_s] =
            five(&metrics.normalized);
        Self {
            throughput_tokens_per_s: Some(metrics.throughput_tokens_per_s),
            speedup: None,
            s_dec: None,
            s_e2e: None,
            s_roof: None,
            realised_share: None,
            capacity_requests_per_s: None,
            goodput_requests_per_s: metrics.goodput.map(|goodput| goodput.requests_per_s),
            within_slo_share: metrics.goodput.map(|goodput| goodput.share),
            mean_core_batch: mean_batch(Stage::Core).or_else(|| mean_batch(Stage::Forward)),
            mean_coda_batch: mean_batch(Stage::Coda),
            mean_exit_depth: (metrics.mean_exit_depth > 0.0).then_some(metrics.mean_exit_depth),
            gpu_busy_share: inside(metrics.gpu_busy_share),
            prefill_share: inside(metrics.prefill_share),
            ttft_mean_s,
            ttft_p50_s,
            ttft_p90_s,
            ttft_p95_s,
            ttft_p99_s,
            tpot_mean_s,
            tpot_p50_s,
            tpot_p90_s,
            tpot_p95_s,
            tpot_p99_s,
            itl_mean_s,
            itl_p50_s,
            itl_p90_s,
            itl_p95_s,
            itl_p99_s,
            e2e_mean_s,
            e2e_p50_s,
            e2e_p90_s,
            e2e_p95_s,
            e2e_p99_s,
            normalized_mean_s,
            normalized_p50_s,
            normalized_p90_s,
            normalized_p95_s,
            normalized_p99_s,
            saturated: metrics.saturated().map(|saturated| f64::from(u8::from(saturated))),
            queue_growth_per_s: metrics.queue_growth_per_s(),
            refused: inside(metrics.requests.refused as f64),
            preemptions: inside(metrics.requests.preemptions as f64),
            prefix_hit_rate: metrics.prefix_cache.map(|cache| cache.hit_rate),
        }
    }

    /// Adds the comparison with full depth.
    pub fn with_bounds(self, bounds: &Bounds) -> Self {
        Self {
            speedup: Some(bounds.speedup),
            s_dec: Some(bounds.s_dec),
            s_e2e: Some(bounds.s_e2e),
            s_roof: bounds.s_roof,
            realised_share: Some(bounds.realised_share),
            ..self
        }
    }

    /// Adds the load that is carried, whose ratio is the speed-up online.
    pub fn with_capacity(self, capacity: &Capacity) -> Self {
        Self {
            capacity_requests_per_s: capacity.requests_per_s,
            speedup: capacity.speedup,
            realised_share: capacity.realised_share,
            ..self
        }
    }

    /// Each figure's interval over repeats, in the order of [`Self::ALL`]; `None` where a repeat lacks it.
    pub fn intervals(repeats: &[Self]) -> Vec<Option<Interval>> {
        let rows: Vec<_> = repeats.iter().map(Self::values).collect();
        let column = |index: usize| -> Option<Vec<f64>> { rows.iter().map(|row| row[index]).collect() };
        (0..Self::ALL.len()).map(|index| Interval::of(&column(index)?)).collect()
    }
}

impl From<&SchedulerReport> for Measures {
    fn from(run: &SchedulerReport) -> Self {
        let mut measures = Self::new(&run.metrics);
        if let Some(bounds) = &run.bounds {
            measures = measures.with_bounds(bounds);
        }
        if let Some(capacity) = &run.capacity {
            measures = measures.with_capacity(capacity);
        }
        measures
    }
}

impl Measure {
    /// Name in tables, like `TTFT p99`.
    pub fn name(&self) -> String {
        [self.definition.name, self.statistic].join(" ").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_needs_every_repeat() {
        let repeat = |speedup, tpot_p99_s| Measures { speedup: Some(speedup), tpot_p99_s, ..Measures::default() };
        let intervals = Measures::intervals(&[repeat(1.0, Some(1.0)), repeat(2.0, None)]);
        let of = |column| intervals[Measures::ALL.iter().position(|measure| measure.column == column).expect(column)];
        assert_eq!(of("speedup").map(|interval| interval.mean), Some(1.5));
        assert_eq!(of("tpot_p99_s"), None);
    }
}
