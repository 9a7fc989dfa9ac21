//! Runs that points have in common, such as the baseline of points that differ only in exits or in K, are made once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reports::Measures;

use crate::run::key::{self, FileHashes, RunInputs};
use crate::run::plan::{Plan, Planned};
use crate::run::serve::{Discard, serve};
use crate::run::speed::Speed;

/// Runs kept at most, so that memory stays bounded: some 60 MB.
const RUNS_MAX: usize = 100_000;

/// What is kept of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRun {
    pub(super) measures: Measures,
    pub(super) speed: Speed,
}

/// Runs by what they read.
#[derive(Debug, Default)]
pub(super) struct Shared {
    runs: Mutex<BTreeMap<String, Arc<OnceLock<SharedRun>>>>,
    hashes: FileHashes,
}

impl Shared {
    /// Runs a scheduler, or waits for the thread that is at the same run already.
    pub(super) fn run(&self, plan: &Plan, planned: &Planned) -> SharedRun {
        let key = key::hash(&(RunInputs::of(plan, planned, &self.hashes), &plan.profile));
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX {
            runs.clear();
        }
        let cell = Arc::clone(runs.entry(key).or_default());
        drop(runs);
        *cell.get_or_init(|| {
            let Ok(recorder) = serve(plan, planned, &mut Discard);
            let metrics = recorder.metrics();
            SharedRun { measures: Measures::new(&metrics), speed: Speed::of(&metrics, plan) }
        })
    }
}
