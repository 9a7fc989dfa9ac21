//! `--quick`: the same scenario, small enough for every commit.

use traces::ArrivalsConfig;
use traces::numbers::{RequestCount, Seconds};

use crate::scenario::Scenario;

/// Requests of a quick run at most.
const REQUESTS: i64 = 300;

/// Seconds of arrivals of a quick run at most.
const DURATION_S: f64 = 120.0;

/// Shortens the workload and thins the sweep; schedulers, model and seed stay.
pub fn shrink(scenario: &mut Scenario) {
    let most = RequestCount::try_from(REQUESTS).expect("a valid count");
    scenario.workload.requests = Some(scenario.workload.requests.map_or(most, |requests| requests.min(most)));
    if let ArrivalsConfig::Poisson { duration_s, .. } | ArrivalsConfig::Gamma { duration_s, .. } =
        &mut scenario.workload.arrivals
    {
        let most = Seconds::try_from(DURATION_S).expect("a valid duration");
        *duration_s = duration_s.map(|duration| if duration < most { duration } else { most });
    }
    if let Some(axes) = &mut scenario.sweep {
        axes.keep_ends();
    }
}
