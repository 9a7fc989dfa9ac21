//! A protocol for the terminal: what was kept, and what was missed.

use super::capacity::measured_share;
use super::{CapacityPair, Protocol, ProtocolRun, table};
use crate::above::{ABOVE_S_E2E, is_above};
use crate::format::{number, percent, ratio};
use crate::table::render;
use crate::validation::text::{STEADIER, judged};
use crate::validation::tolerance::Tally;
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
                shown("tpot_mean_s", "TPOT", 1e3, " ms"),
                shown("ttft_mean_s", "TTFT", 1e3, " ms"),
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
    if tally(protocol).not_judged > 0 {
        text.push_str(&format!("\n{STEADIER} Set a run's repeats, and workload.requests or window_s.\n"));
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
    let Tally { met, missed, not_judged } = tally(protocol);
    let verdicts = match not_judged {
        0 => format!("{met} of {} predictions are within their tolerances", met + missed),
        _ => format!(
            "of {} predictions {met} are within their tolerances and {missed} are not; not judged, because repeats differ: {not_judged}",
            met + missed + not_judged
        ),
    };
    let (measured, runs) = (protocol.measured().count(), protocol.runs.len());
    let mut sentences = vec![format!("{measured} of {runs} runs are measured; {verdicts}.")];
    sentences.extend(protocol.measured().find_map(|(run, validation)| best(run, validation)));
    sentences.extend(shares(protocol).any(is_above).then(|| ABOVE_S_E2E.into()));
    sentences
}

fn tally(protocol: &Protocol) -> Tally {
    let of_run = |(_, validation): (&ProtocolRun, &Validation)| -> Vec<Verdict> {
        validation.schedulers.iter().flat_map(|scheduler| scheduler.verdicts(validation.online)).collect()
    };
    let capacities = protocol.capacities.iter().filter_map(CapacityPair::verdict);
    Tally::of(&protocol.measured().flat_map(of_run).chain(capacities).collect::<Vec<_>>())
}

/// Every share of S_e2e that is shown.
fn shares(protocol: &Protocol) -> impl Iterator<Item = f64> {
    let schedulers = protocol.measured().flat_map(|(_, validation)| &validation.schedulers);
    let runs = schedulers.flat_map(|scheduler| {
        let sides = scheduler.metric("realised_share").map(|pair| [pair.predicted, pair.measured]);
        sides.into_iter().flatten().chain(scheduler.floor.map(|floor| floor.realised_share))
    });
    let capacities = protocol.capacities.iter().flat_map(|pair| {
        let floor = pair.floor.as_ref().and_then(|floor| floor.realised_share);
        [pair.predicted.realised_share, measured_share(pair, &protocol.capacities), floor].into_iter().flatten()
    });
    runs.chain(capacities)
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
