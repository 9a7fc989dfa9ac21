//! The highest request rate at which a scheduler keeps the SLO, by bisection, and its latencies over the rate.

mod study;

use std::collections::BTreeMap;
use std::convert::Infallible;

use engine::bounds;
use engine::metrics::{RunMetrics, Slo};
use engine::scheduler::Mode;
use reports::Capacity;
use traces::numbers::RatePerS;
use traces::{ArrivalsConfig, TracesError};

use crate::parallel::try_map;
use crate::plan::{Plan, Planned};
use crate::run::{self, Discard};

pub use study::{Curve, curves, study};

/// The search ends when a rate that is carried and one that is not are this close.
const PRECISION: f64 = 0.01;

/// Doublings or halvings of the scenario's rate before the search gives up.
const MAX_STEPS: u32 = 12;

/// A rate that was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Requests per second.
    pub rate_per_s: f64,
    /// The run at that rate.
    pub metrics: RunMetrics,
    /// The SLO was kept, and the queue did not grow.
    pub carried: bool,
}

/// A capacity and how it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The highest rate that was carried.
    pub rate_per_s: f64,
    /// Every rate that was tried, in order.
    pub tried: Vec<Tried>,
}

impl Found {
    /// The run at the capacity.
    pub fn metrics(&self) -> &RunMetrics {
        let at = self.tried.iter().find(|tried| tried.rate_per_s == self.rate_per_s);
        &at.expect("a capacity was tried").metrics
    }
}

/// The capacity of every scheduler of an online plan, by name, and its ratio to full-depth continuous batching's.
///
/// Empty without an SLO, for arrivals without a rate, or if not even the lowest rate is carried.
pub fn all(plan: &Plan) -> BTreeMap<String, Capacity> {
    let Some(slo) = plan.slo() else { return BTreeMap::new() };
    // Schedulers of full depth all have the baseline's.
    let baseline = plan.baseline();
    let others = plan.schedulers.iter().filter(|planned| planned.config.mode != Mode::ContinuousBatching);
    let searched: Vec<&Planned> = [&baseline].into_iter().chain(others).collect();
    let Ok(found) = try_map(searched.len(), |index| Ok::<_, Infallible>(search(plan, searched[index], slo)));
    let Some(base) = found[0].clone() else { return BTreeMap::new() };
    let capacity = |planned: &Planned| {
        let place = match planned.config.mode {
            Mode::ContinuousBatching => 0,
            _ => 1 + searched[1..].iter().position(|other| other.name == planned.name)?,
        };
        let found = found[place].as_ref()?;
        let speedup = found.rate_per_s / base.rate_per_s;
        let s_dec = bounds::s_dec(&plan.model, found.metrics().mean_exit_depth);
        let s_e2e = bounds::s_e2e(s_dec, base.metrics().prefill_share);
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
    // A rate at which nothing arrives, or more than a run can hold, is not carried.
    let mut carries = |rate_per_s: f64| {
        let Some(metrics) = at_rate(plan, planned, rate_per_s) else { return false };
        let carried = slo.carried(&metrics);
        tried.push(Tried { rate_per_s, metrics, carried });
        carried
    };
    let mut low = rate(plan)?;
    let mut high = low;
    if carries(low) {
        for _ in 0..MAX_STEPS {
            high *= 2.0;
            if !carries(high) {
                break;
            }
            low = high;
        }
    } else {
        for _ in 0..MAX_STEPS {
            low /= 2.0;
            if carries(low) {
                break;
            }
            high = low;
        }
    }
    while high / low > 1.0 + PRECISION {
        let middle = (low * high).sqrt();
        if carries(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let carried = tried.iter().filter(|tried| tried.carried).map(|tried| tried.rate_per_s);
    let rate_per_s = carried.max_by(f64::total_cmp)?;
    Some(Found { rate_per_s, tried })
}

/// The mean rate of the plan's arrivals, if they have one.
pub fn rate(plan: &Plan) -> Option<f64> {
    match plan.scenario.workload.arrivals {
        ArrivalsConfig::Poisson { rate_per_s, .. } | ArrivalsConfig::Gamma { rate_per_s, .. } => Some(rate_per_s.get()),
        ArrivalsConfig::Offline | ArrivalsConfig::Trace => None,
    }
}

/// A scheduler's run of the same plan at another rate; `None` without a rate, or if no run can have this one.
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
        Err(TracesError::NoRequests | TracesError::TooMany { .. } | TracesError::TooLate { .. }) => return None,
        Err(error) => unreachable!("the workload was built before at another rate: {error}"),
    };
    let Ok(recorder) = run::run(&plan, planned, &mut Discard);
    Some(recorder.metrics())
}

/// The SLO in words, as reports print it.
fn describe(slo: &Slo) -> String {
    let words = |(path, limit): (String, f64)| match path.trim_end_matches("_ms").split_once('.') {
        Some((statistic, metric)) => format!("{statistic} {metric} <= {limit} ms"),
        None => format!("{} <= {limit} ms for {}% of requests", path.trim_end_matches("_ms"), slo.attainment * 100.0),
    };
    slo.limits().map(words).collect::<Vec<_>>().join(", ")
}
