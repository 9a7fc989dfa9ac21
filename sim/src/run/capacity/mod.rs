//! The highest request rate at which a scheduler keeps the SLO, by bisection.

mod search;

use std::collections::BTreeMap;
use std::convert::Infallible;

use engine::metrics::{RunMetrics, Slo};
use engine::scheduler::Mode;
use reports::{Bracket, Capacity};
use traces::numbers::RatePerS;
use traces::{ArrivalsConfig, TracesError};

use crate::parallel::try_map;
use crate::run::plan::{Plan, Planned};
use crate::run::serve::{Discard, serve};
use crate::run::speed::Speed;

pub use search::search;

/// A rate that was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Requests per second.
    pub rate_per_s: f64,
    /// The run at that rate.
    pub metrics: RunMetrics,
    /// The SLO was kept, and the queue did not grow; `None` if so, but arrivals were over too soon to tell.
    pub carried: Option<bool>,
}

/// A capacity and how it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The answer.
    pub rates: Bracket,
    /// Every rate that was tried, in order.
    pub tried: Vec<Tried>,
}

impl Tried {
    pub(crate) fn new(slo: &Slo, rate_per_s: f64, metrics: RunMetrics) -> Self {
        let carried = slo.carried(&metrics);
        Self { rate_per_s, carried: (!carried || metrics.saturated().is_some()).then_some(carried), metrics }
    }
}

impl Found {
    /// The run at the highest rate that was carried.
    pub fn metrics(&self) -> Option<&RunMetrics> {
        let rate_per_s = self.rates.carried_per_s?;
        self.tried.iter().find(|tried| tried.rate_per_s == rate_per_s).map(|tried| &tried.metrics)
    }

    /// Ratio of the capacity to full depth's, and the bound on it, if both capacities are known.
    fn against(&self, base: &Self, plan: &Plan) -> Option<(f64, f64)> {
        let speedup = self.rates.capacity_per_s()? / base.rates.capacity_per_s()?;
        let bounds = Speed::of(self.metrics()?, plan).against(&Speed::of(base.metrics()?, plan), plan)?;
        Some((speedup, bounds.s_e2e))
    }
}

/// The capacity of every scheduler of an online plan, by name, and its ratio to full-depth continuous batching's.
///
/// Empty without an SLO, or for arrivals without a rate.
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
        let (speedup, s_e2e) = found.against(&base, plan).unzip();
        let realised_share = speedup.zip(s_e2e).map(|(speedup, s_e2e)| speedup / s_e2e);
        let rates = found.rates.clone();
        Some(Capacity { requests_per_s: rates.capacity_per_s(), rates, slo: describe(&slo), speedup, realised_share })
    };
    plan.schedulers.iter().filter_map(|planned| Some((planned.name.clone(), capacity(planned)?))).collect()
}

/// The mean rate of the plan's arrivals, if they have one.
pub fn rate(plan: &Plan) -> Option<f64> {
    match plan.scenario.workload.arrivals {
        ArrivalsConfig::Poisson { rate_per_s, .. } | ArrivalsConfig::Gamma { rate_per_s, .. } => Some(rate_per_s.get()),
        ArrivalsConfig::Offline | ArrivalsConfig::Trace | ArrivalsConfig::Closed { .. } => None,
    }
}

/// A scheduler's run of the same plan at another rate; `None` without a rate, or if it has more requests than a search tries.
pub(crate) fn at_rate(plan: &Plan, planned: &Planned, rate_per_s: f64) -> Option<RunMetrics> {
    let mut plan = plan.clone();
    match &mut plan.scenario.workload.arrivals {
        ArrivalsConfig::Poisson { rate_per_s: rate, .. } | ArrivalsConfig::Gamma { rate_per_s: rate, .. } => {
            *rate = RatePerS::try_from(rate_per_s).ok()?;
        }
        ArrivalsConfig::Offline | ArrivalsConfig::Trace | ArrivalsConfig::Closed { .. } => return None,
    }
    plan.workload = match plan.requests() {
        Ok(workload) => workload,
        Err(TracesError::NoRequests | TracesError::TooMany { .. } | TracesError::TooLate { .. }) => return None,
        Err(error) => unreachable!("the workload was built before at another rate: {error}"),
    };
    if plan.workload.requests() > search::MAX_REQUESTS {
        return None;
    }
    let Ok(recorder) = serve(&plan, planned, &mut Discard);
    Some(recorder.metrics())
}

/// The SLO in words, as reports print it.
pub(crate) fn describe(slo: &Slo) -> String {
    let words = |(path, limit): (String, f64)| match path.trim_end_matches("_ms").split_once('.') {
        Some((statistic, metric)) => format!("{statistic} {metric} <= {limit} ms"),
        None => format!("{} <= {limit} ms for {}% of requests", path.trim_end_matches("_ms"), slo.attainment * 100.0),
    };
    slo.limits().map(words).collect::<Vec<_>>().join(", ")
}
