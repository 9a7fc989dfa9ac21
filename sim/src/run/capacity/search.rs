//! The search for a capacity: up to a rate that fails, down to one that is carried, and in between.

use engine::metrics::{RunMetrics, Slo};
use reports::Bracket;

use super::{Found, Tried, at_rate, rate};
use crate::run::plan::{Plan, Planned};

/// The search ends when a rate that is carried and one that is not are this close.
const PRECISION: f64 = 0.01;

/// Doublings or halvings of the scenario's rate, should nothing else end them.
const MAX_STEPS: u32 = 64;

/// Requests of a run at one rate: beyond them a search would take hours.
pub(super) const MAX_REQUESTS: u32 = 1_000_000;

/// What hardly changes anything: requests that overlap for less than this share of their time are as good as alone, and such
/// that arrive within this share of it have arrived at once.
const HARDLY: f64 = 0.01;

/// Searches one scheduler's capacity; `None` if the plan's arrivals have no rate.
pub fn search(plan: &Plan, planned: &Planned, slo: Slo) -> Option<Found> {
    let start = rate(plan)?;
    let mut search = Search { plan, planned, slo, tried: Vec::new() };
    search.rise(start);
    if search.highest_carried().is_none() {
        search.fall(start / 2.0);
    }
    let rates = match search.highest_carried() {
        Some(low) => search.bisect(low),
        None => {
            let failed_per_s = search.lowest_failed_above(0.0);
            Bracket { failed_per_s, open: Some(search.why_none()), ..Bracket::default() }
        }
    };
    let refused_share = search.tried.last().map_or(0.0, |tried| tried.metrics.requests.refused_share());
    Some(Found { rates: Bracket { refused_share, ..rates }, tried: search.tried })
}

struct Search<'a> {
    plan: &'a Plan,
    planned: &'a Planned,
    slo: Slo,
    tried: Vec<Tried>,
}

impl Search<'_> {
    /// Runs at a rate; `None` if no run can have it.
    fn run(&mut self, rate_per_s: f64) -> Option<&Tried> {
        let metrics = at_rate(self.plan, self.planned, rate_per_s)?;
        self.tried.push(Tried::new(&self.slo, rate_per_s, metrics));
        self.tried.last()
    }

    /// Doubles the rate until one fails, or until none will.
    fn rise(&mut self, start: f64) {
        let mut rate_per_s = start;
        for _ in 0..MAX_STEPS {
            match self.run(rate_per_s) {
                Some(tried) if tried.carried != Some(false) && !at_once(&tried.metrics) => rate_per_s *= 2.0,
                _ => break,
            }
        }
    }

    /// Halves the rate until one is carried, or until none will.
    fn fall(&mut self, start: f64) {
        let mut rate_per_s = start;
        for _ in 0..MAX_STEPS {
            if self.tried.last().is_some_and(|tried| self.refuses_too_many(&tried.metrics) || alone(&tried.metrics)) {
                break;
            }
            match self.run(rate_per_s) {
                Some(tried) if tried.carried != Some(true) => rate_per_s /= 2.0,
                _ => break,
            }
        }
    }

    /// Narrows the gap above `low` to the precision.
    fn bisect(&mut self, mut low: f64) -> Bracket {
        let above = self.tried.iter().map(|tried| tried.rate_per_s).filter(|rate_per_s| *rate_per_s > low);
        let mut high = above.reduce(f64::min);
        while let Some(top) = high.filter(|top| top / low > 1.0 + PRECISION) {
            let middle = (low * top).sqrt();
            match self.run(middle) {
                Some(Tried { carried: Some(true), .. }) => low = middle,
                _ => high = Some(middle),
            }
        }
        let failed_per_s = self.lowest_failed_above(low);
        let closed = failed_per_s.is_some() && failed_per_s == high;
        Bracket {
            carried_per_s: Some(low),
            failed_per_s,
            open: (!closed).then(|| self.why_not_higher(low)),
            refused_share: 0.0,
        }
    }

    fn highest_carried(&self) -> Option<f64> {
        let carried = self.tried.iter().filter(|tried| tried.carried == Some(true));
        carried.map(|tried| tried.rate_per_s).reduce(f64::max)
    }

    fn lowest_failed_above(&self, low: f64) -> Option<f64> {
        let failed = self.tried.iter().filter(|tried| tried.carried == Some(false) && tried.rate_per_s > low);
        failed.map(|tried| tried.rate_per_s).reduce(f64::min)
    }

    fn why_not_higher(&self, low: f64) -> String {
        if self.tried.iter().any(|tried| tried.rate_per_s > low && tried.carried.is_none()) {
            return format!("at higher rates {TOO_SHORT}");
        }
        format!("a higher rate has more than {MAX_REQUESTS} requests: lower duration_s, or set workload.requests")
    }

    fn why_none(&self) -> String {
        match self.tried.last() {
            Some(last) if self.refuses_too_many(&last.metrics) => format!(
                "that leaves less than the attainment of {}%: make room for long requests (kv.blocks, \
                 scheduler.max_context_tokens), or leave them out (workload.max_total_tokens)",
                100.0 * self.slo.attainment
            ),
            Some(last) if last.carried == Some(false) && alone(&last.metrics) => {
                "not even requests that hardly ever meet keep the limits: loosen slo".into()
            }
            _ => format!("at lower rates {TOO_SHORT}"),
        }
    }

    /// No rate changes how many requests can never fit.
    fn refuses_too_many(&self, metrics: &RunMetrics) -> bool {
        metrics.requests.refused_share() > 1.0 - self.slo.attainment
    }
}

const TOO_SHORT: &str = "arrivals are over too soon to be judged, in less than 5 times what a request takes: raise \
                         workload.requests, or give the arrivals a longer duration_s";

/// All requests are there before any of them gets far: with less time between them nothing changes.
fn at_once(metrics: &RunMetrics) -> bool {
    let several = metrics.requests.arrived - metrics.requests.refused > 1;
    several && metrics.arrival_window_s < HARDLY * metrics.e2e.mean
}

/// Requests hardly ever meet (by Little's law): with more time between them nothing changes.
fn alone(metrics: &RunMetrics) -> bool {
    metrics.requests.finished as f64 * metrics.e2e.mean <= HARDLY * metrics.makespan_s
}
