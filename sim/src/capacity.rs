//! The highest request rate at which a scheduler keeps the SLO, by bisection.

use std::collections::BTreeMap;

use engine::bounds;
use engine::metrics::{RunMetrics, Slo};
use engine::scheduler::Mode;
use reports::Capacity;
use traces::numbers::RatePerS;
use traces::{ArrivalsConfig, TracesError};

use crate::plan::{Plan, Planned};
use crate::run::{self, Discard};

/// The search ends when a rate that is carried and one that is not are this close.
const PRECISION: f64 = 0.01;

/// Doublings or halvings of the scenario's rate before the search gives up.
const MAX_STEPS: u32 = 12;

/// A rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Share of finished requests that kept the limits.
    pub attained: f64,
    /// Enough kept them, and the queue did not grow.
    pub carried: bool,
}

/// A capacity and how it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The highest rate that was carried.
    pub rate_per_s: f64,
    /// The run at that rate.
    pub metrics: RunMetrics,
    /// Every rate that was tried, in order.
    pub tried: Vec<Tried>,
}

/// The capacity of every scheduler of an online plan, by name, and its ratio to full-depth continuous batching's.
///
/// Empty without an SLO, for arrivals without a rate, or if not even the lowest rate is carried.
pub fn all(plan: &Plan) -> BTreeMap<String, Capacity> {
    let Some(slo) = plan.slo() else { return BTreeMap::new() };
    let Some(base) = search(plan, &plan.baseline(), slo) else { return BTreeMap::new() };
    let capacity = |planned: &Planned| {
        let found = match planned.config.mode {
            Mode::ContinuousBatching => base.clone(),
            _ => search(plan, planned, slo)?,
        };
        let speedup = found.rate_per_s / base.rate_per_s;
        let s_dec = bounds::s_dec(&plan.model, found.metrics.mean_exit_depth);
        let s_e2e = bounds::s_e2e(s_dec, base.metrics.prefill_share);
        Some(Capacity {
            requests_per_s: found.rate_per_s,
            slo: describe(&slo),
            speedup: Some(speedup),
            realised_share: Some(speedup / s_e2e),
        })
    };
    plan.schedulers.iter().filter_map(|planned| Some((planned.name.clone(), capacity(planned)?))).collect()
}

/// Searches one scheduler's capacity; `None` if the plan's arrivals have no rate or none is carried.
pub fn search(plan: &Plan, planned: &Planned, slo: Slo) -> Option<Found> {
    let mut tried = Vec::new();
    let mut best: Option<(f64, RunMetrics)> = None;
    let mut try_rate = |rate_per_s: f64| {
        let metrics = at_rate(plan, planned, rate_per_s)?;
        let attained = metrics.goodput.map_or(0.0, |goodput| goodput.share);
        let carried = attained >= slo.attainment && metrics.saturated() == Some(false);
        tried.push(Tried { rate_per_s, attained, carried });
        if carried {
            best = Some((rate_per_s, metrics));
        }
        Some(carried)
    };
    let mut low = rate(plan)?;
    let mut high = low;
    if try_rate(low)? {
        for _ in 0..MAX_STEPS {
            high *= 2.0;
            if !try_rate(high)? {
                break;
            }
            low = high;
        }
    } else {
        for _ in 0..MAX_STEPS {
            low /= 2.0;
            if try_rate(low)? {
                break;
            }
            high = low;
        }
    }
    while high / low > 1.0 + PRECISION {
        let middle = (low * high).sqrt();
        if try_rate(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    let (rate_per_s, metrics) = best?;
    Some(Found { rate_per_s, metrics, tried })
}

/// The mean rate of the plan's arrivals, if they have one.
pub fn rate(plan: &Plan) -> Option<f64> {
    match plan.scenario.workload.arrivals {
        ArrivalsConfig::Poisson { rate_per_s, .. } | ArrivalsConfig::Gamma { rate_per_s, .. } => Some(rate_per_s.get()),
        ArrivalsConfig::Offline | ArrivalsConfig::Trace => None,
    }
}

/// The same plan at another rate.
fn at_rate(plan: &Plan, planned: &Planned, rate_per_s: f64) -> Option<RunMetrics> {
    let mut plan = plan.clone();
    match &mut plan.scenario.workload.arrivals {
        ArrivalsConfig::Poisson { rate_per_s: rate, .. } | ArrivalsConfig::Gamma { rate_per_s: rate, .. } => {
            *rate = RatePerS::try_from(rate_per_s).ok()?;
        }
        ArrivalsConfig::Offline | ArrivalsConfig::Trace => return None,
    }
    plan.workload = match plan.requests() {
        Ok(workload) => workload,
        // So low a rate that nothing arrives within the window.
        Err(TracesError::NoRequests) => return None,
        Err(error) => unreachable!("the workload was built before at another rate: {error}"),
    };
    let Ok(recorder) = run::run(&plan, planned, &mut Discard);
    Some(recorder.metrics())
}

/// The SLO in words, as reports print it.
fn describe(slo: &Slo) -> String {
    let limits: Vec<_> =
        slo.limits().map(|(field, limit)| format!("{} <= {limit} ms", field.trim_end_matches("_ms"))).collect();
    format!("{} for {}% of requests", limits.join(" and "), slo.attainment * 100.0)
}
