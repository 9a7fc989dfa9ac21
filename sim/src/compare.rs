//! Runs a plan's schedulers on the same requests and sets them against full depth, the bounds and the physical floor.

use std::collections::BTreeMap;

use engine::metrics::{Recorder, RunMetrics, Work};
use engine::scheduler::Mode;
use reports::{Bounds, Floor, Report, SchedulerReport};

use crate::capacity;
use crate::plan::{Plan, Planned};
use crate::run::{self, Discard};

/// Runs everything; `run_into` runs a scheduler, and sends its steps and requests where they are wanted.
///
/// # Errors
/// The first error of `run_into`.
pub fn compare<E>(
    plan: &Plan,
    mut run_into: impl FnMut(&Planned) -> Result<Recorder, E>,
) -> Result<Vec<SchedulerReport>, E> {
    std::thread::scope(|scope| {
        let floor = (plan.scenario.output.floor && !plan.online()).then(|| scope.spawn(|| at_floor(&plan.at_floor())));
        let mut recorders = Vec::new();
        for planned in &plan.schedulers {
            recorders.push(run_into(planned)?);
        }
        let capacities =
            if plan.online() && plan.scenario.output.capacity { capacity::all(plan) } else { BTreeMap::new() };
        let bounds = if plan.online() { Vec::new() } else { bounds(plan, &metrics(&recorders)) };
        let floor = floor.map(|floor| floor.join().expect("a run does not panic")).unwrap_or_default();
        let reports =
            plan.schedulers.iter().zip(recorders).enumerate().map(|(index, (planned, recorder))| SchedulerReport {
                bounds: bounds.get(index).copied(),
                floor: floor.get(index).copied(),
                capacity: capacities.get(&planned.name).cloned(),
                ..scheduler_report(planned, &recorder)
            });
        Ok(reports.collect())
    })
}

/// A run's report, without anything to compare it with.
pub fn scheduler_report(planned: &Planned, recorder: &Recorder) -> SchedulerReport {
    let kv_blocks = planned.config.kv.blocks.into();
    let latencies = recorder.latencies().clone();
    SchedulerReport::new(planned.name.clone(), planned.config.mode, recorder.metrics(), latencies, kv_blocks)
}

/// The report of a comparison.
pub fn report(plan: &Plan, title: &str, scenario_yaml: String, schedulers: Vec<SchedulerReport>) -> Report {
    Report {
        title: title.into(),
        facts: crate::facts::facts(plan),
        notes: crate::facts::notes(plan, &schedulers),
        scenario_yaml,
        online: plan.online(),
        schedulers,
        confidence: None,
    }
}

fn metrics(recorders: &[Recorder]) -> Vec<RunMetrics> {
    recorders.iter().map(Recorder::metrics).collect()
}

/// Each scheduler's run against full-depth continuous batching, which is run on the modelled device if it is not among them.
///
/// Empty if that served nothing, since nothing can be set against it.
pub fn bounds(plan: &Plan, metrics: &[RunMetrics]) -> Vec<Bounds> {
    let found = plan.schedulers.iter().position(|planned| planned.config.mode == Mode::ContinuousBatching);
    let baseline = match found {
        Some(index) => metrics[index].clone(),
        None => {
            let Ok(recorder) = run::run(plan, &plan.baseline(), &mut Discard);
            recorder.metrics()
        }
    };
    let baseline = Speed::of(&baseline, plan);
    let against = |(index, run)| {
        let bounds = Speed::of(run, plan).against(&baseline, plan)?;
        Some(Bounds { baseline: found == Some(index), ..bounds })
    };
    metrics.iter().enumerate().filter_map(against).collect()
}

/// What a comparison with full depth reads of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    throughput_tokens_per_s: f64,
    /// What the profile's device could not exceed with the same tokens; `None` if no limit of it is known.
    roof_tokens_per_s: Option<f64>,
    steady_tokens_per_s: Option<f64>,
    pub(crate) mean_exit_depth: f64,
    prefill_share: f64,
}

impl Speed {
    pub(crate) fn of(run: &RunMetrics, plan: &Plan) -> Self {
        let scheduler = &plan.scenario.scheduler;
        let limits = (scheduler.max_num_seqs.0, scheduler.max_num_batched_tokens.0);
        let least_s = |work: Work| engine::bounds::least_time_s(&work, &plan.model, &plan.profile.device, limits);
        Self {
            roof_tokens_per_s: run.work.map(least_s).filter(|&s| s > 0.0).map(|s| run.output_tokens as f64 / s),
            throughput_tokens_per_s: run.throughput_tokens_per_s,
            steady_tokens_per_s: run.steady.map(|window| window.throughput_tokens_per_s),
            mean_exit_depth: run.mean_exit_depth,
            prefill_share: run.prefill_share,
        }
    }

    /// Against the full-depth continuous-batching run of the same requests; `None` if that served nothing.
    pub(crate) fn against(&self, baseline: &Self, plan: &Plan) -> Option<Bounds> {
        if baseline.throughput_tokens_per_s == 0.0 {
            return None;
        }
        let speedup = self.throughput_tokens_per_s / baseline.throughput_tokens_per_s;
        let steady = self.steady_tokens_per_s.zip(baseline.steady_tokens_per_s);
        // A run without decoded tokens has no exits to gain from.
        let depth = if self.mean_exit_depth > 0.0 { self.mean_exit_depth } else { f64::from(plan.model.r_max.0) };
        let s_dec = engine::bounds::s_dec(&plan.model, depth);
        let s_e2e = engine::bounds::s_e2e(s_dec, baseline.prefill_share);
        Some(Bounds {
            baseline: false,
            speedup,
            steady_speedup: steady.map(|(run, base)| run / base),
            s_dec,
            s_e2e,
            s_roof: self.roof_tokens_per_s.map(|roof| roof / baseline.throughput_tokens_per_s),
            realised_share: speedup / s_e2e,
        })
    }
}

/// The same comparison where only physics costs time.
pub(crate) fn at_floor(plan: &Plan) -> Vec<Floor> {
    let runs = plan.schedulers.iter().map(|planned| {
        let Ok(recorder) = run::run(plan, planned, &mut Discard);
        recorder.metrics()
    });
    let runs: Vec<_> = runs.collect();
    let floors = bounds(plan, &runs).into_iter().zip(&runs).map(|(bounds, run)| Floor {
        throughput_tokens_per_s: run.throughput_tokens_per_s,
        speedup: bounds.speedup,
        realised_share: bounds.realised_share,
    });
    floors.collect()
}
