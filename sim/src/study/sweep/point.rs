//! One point: its schedulers, for every seed.

use engine::scheduler::Mode;
use reports::Measures;
use serde::{Deserialize, Serialize};

use super::shared::Shared;
use crate::run::plan::{Plan, PlanError};

/// What a scheduler gave at a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) name: String,
    /// One for each seed.
    pub(super) repeats: Vec<Measures>,
}

/// Runs a point on one thread: no floor, no capacity, no files.
///
/// # Errors
/// A seed gives no requests.
pub(super) fn run(plan: &Plan, shared: &Shared) -> Result<Vec<Measured>, PlanError> {
    let name = |index: usize| plan.schedulers[index].name.clone();
    let mut measured: Vec<_> =
        (0..plan.schedulers.len()).map(|index| Measured { name: name(index), repeats: Vec::new() }).collect();
    for seed in plan.seeds() {
        let seeded = plan.with_seed(seed)?;
        for (scheduler, measures) in measured.iter_mut().zip(compare(&seeded, shared)) {
            scheduler.repeats.push(measures);
        }
    }
    Ok(measured)
}

/// The schedulers' figures on one seed's requests, offline with their ratios to full depth.
fn compare(plan: &Plan, shared: &Shared) -> Vec<Measures> {
    let runs: Vec<_> = plan.schedulers.iter().map(|planned| shared.run(plan, planned)).collect();
    if plan.online() {
        return runs.iter().map(|run| run.measures).collect();
    }
    let full_depth = plan.schedulers.iter().position(|planned| planned.config.mode == Mode::ContinuousBatching);
    let baseline = full_depth.map_or_else(|| shared.run(plan, &plan.baseline()), |index| runs[index]);
    let against = runs.iter().map(|run| match run.speed.against(&baseline.speed, plan) {
        Some(bounds) => run.measures.with_bounds(&bounds),
        None => run.measures,
    });
    against.collect()
}
