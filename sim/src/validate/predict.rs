//! The model's side of a protocol.

use std::convert::Infallible;

use super::runs::PlannedRun;
use crate::live::{Logged, Served};
use crate::parallel::try_map;
use crate::run::serve::serve;

/// By run, part and scheduler.
pub struct Predicted(Vec<Vec<Vec<Served>>>);

impl Predicted {
    /// Runs every scheduler of every run on the modelled device.
    pub fn new(runs: &[PlannedRun]) -> Self {
        let parts: Vec<_> = runs.iter().flat_map(|run| &run.parts).collect();
        let Ok(served) = try_map(parts.len(), |index| {
            let plan = &parts[index].plan;
            let served = plan.schedulers.iter().map(|planned| {
                let mut sink = Logged::new(None);
                let recorder = serve(plan, planned, &mut sink).expect("a log takes every step");
                Served { metrics: recorder.metrics(), log: sink.into_log() }
            });
            Ok::<_, Infallible>(served.collect::<Vec<_>>())
        });
        let mut served = served.into_iter();
        Self(runs.iter().map(|run| served.by_ref().take(run.parts.len()).collect()).collect())
    }

    /// The schedulers of a part.
    pub(super) fn part(&self, run: usize, part: usize) -> &[Served] {
        &self.0[run][part]
    }

    /// How long a scheduler of a run takes once, in seconds from the start to the last token.
    pub(super) fn seconds(&self, run: usize, part: usize, scheduler: usize) -> f64 {
        let metrics = &self.0[run][part][scheduler].metrics;
        metrics.first_arrival_s + metrics.makespan_s
    }
}
