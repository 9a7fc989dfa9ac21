//! Runs that points have in common, such as the baseline of points that differ only in exits or in K, are made once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::scheduler::Finish;
use reports::Measures;
use traces::Exits;

use super::key::hash;
use crate::compare::Speed;
use crate::plan::{Plan, Planned};
use crate::run::{self, Discard};

/// Runs kept at most, so that memory stays bounded: some 60 MB.
const RUNS_MAX: usize = 100_000;

/// What is kept of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) measures: Measures,
    pub(super) speed: Speed,
}

/// Outcomes by what the runs read.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<BTreeMap<String, Arc<OnceLock<Outcome>>>>);

impl Shared {
    /// Runs a scheduler, or waits for the thread that is at the same run already.
    pub(super) fn run(&self, plan: &Plan, planned: &Planned) -> Outcome {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX {
            runs.clear();
        }
        let cell = Arc::clone(runs.entry(key(plan, planned)).or_default());
        drop(runs);
        *cell.get_or_init(|| {
            let Ok(recorder) = run::run(plan, planned, &mut Discard);
            let metrics = recorder.metrics();
            Outcome { measures: Measures::new(&metrics), speed: Speed::of(&metrics, plan) }
        })
    }
}

/// Everything that a run reads, and nothing else; settings of other schedulers are not part of it.
fn key(plan: &Plan, planned: &Planned) -> String {
    let scenario = &plan.scenario;
    let exits = if matches!(planned.exits, Exits::FullDepth(_)) { None } else { Some(&scenario.exits) };
    let finish = (planned.config.finish == Finish::Eos).then_some(scenario.scheduler.finish);
    let inputs = (
        (&plan.model, &plan.profile, &scenario.workload, scenario.seed),
        (exits, finish, scenario.kv.plane_copies, scenario.slo),
        format!("{:?}", planned.config),
    );
    hash(&serde_json::to_vec(&inputs).expect("a scenario is JSON"))
}
