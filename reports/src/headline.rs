//! The sentences that a reader should remember.

use engine::metrics::{RequestCounts, RunMetrics};
use engine::scheduler::Mode;

use crate::above::above;
use crate::format::{count, duration, number, percent, ratio};
use crate::measures::Measures;
use crate::report::{Report, SchedulerReport};

/// What came out, one sentence a line; each scheduler but the baseline has one, if there is something to say of it.
pub fn headline(report: &Report) -> Vec<String> {
    let sentence = if report.online { online } else { offline };
    let with_interval = |(index, run): (usize, &SchedulerReport)| match run.metrics.requests.finished {
        0 => Some(format!("{}: no request was served{}.", run.name, refused(run).unwrap_or_default())),
        _ => Some(sentence(run)? + &over_seeds(report, index).unwrap_or_default()),
    };
    report.schedulers.iter().enumerate().filter_map(with_interval).collect()
}

/// How many requests the other figures leave out.
fn refused(run: &SchedulerReport) -> Option<String> {
    let RequestCounts { arrived, refused, .. } = run.metrics.requests;
    (refused > 0).then(|| format!("; {} of {} can never fit and are refused", count(refused), count(arrived)))
}

/// How sure the speed-up is.
fn over_seeds(report: &Report, scheduler: usize) -> Option<String> {
    let confidence = report.confidence.as_ref()?;
    let speedup = Measures::ALL.iter().position(|measure| measure.column == "speedup")?;
    let interval = confidence.intervals(scheduler)[speedup]?;
    let (mean, half_width) = (number(interval.mean), number(interval.half_width?));
    Some(format!(" Over {} seeds: {mean} ± {half_width}×.", confidence.seeds.len()))
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
    let share = run.floor.map_or(bounds.realised_share, |floor| floor.realised_share.max(bounds.realised_share));
    Some(text + "." + &above(share, bounds.s_roof.map(|bound| (bounds.speedup, bound))))
}

fn online(run: &SchedulerReport) -> Option<String> {
    if let Some(capacity) = &run.capacity {
        let mut text = format!("{}: {}", run.name, capacity.rates.claim(&capacity.slo));
        let compared = run.mode != Mode::ContinuousBatching;
        if let Some(speedup) = capacity.speedup.filter(|_| compared) {
            text.push_str(&format!(", {}× full-depth continuous batching", ratio(speedup)));
        }
        let share = capacity.realised_share.filter(|_| compared);
        if let Some(share) = share {
            text.push_str(&format!(", {}% of the bound S_e2e", percent(share)));
        }
        let above = share.map_or_else(String::new, |share| above(share, None));
        return Some(text + &capacity.rates.remark() + "." + &above);
    }
    let metrics = &run.metrics;
    let text = match metrics.saturation() {
        // Rate and growth are those of the same arrivals, whatever pauses were before them.
        Ok(true) => format!(
            "past saturation at {} requests/s; the queue grows by {} requests/s, so latencies depend on how long the run is",
            number(metrics.judged?.rate_per_s),
            number(metrics.queue_growth_per_s()?),
        ),
        Ok(false) => format!("keeps up with {} requests/s; {}", number(metrics.arrival_rate_per_s()?), tails(metrics)),
        Err(why) => format!("{why}; {}", tails(metrics)),
    };
    Some(format!("{}: {text}{}.", run.name, refused(run).unwrap_or_default()))
}

/// `TTFT 62.1 ms and TPOT 24.3 ms at p99`, as far as there are any.
fn tails(metrics: &RunMetrics) -> String {
    let tails = [("TTFT", &metrics.ttft), ("TPOT", &metrics.tpot)].into_iter().filter(|(_, summary)| summary.count > 0);
    let tails: Vec<_> = tails.map(|(name, summary)| format!("{name} {}", duration(summary.p99))).collect();
    tails.join(" and ") + " at p99"
}
