//! A validation as text, for the terminal.

use std::fmt::Write;

use super::tolerance::Verdict;
use super::{MetricPair, SchedulerValidation, Validation};

/// Metrics shown on the terminal; `validation.json` has them all.
const SHOWN: [&str; 12] = [
    "throughput_tokens_per_s",
    "speedup",
    "s_e2e",
    "realised_share",
    "ttft_s.mean",
    "ttft_s.p99",
    "tpot_s.mean",
    "tpot_s.p95",
    "e2e_s.mean",
    "normalized_s.p95",
    "mean_core_batch",
    "prefill_share",
];

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
    text
}

fn one(scheduler: &SchedulerValidation, online: bool, text: &mut String) {
    let batches = match (scheduler.batches_identical, &scheduler.first_difference) {
        (Some(true), _) => "identical batches".into(),
        (_, Some(difference)) => format!("batches DIFFER from {difference}"),
        _ => "batches not compared: arrivals take place in time".into(),
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
    let ks: Vec<_> = scheduler.ks_distance.iter().map(|(name, distance)| format!("{name} {distance:.3}")).collect();
    let _ = writeln!(text, "  KS distance: {}\n  {batches}", ks.join(", "));
    let _ = writeln!(text, "  {}", judged(&scheduler.verdicts(online)));
}

/// How many tolerances are kept, and which are not.
pub(super) fn judged(verdicts: &[Verdict]) -> String {
    let missed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.met()).map(missed).collect();
    let kept = format!("{} of {} within tolerance", verdicts.len() - missed.len(), verdicts.len());
    if missed.is_empty() { kept } else { format!("{kept}; missed: {}", missed.join(", ")) }
}

fn missed(verdict: &Verdict) -> String {
    let Verdict { metric, off, allowed } = verdict;
    format!("{metric} by {} ({} allowed)", percent(*off), percent(*allowed).trim_start_matches('+'))
}

/// Four significant digits.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    format!("{value:.*}", (3.0 - digits).clamp(0.0, 6.0) as usize)
}

fn percent(share: f64) -> String {
    format!("{:+.1}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let check = |value, text| assert_eq!(number(value), text);
        check(1234.5, "1234");
        check(12.345, "12.35");
        check(0.012346, "0.01235");
        check(0.0, "0.000");
    }
}
