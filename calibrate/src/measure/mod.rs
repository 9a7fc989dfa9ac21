//! Times an executor: scripted batches over a grid, round after round, each group of points saved as soon as it is timed.
//!
//! Generic over the executor and the clock: a CPU with the wall clock, a GPU with the same code, and in tests a fake whose
//! times are known.
//!
//! ```text
//! plan (the grid), schedule (in which order), memory (KV blocks)
//! -> benches: stage_bench (fused and staged steps, prefill, offload), host_bench (the event loop); timer, samples
//! -> journal (the table) -> noise
//! ```

mod benches;
mod config;
pub mod cpu_limits;
mod host_bench;
mod journal;
mod memory;
pub mod noise;
mod plan;
mod samples;
mod schedule;
mod scripted_batches;
mod stage_bench;
mod timer;

use engine::architecture::Architecture;
use engine::executor::Executor;
use engine::live::LiveConfig;

pub use journal::Journal;
pub use plan::MeasurementPlan;
pub use schedule::Group;
pub use timer::Timer;

use crate::error::CalibrateError;
use benches::Benches;

/// How far a measurement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rounds through the whole grid.
    pub rounds: u32,
    /// Groups of the round that the budget ended.
    pub groups: usize,
    /// Groups of a round.
    pub groups_per_round: usize,
}

impl Progress {
    /// Refuses a measurement that is empty.
    ///
    /// # Errors
    /// The budget ended before the first group was timed.
    pub fn check(&self) -> Result<(), CalibrateError> {
        match (self.rounds, self.groups) {
            (0, 0) => Err(CalibrateError::NothingMeasured { points: self.groups_per_round }),
            _ => Ok(()),
        }
    }
}

/// Measures what a plan says on executors from `make`, one for each loop count, into a journal.
///
/// `make` gives executors of the same model and weights; the config's `r_max` is the depth at which they run. They live as
/// long as the measurement. `on_round` is called after every round.
///
/// # Errors
/// An executor's error, with the batch that it could not run; a journal that cannot be written.
pub fn measure<E: Executor>(
    plan: &MeasurementPlan,
    model: &Architecture,
    make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
    timer: &mut Timer<'_>,
    journal: &mut Journal,
    on_round: &mut dyn FnMut(Progress),
) -> Result<Progress, CalibrateError> {
    plan.check(model)?;
    let end = timer.clock.now() + plan.budget;
    let mut benches = Benches::new(plan, model, make, timer)?;
    let schedule = plan.schedule();
    let mut progress = Progress { rounds: 0, groups: 0, groups_per_round: schedule.len() };
    for round in 0..plan.rounds {
        progress.groups = 0;
        for group in &schedule {
            if !journal.holds(round, group) {
                if timer.clock.now() >= end {
                    return Ok(progress);
                }
                journal.add(&benches.measure(group, round, timer)?)?;
            }
            progress.groups += 1;
        }
        progress = Progress { rounds: round + 1, groups: 0, ..progress };
        on_round(progress);
    }
    Ok(progress)
}
