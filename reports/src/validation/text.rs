//! A validation as text, for the terminal.

use std::fmt::Write;

use super::tolerance::{Tally, Verdict};
use super::{MetricPair, SchedulerValidation, Validation};
use crate::above::above;

/// Metrics shown on the terminal; `validation.json` has them all.
const SHOWN: [&str; 13] = [
    "throughput_tokens_per_s",
    "speedup",
    "s_e2e",
    "s_roof",
    "realised_share",
    "ttft_mean_s",
    "ttft_p99_s",
    "tpot_mean_s",
    "tpot_p95_s",
    "e2e_mean_s",
    "normalized_p95_s",
    "mean_core_batch",
    "prefill_share",
];

/// What to do where repeats differ too much.
pub(super) const STEADIER: &str = "What is not judged needs live runs that agree: a quiet machine, longer runs, and more repeats, which show \
                                   whether one of them was disturbed.";

/// Per scheduler: metrics on both sides with error and live spread, KS distances, step times by stage.
pub fn validation_text(validation: &Validation) -> String {
    let mut text = format!(
        "{}: predicted ({}) against measured ({}, mean of {} runs), exits: {}\n",
        validation.title, validation.profile, validation.device, validation.repeats, validation.exits
    );
    for scheduler in &validation.schedulers {
        text.push('\n');
        one(scheduler, validation.online, &mut text);
    }
    let unsteady = |scheduler: &SchedulerValidation| Tally::of(&scheduler.verdicts(validation.online)).not_judged > 0;
    if validation.schedulers.iter().any(unsteady) {
        let _ = writeln!(text, "\n{STEADIER} Set live.repeats and workload.requests.");
    }
    text
}

fn one(scheduler: &SchedulerValidation, online: bool, text: &mut String) {
    let batches = match (scheduler.batches_identical, &scheduler.first_difference) {
        (Some(true), _) => "identical batches".into(),
        (_, Some(difference)) => format!("batches DIFFER from {difference}"),
        _ => "batches not compared: they are not seen, or time decides them".into(),
    };
    let mut line = |name: &str, cells: [String; 4]| {
        let [a, b, c, d] = cells;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:30} {a:>12} {b:>12} {c:>9} {d:>12}");
    };
    line(&scheduler.name, ["predicted", "measured", "error", "live spread"].map(String::from));
    for MetricPair { name, predicted, measured, error, live_spread } in
        scheduler.metrics.iter().filter(|pair| SHOWN.contains(&pair.name.as_str()))
    {
        line(&format!("  {name}"), [number(*predicted), number(*measured), percent(*error), percent(*live_spread)]);
    }
    for stage in &scheduler.stages {
        let name = format!("  {} step, ms", stage.stage.name());
        let cells =
            [number(stage.predicted_mean_ms), number(stage.measured_mean_ms), percent(stage.error), String::new()];
        line(&name, cells);
    }
    if let Some(floor) = &scheduler.floor {
        let _ = writeln!(
            text,
            "  by the model at the physical floor: speed-up {}, realised share {}",
            number(floor.speedup),
            number(floor.realised_share)
        );
    }
    let above = above_bounds(scheduler);
    if !above.is_empty() {
        let _ = writeln!(text, " {above}");
    }
    let ks: Vec<_> = scheduler.ks_distance.iter().map(|(name, distance)| format!("{name} {distance:.3}")).collect();
    let _ = writeln!(text, "  KS distance: {}\n  {batches}", ks.join(", "));
    let _ = writeln!(text, "  {}", judged(&scheduler.verdicts(online)));
}

/// What must be said of speed-ups above the bounds, on either side.
fn above_bounds(scheduler: &SchedulerValidation) -> String {
    let sides = |name: &str| scheduler.metric(name).map(|pair| [pair.predicted, pair.measured]);
    let floor = scheduler.floor.map(|floor| floor.realised_share);
    let share = sides("realised_share").into_iter().flatten().chain(floor).fold(0.0, f64::max);
    let roof = sides("speedup").zip(sides("s_roof"));
    // The side that comes closer to its bound, or further above it.
    let pairs = roof.map(|(speedups, roofs)| [(speedups[0], roofs[0]), (speedups[1], roofs[1])]);
    let closest = pairs.into_iter().flatten().max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    above(share, closest)
}

/// How many tolerances are kept, which are not, and first of all which say nothing.
pub(super) fn judged(verdicts: &[Verdict]) -> String {
    let Tally { met, missed, not_judged } = Tally::of(verdicts);
    let off = verdicts.iter().filter(|verdict| verdict.met() == Some(false));
    let off = off.map(|verdict| {
        format!("{} by {} ({} allowed)", verdict.metric, percent(verdict.off), unsigned(verdict.allowed))
    });
    let off = list(off.collect());
    if not_judged == 0 {
        let kept = format!("{met} of {} within tolerance", verdicts.len());
        return if missed == 0 { kept } else { format!("{kept}; missed{off}") };
    }
    let differ =
        verdicts.iter().filter_map(|verdict| Some(format!("{} by {}", verdict.metric, unsigned(verdict.unsteady?))));
    let differ = list(differ.collect());
    let of = verdicts.len();
    format!(
        "{not_judged} of {of} not judged, because repeats differ{differ}; of the others {met} kept, {missed} missed{off}"
    )
}

/// Behind a colon, if there is anything.
fn list(parts: Vec<String>) -> String {
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

/// Four significant digits.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    format!("{value:.*}", (3.0 - digits).clamp(0.0, 6.0) as usize)
}

fn percent(share: f64) -> String {
    format!("{:+.1}%", 100.0 * share)
}

fn unsigned(share: f64) -> String {
    percent(share).trim_start_matches('+').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_judged_is_neither_kept_nor_missed() {
        let verdict = |metric: &str, off, unsteady| Verdict { metric: metric.into(), off, allowed: 0.03, unsteady };
        let kept = verdict("speedup", 0.01, None);
        assert_eq!(judged(std::slice::from_ref(&kept)), "1 of 1 within tolerance");
        let all = [kept, verdict("tpot_mean_s", -0.08, None), verdict("throughput_tokens_per_s", 0.72, Some(0.38))];
        assert_eq!(
            judged(&all),
            "1 of 3 not judged, because repeats differ: throughput_tokens_per_s by 38.0%; \
             of the others 1 kept, 1 missed: tpot_mean_s by -8.0% (3.0% allowed)"
        );
    }

    #[test]
    fn a_live_run_on_a_busy_machine_says_what_to_do() {
        let pair = |name: &str, predicted: f64, measured: f64, live_spread| MetricPair {
            name: name.into(),
            predicted,
            measured,
            error: predicted / measured - 1.0,
            live_spread,
        };
        let text = |spread| {
            let scheduler = SchedulerValidation {
                name: "refill K=1".into(),
                metrics: vec![
                    pair("throughput_tokens_per_s", 1720.0, 1000.0, spread),
                    pair("speedup", 1.45, 1.45, 0.0),
                    pair("s_roof", 1.5, 1.6, 0.0),
                    pair("realised_share", 1.02, 0.99, 0.0),
                ],
                floor: None,
                load: None,
                batches_identical: None,
                first_difference: None,
                ks_distance: [].into(),
                stages: Vec::new(),
                step_pairs: Vec::new(),
            };
            validation_text(&Validation {
                title: "busy".into(),
                device: "a CPU".into(),
                profile: "its profile".into(),
                exits: "replayed".into(),
                kv_blocks: 512,
                graph_rows: None,
                online: false,
                repeats: 3,
                schedulers: vec![scheduler],
            })
        };
        let busy = text(0.38);
        assert!(busy.contains("1 of 3 not judged, because repeats differ: throughput_tokens_per_s by 38.0%"), "{busy}");
        assert!(!busy.contains("within tolerance"), "{busy}");
        assert!(busy.ends_with("Set live.repeats and workload.requests.\n"), "{busy}");
        assert!(busy.contains("  S_e2e counts the FLOPs of linear layers"), "a share is above 100%: {busy}");
        let quiet = text(0.01);
        assert!(
            quiet.contains("missed: throughput_tokens_per_s by +72.0%") && !quiet.contains("quiet machine"),
            "{quiet}"
        );
    }

    #[test]
    fn numbers_have_four_digits() {
        let check = |value, text| assert_eq!(number(value), text);
        check(1234.5, "1234");
        check(12.345, "12.35");
        check(0.012346, "0.01235");
        check(0.0, "0.000");
    }
}
