//! Everything that is timed: an executor for each loop count, and one for the event loop.

use engine::architecture::Architecture;
use engine::executor::Executor;
use engine::live::LiveConfig;
use engine::units::{Depth, Nanos};

use super::config::live_config;
use super::host_bench::{HostBench, OUTPUT_TOKENS, PROMPT_TOKENS};
use super::plan::MeasurementPlan;
use super::schedule::Group;
use super::stage_bench::StageBench;
use super::timer::Timer;
use crate::error::CalibrateError;
use crate::measurements::{Kind, Measurement, Point, Times};

/// Benches that times of groups come from.
pub(super) struct Benches<'a, E> {
    plan: &'a MeasurementPlan,
    /// By loop count, rising.
    stages: Vec<StageBench<E>>,
    host: HostBench<E>,
    /// The batch size and context of the decode steps that went before.
    load: Option<(u32, u32)>,
}

impl<'a, E: Executor> Benches<'a, E> {
    /// Makes the executors and fills their caches.
    pub(super) fn new(
        plan: &'a MeasurementPlan,
        model: &Architecture,
        mut make: impl FnMut(LiveConfig) -> Result<E, E::Error>,
        timer: &mut Timer<'_>,
    ) -> Result<Self, CalibrateError> {
        let (held_tokens, plane_blocks) = (plan.held_tokens(), plan.plane_blocks());
        let mut stages = Vec::new();
        for &loops in &plan.loops {
            let config = live_config(plan, model, &held_tokens, plane_blocks, Depth(loops));
            let scheduler = config.scheduler;
            let failed = |error| CalibrateError::execution(format!("filling the cache at {loops} loops"), error);
            let mut bench = StageBench::new(make(config).map_err(failed)?, &scheduler, plan);
            bench.fill(timer.clock).map_err(failed)?;
            stages.push(bench);
        }
        let host_tokens = vec![PROMPT_TOKENS + OUTPUT_TOKENS; held_tokens.len()];
        let plane_blocks = host_tokens.iter().map(|tokens| tokens.div_ceil(plan.block_tokens)).sum();
        let config = live_config(plan, model, &host_tokens, plane_blocks, model.r_max);
        let scheduler = config.scheduler;
        let executor = make(config).map_err(|error| CalibrateError::execution("making an executor".into(), error))?;
        Ok(Self { plan, stages, host: HostBench::new(executor, scheduler), load: None })
    }

    /// Times all points of a group.
    pub(super) fn measure(
        &mut self,
        group: &Group,
        round: u32,
        timer: &mut Timer<'_>,
    ) -> Result<Vec<Measurement>, CalibrateError> {
        let Point { batch, context, tokens, .. } = group.first();
        let failed = |error| CalibrateError::execution(group.to_string(), error);
        let times = match group.kind() {
            Kind::Decode => self.decode(batch, context, timer).map_err(failed)?,
            Kind::Prefill => vec![self.prefill(batch, context, tokens, timer).map_err(failed)?],
            Kind::Offload => vec![self.deepest().offload(context, timer).map_err(failed)?],
            Kind::Host => self.host.run(batch, timer.clock)?.into(),
        };
        let timed = group.points().iter().zip(times);
        Ok(timed.map(|(&point, times)| Measurement { line: 0, point, round, times }).collect())
    }

    /// Whole steps at every loop count; core, prelude and coda.
    fn decode(&mut self, batch: u32, context: u32, timer: &mut Timer<'_>) -> Result<Vec<Times>, E::Error> {
        let plan = self.plan;
        if self.load.is_none_or(|(before, _)| before != batch) {
            self.deepest().settle((batch, context), plan.settle, timer.clock)?;
        }
        self.load = Some((batch, context));
        let steps = self.stages.iter_mut().map(|bench| bench.forward(batch, context, plan, timer));
        let mut times = steps.collect::<Result<Vec<_>, _>>()?;
        times.extend(self.deepest().stages(batch, context, plan, timer)?);
        Ok(times)
    }

    fn prefill(&mut self, batch: u32, context: u32, tokens: u32, timer: &mut Timer<'_>) -> Result<Times, E::Error> {
        // Prompts come between decode steps, and find the clock that these left.
        let load = self.load.unwrap_or((1, self.plan.contexts[0]));
        let settle = Nanos(self.plan.settle.0 / 4);
        self.deepest().settle(load, settle, timer.clock)?;
        self.deepest().prefill(batch, context, tokens, timer)
    }

    /// The bench of the model's full depth.
    fn deepest(&mut self) -> &mut StageBench<E> {
        self.stages.last_mut().expect("a plan has loop counts")
    }
}
