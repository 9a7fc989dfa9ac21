//! Times an executor: scripted batches over a grid, round after round, each visit saved as soon as it is over.
//!
//! Generic over the executor and the clock: a CPU with the wall clock, a GPU with the same code, and in tests a fake whose
//! times are known.
//!
//! ```text
//! plan (the grid), visits (in which order), room (blocks) -> rig (fused and staged steps, prefill, offload), host (the event loop)
//! -> ledger -> calm
//! ```

pub mod calm;
mod config;
mod host;
mod ledger;
pub mod limits;
mod plan;
mod rig;
mod room;
mod visits;
mod watch;

use engine::architecture::Architecture;
use engine::executor::Executor;
use engine::live::LiveConfig;
use engine::units::{Depth, Nanos};

pub use ledger::Ledger;
pub use plan::Plan;
pub use visits::Visit;
pub use watch::{Times, Watch};

use crate::error::CalibrateError;
use crate::measurements::{Measurement, Stage};
use config::live_config;
use host::{HostRig, OUTPUT_TOKENS, PROMPT_TOKENS};
use rig::Rig;

/// How far a measurement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rounds through the whole grid.
    pub rounds: u32,
    /// Visits of the round that the budget ended.
    pub visits: usize,
    /// Visits of a round.
    pub visits_per_round: usize,
}

/// Measures what a plan says on executors from `make`, one for each loop count, into a ledger.
///
/// `make` gives executors of the same model and weights; the config's `r_max` is the depth at which they run. They live as
/// long as the measurement. `tell` hears of every round.
///
/// # Errors
/// An executor's error, with the batch that it could not run; a ledger that cannot be written.
pub fn measure<E: Executor>(
    plan: &Plan,
    model: &Architecture,
    mut make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
    watch: &mut Watch<'_>,
    ledger: &mut Ledger,
    tell: &mut dyn FnMut(Progress),
) -> Result<Progress, CalibrateError> {
    plan.check(model)?;
    let end = watch.clock.now() + plan.budget;
    let (held_tokens, plane_blocks) = (plan.held_tokens(), plan.plane_blocks());
    let mut rigs = Vec::new();
    for &loops in &plan.loops {
        let config = live_config(plan, model, &held_tokens, plane_blocks, Depth(loops));
        let scheduler = config.scheduler;
        let failed = |error| CalibrateError::execution(format!("filling the cache at {loops} loops"), error);
        let mut rig = Rig::new(make(config).map_err(failed)?, &scheduler, plan);
        rig.fill(watch.clock).map_err(failed)?;
        rigs.push((u32::from(loops), rig));
    }
    let host_tokens = vec![PROMPT_TOKENS + OUTPUT_TOKENS; held_tokens.len()];
    let plane_blocks = host_tokens.iter().map(|tokens| tokens.div_ceil(plan.block_tokens)).sum();
    let config = live_config(plan, model, &host_tokens, plane_blocks, model.r_max);
    let scheduler = config.scheduler;
    let executor = make(config).map_err(|error| CalibrateError::execution("making an executor".into(), error))?;
    let mut bench = Bench { plan, rigs, host: HostRig::new(executor, scheduler), load: None };

    let visits = plan.visits();
    let mut progress = Progress { rounds: 0, visits: 0, visits_per_round: visits.len() };
    for round in 0..plan.rounds {
        progress.visits = 0;
        for &visit in &visits {
            if !ledger.holds(round, visit) {
                if watch.clock.now() >= end {
                    return Ok(progress);
                }
                ledger.add(&bench.visit(visit, round, watch)?)?;
            }
            progress.visits += 1;
        }
        progress = Progress { rounds: round + 1, visits: 0, ..progress };
        tell(progress);
    }
    Ok(progress)
}

/// Everything that is timed.
struct Bench<'a, E> {
    plan: &'a Plan,
    /// By loop count, rising.
    rigs: Vec<(u32, Rig<E>)>,
    host: HostRig<E>,
    /// The batch size and context of the decode steps that went before.
    load: Option<(u32, u32)>,
}

impl<E: Executor> Bench<'_, E> {
    fn visit(&mut self, visit: Visit, round: u32, watch: &mut Watch<'_>) -> Result<Vec<Measurement>, CalibrateError> {
        let failed = |error| CalibrateError::execution(format!("{visit:?}"), error);
        let mut rows = Vec::new();
        let mut row = |stage, batch, context, loops, tokens, times: Times| {
            let Times { time_ms, min_ms, max_ms, calm } = times;
            let line = 0;
            rows.push(Measurement { line, stage, batch, context, loops, tokens, time_ms, min_ms, max_ms, round, calm });
        };
        let deepest = self.rigs.len() - 1;
        match visit {
            Visit::Decode { batch, context } => {
                if self.load.is_none_or(|(before, _)| before != batch) {
                    self.rigs[deepest].1.settle((batch, context), self.plan.settle, watch.clock).map_err(failed)?;
                }
                self.load = Some((batch, context));
                for (loops, rig) in &mut self.rigs {
                    let times = rig.forward(batch, context, self.plan, watch).map_err(failed)?;
                    row(Stage::Step, batch, context, *loops, 0, times);
                }
                let times = self.rigs[deepest].1.stages(batch, context, self.plan, watch).map_err(failed)?;
                for (stage, times) in [Stage::Core, Stage::Prelude, Stage::Coda].into_iter().zip(times) {
                    row(stage, batch, context, 0, 0, times);
                }
            }
            Visit::Prefill { batch, context, tokens } => {
                // Prompts come between decode steps, and find the clock that these left.
                let load = self.load.unwrap_or((1, self.plan.contexts[0]));
                self.rigs[deepest].1.settle(load, Nanos(self.plan.settle.0 / 4), watch.clock).map_err(failed)?;
                let times = self.rigs[deepest].1.prefill(batch, context, tokens, watch).map_err(failed)?;
                row(Stage::Prefill, batch, context, 0, tokens, times);
            }
            Visit::Offload { context } => {
                let times = self.rigs[deepest].1.offload(context, watch).map_err(failed)?;
                row(Stage::Offload, 1, context, 0, 0, times);
            }
            Visit::Host { batch } => {
                let times = self.host.run(batch, watch.clock)?;
                for (stage, times) in [Stage::Build, Stage::Launch, Stage::Read].into_iter().zip(times) {
                    row(stage, batch, 0, 0, 0, times);
                }
            }
        }
        Ok(rows)
    }
}
