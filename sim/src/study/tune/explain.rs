//! Why a choice is good, told from the latency model.

use engine::batch::Stage;
use engine::profile::StageCost;

use super::{Objective, Trial, score};
use crate::scenario::ModeName;

/// Sentences, one a line.
pub fn explain(trials: &[Trial], objective: Objective) -> String {
    let best = &trials[0];
    let parts = [against_full_depth(trials, objective), width(best), boundary(best), time(best)];
    parts.into_iter().flatten().map(|sentence| format!("- {sentence}\n")).collect()
}

fn against_full_depth(trials: &[Trial], objective: Objective) -> Option<String> {
    let baselines = trials.iter().filter(|trial| trial.candidate.mode == ModeName::ContinuousBatching);
    let baseline = baselines.max_by(|one, other| score(one, objective).total_cmp(&score(other, objective)))?;
    let against = score(baseline, objective);
    if against == 0.0 {
        return Some("Full-depth continuous batching keeps the SLO for no request, at any W that was tried.".into());
    }
    Some(format!(
        "It scores {:.2}x the best full-depth continuous batching (W = {}).",
        score(&trials[0], objective) / against,
        baseline.candidate.max_num_seqs,
    ))
}

/// The core batch against the saturation batch size.
fn width(trial: &Trial) -> Option<String> {
    let metrics = &trial.metrics;
    let finished = metrics.requests.finished.max(1) as f64;
    // A request's decode steps see its prompt and on average half of its output.
    let context = (metrics.prompt_tokens as f64 + metrics.output_tokens as f64 / 2.0) / finished;
    let saturation = trial.plan.profile.core.saturation_batch(context as u32);
    let batch = metrics.mean_core_batch();
    let regime = if batch < saturation {
        "most of a core step loads weights, so a fuller batch is nearly free and refill pays"
    } else {
        "a core step's time goes with its rows, so a smaller batch costs little and refill gains little"
    };
    Some(format!(
        "At a mean context of {context:.0} tokens the core saturates at B* = {saturation:.0} rows; its mean batch is {batch:.1}: {regime}."
    ))
}

/// What a call of coda and prelude costs, against what an empty row costs while it is put off.
fn boundary(trial: &Trial) -> Option<String> {
    let (profile, metrics) = (&trial.plan.profile, &trial.metrics);
    let coda = metrics.stage(Stage::Coda);
    let core = metrics.stage(Stage::Core);
    if coda.steps == 0 || core.steps == 0 {
        return None;
    }
    let fixed = |cost: &StageCost| cost.delta_ms + cost.floor_ms + profile.stage_overhead_us / 1e3;
    let call_ms = fixed(&profile.prelude) + fixed(&profile.coda);
    let row_ms = fixed(&profile.core) / metrics.mean_core_batch();
    Some(format!(
        "A call of coda and prelude costs tau_0 = {call_ms:.2} ms whatever its rows; a row that is missing from a \
         core step wastes {row_ms:.3} ms. {:.0} such rows cost as much as a call: the coda ran with {:.1} rows on average, every {:.1} core steps.",
        call_ms / row_ms,
        coda.rows as f64 / coda.steps as f64,
        core.steps as f64 / coda.steps as f64,
    ))
}

fn time(trial: &Trial) -> Option<String> {
    let metrics = &trial.metrics;
    let shares = metrics
        .stages
        .iter()
        .map(|(stage, totals)| format!("{} {:.0}%", stage.name(), 100.0 * totals.busy_s / metrics.makespan_s));
    let shares: Vec<_> = shares.collect();
    let idle = 100.0 * (1.0 - metrics.gpu_busy_share);
    Some(format!("Time goes to {}, and {idle:.0}% of it the device is idle.", shares.join(", ")))
}
