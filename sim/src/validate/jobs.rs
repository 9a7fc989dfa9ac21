//! The live runs of a protocol, in the order in which they are made.

use super::journal::key;
use super::runs::PlannedRun;
use crate::live::LiveDevice;
use crate::run::key::FileHashes;
use crate::run::plan::{Plan, Planned};

/// One live run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) run: usize,
    pub(super) part: usize,
    pub(super) scheduler: usize,
    pub(super) repeat: u32,
}

impl Job {
    /// What it depends on, in short: two jobs with one key are one measurement.
    pub(super) fn key(self, runs: &[PlannedRun], device: LiveDevice, hashes: &FileHashes) -> String {
        key(device, self.plan(runs), self.planned(runs), self.repeat, hashes)
    }

    pub(super) fn plan(self, runs: &[PlannedRun]) -> &Plan {
        &runs[self.run].parts[self.part].plan
    }

    pub(super) fn planned(self, runs: &[PlannedRun]) -> &Planned {
        &self.plan(runs).schedulers[self.scheduler]
    }
}

/// Every scheduler of every run, as often as it is repeated: the lowest tier first, in it all first repeats before the second, so
/// that the more is known the earlier measuring is stopped, and a drift of the machine meets all alike.
pub(super) fn jobs(runs: &[PlannedRun]) -> Vec<Job> {
    let mut jobs: Vec<Job> = (0..runs.len()).flat_map(|run| of_run(runs, run)).collect();
    // The sort is stable: runs and schedulers stay in the protocol's order.
    jobs.sort_by_key(|job| (runs[job.run].entry.tier.0, job.repeat));
    jobs
}

/// Every scheduler of a run, as often as it is repeated.
pub(super) fn of_run(runs: &[PlannedRun], run: usize) -> impl Iterator<Item = Job> {
    let PlannedRun { entry, parts, .. } = &runs[run];
    (0..entry.repeats.0).flat_map(move |repeat| {
        parts.iter().enumerate().flat_map(move |(part, of)| {
            (0..of.plan.schedulers.len()).map(move |scheduler| Job { run, part, scheduler, repeat })
        })
    })
}
