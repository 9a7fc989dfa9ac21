//! The sentences that a reader should remember.

use crate::format::{duration, number, percent, ratio};
use crate::report::{Report, SchedulerReport};

/// What came out, one sentence a line; each scheduler but the baseline has one, if there is something to say of it.
pub fn headline(report: &Report) -> Vec<String> {
    let sentence = if report.online { online } else { offline };
    report.schedulers.iter().filter_map(sentence).collect()
}

fn offline(run: &SchedulerReport) -> Option<String> {
    let bounds = run.bounds.filter(|bounds| !bounds.baseline)?;
    let mut text = format!(
        "{}: {}× the throughput of full-depth continuous batching, {}% of the bound S_e2e = {}×",
        run.name,
        ratio(bounds.speedup),
        percent(bounds.realised_share),
        ratio(bounds.s_e2e),
    );
    if let Some(floor) = run.floor {
        text.push_str(&format!(" ({}% at the physical floor)", percent(floor.realised_share)));
    }
    Some(text + ".")
}

fn online(run: &SchedulerReport) -> Option<String> {
    if let Some(capacity) = &run.capacity {
        let mut text =
            format!("{}: carries {} requests/s ({})", run.name, number(capacity.requests_per_s), capacity.slo);
        if let Some(speedup) = capacity.speedup {
            text.push_str(&format!(", {}× full-depth continuous batching", ratio(speedup)));
        }
        if let Some(share) = capacity.realised_share {
            text.push_str(&format!(", {}% of the bound S_e2e", percent(share)));
        }
        return Some(text + ".");
    }
    let growth = run.metrics.queue_growth_per_s()?;
    let rate = run.metrics.requests.arrived as f64 / run.metrics.arrival_window_s;
    Some(if run.metrics.saturated()? {
        format!(
            "{}: past saturation at {} requests/s; the queue grows by {} requests/s, so latencies depend on how long the run is.",
            run.name,
            number(rate),
            number(growth),
        )
    } else {
        format!(
            "{}: keeps up with {} requests/s; TTFT {} and TPOT {} at p99.",
            run.name,
            number(rate),
            duration(run.metrics.ttft.p99),
            duration(run.metrics.tpot.p99),
        )
    })
}
