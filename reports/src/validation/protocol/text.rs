//! A protocol for the terminal: what was kept, and what was missed.

use super::{Protocol, ProtocolRun, table};
use crate::format::{number, percent, ratio};
use crate::table::render;
use crate::validation::text::judged;
use crate::validation::{SchedulerValidation, Validation, Verdict};

/// Per run and scheduler its headline figures and missed tolerances, then the capacities.
pub fn protocol_text(protocol: &Protocol) -> String {
    let mut text = format!("{}\n", protocol.title);
    for sentence in headline(protocol) {
        text.push_str(&format!("  {sentence}\n"));
    }
    for (run, validation) in protocol.measured() {
        text.push_str(&format!("\n{}: predicted / measured, {} of each\n", run.name, live_runs(validation.repeats)));
        for scheduler in &validation.schedulers {
            let shown = |name: &str, label: &str, scale: f64, unit: &str| {
                let pair = scheduler.metric(name)?;
                Some(format!("{label} {} / {}{unit}", number(scale * pair.predicted), number(scale * pair.measured)))
            };
            let load = scheduler.load.map(|load| format!("{} requests/s", number(load.rate_per_s)));
            let figures = [
                load,
                shown("throughput_tokens_per_s", "throughput", 1.0, " tokens/s"),
                shown("speedup", "speed-up", 1.0, "×"),
                shown("tpot_s.mean", "TPOT", 1e3, " ms"),
                shown("ttft_s.mean", "TTFT", 1e3, " ms"),
            ];
            let figures: Vec<_> = figures.into_iter().flatten().collect();
            text.push_str(&format!(
                "  {}: {}\n    {}\n",
                scheduler.name,
                figures.join(", "),
                judged(&scheduler.verdicts(validation.online))
            ));
        }
    }
    let capacities = table::capacities(protocol);
    if !capacities.sections.is_empty() {
        text.push_str("\nCapacity under the SLO\n");
        render(&capacities, &mut text);
    }
    text
}

fn live_runs(repeats: u32) -> String {
    if repeats == 1 { "one live run".into() } else { format!("{repeats} live runs") }
}

/// The sentences to remember.
pub(super) fn headline(protocol: &Protocol) -> Vec<String> {
    let measured = protocol.measured().count();
    let verdicts: Vec<Verdict> = protocol.measured().flat_map(|(_, validation)| all(validation)).collect();
    let capacities = protocol.capacities.iter().filter_map(super::CapacityPair::verdict);
    let verdicts: Vec<Verdict> = verdicts.into_iter().chain(capacities).collect();
    let kept = verdicts.iter().filter(|verdict| verdict.met()).count();
    let mut sentences = vec![format!(
        "{measured} of {} runs are measured; {kept} of {} predictions are within their tolerances.",
        protocol.runs.len(),
        verdicts.len()
    )];
    sentences.extend(protocol.measured().find_map(|(run, validation)| best(run, validation)));
    sentences
}

fn all(validation: &Validation) -> Vec<Verdict> {
    validation.schedulers.iter().flat_map(|scheduler| scheduler.verdicts(validation.online)).collect()
}

/// The fastest scheduler of an offline run.
fn best(run: &ProtocolRun, validation: &Validation) -> Option<String> {
    let speedup = |scheduler: &SchedulerValidation| scheduler.metric("speedup").map_or(0.0, |pair| pair.measured);
    let fastest = validation.schedulers.iter().max_by(|a, b| speedup(a).total_cmp(&speedup(b)))?;
    let (pair, share) = (fastest.metric("speedup")?, fastest.metric("realised_share")?);
    let floor = fastest.floor.map_or_else(String::new, |floor| {
        format!(" ({}% by the model at the physical floor)", percent(floor.realised_share))
    });
    Some(format!(
        "{}: {} measured {}× the throughput of full-depth continuous batching, predicted {}×; {}% of S_e2e, predicted {}%{floor}.",
        run.name,
        fastest.name,
        ratio(pair.measured),
        ratio(pair.predicted),
        percent(share.measured),
        percent(share.predicted)
    ))
}
