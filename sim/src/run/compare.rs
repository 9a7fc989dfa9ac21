//! Runs a plan's schedulers on the same requests and sets them against full depth, the bounds and the physical floor.

use std::collections::BTreeMap;

use engine::metrics::{Recorder, RunMetrics};
use reports::{Floor, Report, SchedulerReport};

use crate::run::capacity;
use crate::run::plan::{Plan, Planned};
use crate::run::serve::{Discard, serve};
use crate::run::speed::bounds;

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
    let (latencies, metrics) = (recorder.latencies().clone(), recorder.metrics());
    let pools = metrics.replicas.as_ref().map_or(1, |replicas| replicas.requests.len() as u64);
    let kv_blocks = u64::from(planned.config.kv.blocks) * pools;
    SchedulerReport::new(planned.name.clone(), planned.config.mode, metrics, latencies, kv_blocks)
}

/// The report of a comparison.
pub fn report(plan: &Plan, title: &str, scenario_yaml: String, schedulers: Vec<SchedulerReport>) -> Report {
    Report {
        title: title.into(),
        facts: crate::run::facts::facts(plan),
        notes: crate::run::facts::notes(plan, &schedulers),
        scenario_yaml,
        online: plan.online(),
        schedulers,
        confidence: None,
    }
}

fn metrics(recorders: &[Recorder]) -> Vec<RunMetrics> {
    recorders.iter().map(Recorder::metrics).collect()
}

/// The same comparison where only physics costs time.
pub(crate) fn at_floor(plan: &Plan) -> Vec<Floor> {
    let runs = plan.schedulers.iter().map(|planned| {
        let Ok(recorder) = serve(plan, planned, &mut Discard);
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
