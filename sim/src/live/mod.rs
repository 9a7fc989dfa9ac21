//! `--live`: the same requests through the model and through the engine, and what the model got wrong.

mod description;
mod device;
mod errors;
mod log;
mod memory;
mod replay;

pub use description::check_baseline;
pub use device::{Engine, LiveDevice, LiveError};
pub use replay::recordings;

use engine::metrics::{Recorder, RunMetrics};
use engine::profile::Buckets;
use reports::validation::{SchedulerValidation, Validation};
use reports::{Bounds, SchedulerReport};
use serde::{Deserialize, Serialize};
use traces::file::write::FileWriter;

use crate::run::compare;
use crate::run::output::{FileSink, Files};
use crate::run::plan::{Plan, Planned};
use crate::run::serve::serve;
use crate::run::speed;
pub(crate) use errors::step_times;
pub(crate) use log::{Log, Logged};

/// A run on either side: its metrics, and what is kept to compare it step by step and request by request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) metrics: RunMetrics,
    pub(crate) log: Log,
}

/// A validation, and the same runs as a report.
pub struct LiveComparison {
    /// Predicted against measured.
    pub validation: Validation,
    /// Every scheduler twice, predicted and measured (the first live run).
    pub schedulers: Vec<SchedulerReport>,
    /// The exits that a gate took, as workload files that are complete but for their names.
    pub recordings: Vec<FileWriter>,
}

/// Runs every scheduler live, as often as the scenario repeats, then on the model with the exits that the live runs took.
///
/// # Errors
/// The engine cannot run the plan, or a file cannot be written.
pub fn validate(plan: &Plan, engine: &mut Engine, title: &str, files: &mut Files) -> Result<LiveComparison, LiveError> {
    let mut measured: Vec<Vec<(Recorder, Log)>> = plan.schedulers.iter().map(|_| Vec::new()).collect();
    let mut predicted_plan = plan.clone();
    let mut recordings = Vec::new();
    let mut exit_label = "";
    // Repeats are outermost, so that a drift of the machine meets every scheduler alike.
    for repeat in 0..plan.scenario.live.repeats.0 {
        for (index, planned) in plan.schedulers.iter().enumerate() {
            let label = format!("{}, measured", planned.name);
            let files_of_first = (repeat == 0).then(|| FileSink::new(files, &label, plan.workload.requests()));
            let mut sink = Logged::new(files_of_first);
            let ran = engine.run(plan, planned, &mut sink)?;
            // Full depth beside a gate has no exits to name.
            if exit_label.is_empty() || !planned.full_depth {
                exit_label = ran.exit_label;
            }
            measured[index].push((ran.recorder, sink.into_log()));
            if repeat == 0
                && let Some(exits) = ran.recorded_exits
            {
                let (file, exits) = replay::recorded(plan, planned, &exits, files.dir())?;
                recordings.push(file);
                predicted_plan.schedulers[index].exits = exits;
            }
        }
    }
    let mut predicted = Vec::new();
    for planned in &predicted_plan.schedulers {
        let label = format!("{}, predicted", planned.name);
        let mut sink = Logged::new(Some(FileSink::new(files, &label, plan.workload.requests())));
        let recorder = serve(&predicted_plan, planned, &mut sink)?;
        predicted.push((recorder, sink.into_log()));
    }
    let served = |runs: &[(Recorder, Log)]| -> Vec<Served> {
        runs.iter().map(|(recorder, log)| Served { metrics: recorder.metrics(), log: log.clone() }).collect()
    };
    let measured_runs: Vec<Vec<Served>> = measured.iter().map(|runs| served(runs)).collect();
    let validation = Validation {
        title: title.into(),
        device: engine.describe(plan),
        exits: exit_label.into(),
        ..validation(&predicted_plan, &served(&predicted), &measured_runs)
    };
    let firsts = measured.iter().zip(&predicted).map(|(runs, predicted)| (&predicted.0, &runs[0].0));
    Ok(LiveComparison { validation, schedulers: reports(plan, firsts.collect()), recordings })
}

/// Sets the plan's schedulers, predicted, against their live runs, all with as many repeats. Title, device and exits are
/// left to the caller.
pub(crate) fn validation(plan: &Plan, predicted: &[Served], measured: &[Vec<Served>]) -> Validation {
    let repeats = measured.first().map_or(0, Vec::len);
    let bounds = |runs: Vec<RunMetrics>| if plan.online() { Vec::new() } else { speed::bounds(plan, &runs) };
    let predicted_bounds = bounds(predicted.iter().map(|run| run.metrics.clone()).collect());
    // Offline both sides do the same work, which journals of older programs do not tell.
    let done = |(live, model): (&Vec<Served>, &Served), repeat: usize| {
        let metrics = live[repeat].metrics.clone();
        RunMetrics { work: metrics.work.or(model.metrics.work), ..metrics }
    };
    let measured_bounds: Vec<Vec<Bounds>> = (0..repeats)
        .map(|repeat| bounds(measured.iter().zip(predicted).map(|pair| done(pair, repeat)).collect()))
        .collect();
    let floors =
        if plan.scenario.output.floor && !plan.online() { compare::at_floor(&plan.at_floor()) } else { Vec::new() };
    let scheduler = |(index, planned): (usize, &Planned)| {
        let (model, runs) = (&predicted[index], &measured[index]);
        let side = |run: &Served, bounds: &[Bounds]| errors::headline(&run.metrics, bounds.get(index));
        let live: Vec<_> = runs.iter().zip(&measured_bounds).map(|(run, bounds)| side(run, bounds)).collect();
        let first_difference =
            (!plan.online()).then(|| runs.iter().find_map(|run| model.log.first_difference(&run.log)));
        SchedulerValidation {
            name: planned.name.clone(),
            metrics: errors::compare(&side(model, &predicted_bounds), &live),
            floor: floors.get(index).copied(),
            batches_identical: first_difference.as_ref().map(Option::is_none),
            first_difference: first_difference.flatten(),
            ks_distance: errors::ks_distances(&model.log, &runs[0].log),
            stages: errors::stages(model, &runs[0]),
            step_pairs: errors::step_pairs(model, &runs[0]),
            load: None,
        }
    };
    Validation {
        title: String::new(),
        device: String::new(),
        profile: plan.profile.name.clone(),
        exits: String::new(),
        kv_blocks: plan.scenario.kv.blocks.0,
        graph_rows: match &plan.profile.buckets {
            Buckets::List(sizes) => Some(sizes.to_vec()),
            Buckets::Exact | Buckets::PowersOfTwo => None,
        },
        online: plan.online(),
        repeats: repeats as u32,
        schedulers: plan.schedulers.iter().enumerate().map(scheduler).collect(),
    }
}

/// Every scheduler twice, from its predicted and its first measured run.
fn reports(plan: &Plan, runs: Vec<(&Recorder, &Recorder)>) -> Vec<SchedulerReport> {
    let bounds = |runs: &mut dyn Iterator<Item = &Recorder>| {
        let metrics: Vec<RunMetrics> = runs.map(Recorder::metrics).collect();
        if plan.online() { Vec::new() } else { speed::bounds(plan, &metrics) }
    };
    let predicted = bounds(&mut runs.iter().map(|(predicted, _)| *predicted));
    let measured = bounds(&mut runs.iter().map(|(_, measured)| *measured));
    let sides = plan.schedulers.iter().zip(runs).enumerate().map(|(index, (planned, recorders))| {
        let report = |side: &str, recorder: &Recorder, bounds: &[Bounds]| SchedulerReport {
            name: format!("{}, {side}", planned.name),
            bounds: bounds.get(index).copied(),
            ..compare::scheduler_report(planned, recorder)
        };
        [report("predicted", recorders.0, &predicted), report("measured", recorders.1, &measured)]
    });
    sides.flatten().collect()
}
