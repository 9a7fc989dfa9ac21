//! What a report says about itself: how to repeat the run, and how far to trust it.

use engine::layout::Layout;
use reports::SchedulerReport;
use traces::ExitsConfig;

use crate::run::plan::Plan;

/// The revision that this program was built from.
pub const REVISION: &str = env!("GIT_REVISION");

/// Name and value of what defines the run.
pub fn facts(plan: &Plan) -> Vec<(String, String)> {
    let (scenario, model) = (&plan.scenario, &plan.model);
    let layers = format!("{}-{}-{}", model.prelude_layers, model.core_layers, model.coda_layers);
    let layout = scenario.kv.layout;
    let mut facts = vec![
        ("model", format!("{} ({layers} layers, {} loops)", model.name, model.r_max)),
        ("profile", plan.profile.name.clone()),
        ("requests", plan.workload.requests().to_string()),
        ("KV layout", format!("{layout}, {} KiB per token", model.kv_bytes_per_token(layout) / 1024)),
        ("seed", scenario.seed.to_string()),
        ("revision", REVISION.into()),
    ];
    if let Some(cache) = scenario.kv.prefix_cache {
        facts.push(("prefix cache", format!("pages of {}", cache.pages.name().replace('_', " "))));
    }
    facts.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// What a reader must know to judge the run.
pub fn notes(plan: &Plan, schedulers: &[SchedulerReport]) -> Vec<String> {
    let mut notes = vec![format!("Latency model: {}", plan.profile.source)];
    if let ExitsConfig::Preset { name, .. } = &plan.scenario.exits {
        let preset = name.preset();
        notes.push(format!(
            "Exit depths follow the preset {}, an assumed shape: the paper prints no table of its exits. Replay a recorded file \
             with `exits: replay` for a model's own.",
            preset.name
        ));
    }
    if plan.model.kv_bytes_per_token(Layout::Shared) > 0 && !plan.profile.variants.is_empty() {
        let names: Vec<_> = plan.profile.variants.keys().map(String::as_str).collect();
        notes.push(format!(
            "The profile's sources leave a range open; check a conclusion under its variants with `--set variant=..`: {}.",
            names.join(", ")
        ));
    }
    for scheduler in schedulers.iter().filter(|scheduler| scheduler.metrics.requests.refused > 0) {
        notes.push(format!(
            "{}: {} of {} requests could never fit and were refused; they count nowhere else.",
            scheduler.name, scheduler.metrics.requests.refused, scheduler.metrics.requests.arrived
        ));
    }
    notes
}
