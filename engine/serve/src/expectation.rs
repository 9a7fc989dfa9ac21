//! What the simulator expects of a server: its throughput when it is full, and the rate that it carries under an SLO.

use std::fmt::Write;
use std::path::PathBuf;

use engine::architecture::Architecture;
use engine::metrics::Slo;
use sim::run::capacity;
use sim::run::plan::{Plan, PlanError};
use sim::run::serve::{Discard, serve};
use sim::scenario::model::ModelChoice;
use sim::scenario::{ProfileChoice, Scenario};
use traces::ArrivalsConfig;
use traces::numbers::{RatePerS, Seconds};

use crate::settings::mode_name;
use crate::setup::Ready;

/// The SLO of the capacity: what a chat's reader notices.
const SLO: Slo = Slo {
    ttft_ms: Some(2000.0),
    tpot_ms: Some(100.0),
    e2e_ms: None,
    normalized_ms: None,
    attainment: 0.99,
    mean: None,
    p50: None,
    p90: None,
    p95: None,
    p99: None,
};

/// How often the requests of a full server arrive while a rate is tried: far more often than a judgement needs.
const TIMES_FULL: f64 = 100.0;

/// The simulator's expectation, on a profile by name or file, in lines of text.
///
/// At full depth, since a model's exits are known only when it runs.
///
/// # Errors
/// The profile cannot be read, or is another model's.
pub fn of(ready: &Ready, profile: &str) -> Result<String, String> {
    let config = ready.engine.config;
    let architecture = released(&ready.architecture);
    let mut scenario = ready.settings.scenario(architecture, ready.context, config.kv.blocks)?;
    scenario.profile = match profile {
        "h200" => ProfileChoice::H200,
        "h100-paper" => ProfileChoice::H100Paper,
        file => ProfileChoice::File(PathBuf::from(file)),
    };
    let said = |error: PlanError| format!("--profile {profile}: {error}");
    let plan = Plan::new(scenario.clone()).map_err(said)?;
    let Ok(recorder) = serve(&plan, &plan.schedulers[0], &mut Discard);
    let metrics = recorder.metrics();
    let full = metrics.steady.as_ref().map_or(metrics.throughput_tokens_per_s, |steady| steady.throughput_tokens_per_s);
    let (w, mode) = (config.max_num_seqs, mode_name(&config));
    let lengths = lengths(&scenario);
    let mut text = format!(
        "the simulator expects of {mode} at full depth, by the profile {}, with {lengths}:\n  \
         {full:.0} tokens/s with {w} requests at once, {:.1} ms per token\n",
        plan.profile.name,
        1e3 * metrics.tpot.mean
    );
    // The search begins at the rate that the full server would finish.
    let rate = full * metrics.requests.finished as f64 / metrics.output_tokens as f64;
    let rate_per_s = RatePerS::try_from(rate).map_err(|error| error.to_string())?;
    let duration_s = Some(Seconds::try_from(TIMES_FULL * f64::from(w) / rate).map_err(|error| error.to_string())?);
    scenario.workload.arrivals = ArrivalsConfig::Poisson { rate_per_s, duration_s };
    scenario.workload.requests = None;
    scenario.slo = Some(SLO);
    let plan = Plan::new(scenario).map_err(said)?;
    if let Some(found) = capacity::search(&plan, &plan.schedulers[0], SLO) {
        let slo = "for 99% of requests TTFT <= 2 s and TPOT <= 100 ms";
        let _ = writeln!(text, "  {}{}", found.rates.claim(slo), found.rates.remark());
    }
    Ok(text)
}

/// The released model of the same shape, by whose name profiles go.
fn released(architecture: &Architecture) -> Architecture {
    let same = |released: &Architecture| {
        ModelChoice::Custom(renamed(architecture, released)) == ModelChoice::Custom(released.clone())
    };
    Architecture::BUILTIN
        .iter()
        .filter_map(|name| Architecture::builtin(name))
        .find(same)
        .unwrap_or_else(|| architecture.clone())
}

fn renamed(architecture: &Architecture, as_this: &Architecture) -> Architecture {
    Architecture { name: as_this.name.clone(), ..architecture.clone() }
}

fn lengths(scenario: &Scenario) -> String {
    match scenario.workload.lengths {
        Some(traces::LengthsConfig::Fixed { prompt_tokens, output_tokens }) => {
            format!("{} tokens in and {} out", prompt_tokens.get(), output_tokens.get())
        }
        _ => "requests alike".into(),
    }
}
