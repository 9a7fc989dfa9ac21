//! `--live`: the same requests through the model and through the engine, and what the model got wrong.

mod device;
mod log;
mod measure;
mod replay;

pub use device::{Device, Engine, LiveError};

use engine::metrics::{Recorder, RunMetrics};
use reports::validation::{SchedulerValidation, Validation};
use reports::{ReportError, SchedulerReport};

use crate::compare;
use crate::output::{FileSink, Files};
use crate::plan::{Plan, Planned};
use crate::run;
use log::{Log, Logged};

/// One scheduler's measured runs.
struct Measured {
    runs: Vec<(Recorder, Log)>,
}

/// Runs every scheduler live, as often as the scenario repeats, then on the model with the exits that the live runs took.
///
/// # Errors
/// The engine cannot run the plan, or a file cannot be written.
pub fn validate(plan: &Plan, engine: &Engine, title: &str, files: &mut Files) -> Result<Outcome, LiveError> {
    let repeats = plan.scenario.live.repeats.0;
    let mut measured: Vec<Measured> = plan.schedulers.iter().map(|_| Measured { runs: Vec::new() }).collect();
    let mut predicted_plan = plan.clone();
    let mut exit_label = "";
    // Repeats are outermost, so that a drift of the machine meets every scheduler alike.
    for repeat in 0..repeats {
        for (index, planned) in plan.schedulers.iter().enumerate() {
            let label = format!("{}, measured", planned.name);
            let mut sink = Logged::new(FileSink::new(files, &label, plan.workload.requests()), repeat == 0);
            let ran = engine.run(plan, planned, &mut sink)?;
            exit_label = ran.exit_label;
            measured[index].runs.push((ran.recorder, sink.into_log()));
            if repeat == 0
                && let Some(exits) = ran.recorded_exits
            {
                predicted_plan.schedulers[index].exits = replay::recorded(plan, planned, &exits, files.dir())?;
            }
        }
    }
    let mut predicted = Vec::new();
    for planned in &predicted_plan.schedulers {
        let label = format!("{}, predicted", planned.name);
        let mut sink = Logged::new(FileSink::new(files, &label, plan.workload.requests()), true);
        let recorder = run::run(&predicted_plan, planned, &mut sink)?;
        predicted.push((recorder, sink.into_log()));
    }
    Ok(outcome(&predicted_plan, title, (engine, exit_label), &predicted, &measured))
}

/// A validation, and the same runs as a report.
pub struct Outcome {
    /// Predicted against measured.
    pub validation: Validation,
    /// Every scheduler twice, predicted and measured (the first live run).
    pub schedulers: Vec<SchedulerReport>,
}

fn outcome(
    plan: &Plan,
    title: &str,
    (engine, exit_label): (&Engine, &str),
    predicted: &[(Recorder, Log)],
    measured: &[Measured],
) -> Outcome {
    let metrics = |runs: &mut dyn Iterator<Item = &Recorder>| runs.map(Recorder::metrics).collect::<Vec<RunMetrics>>();
    let predicted_metrics = metrics(&mut predicted.iter().map(|(recorder, _)| recorder));
    let by_repeat: Vec<Vec<RunMetrics>> = (0..plan.scenario.live.repeats.0 as usize)
        .map(|repeat| metrics(&mut measured.iter().map(|measured| &measured.runs[repeat].0)))
        .collect();
    let bounds = |metrics: &[RunMetrics]| if plan.online() { Vec::new() } else { compare::bounds(plan, metrics) };
    let predicted_bounds = bounds(&predicted_metrics);
    let measured_bounds: Vec<_> = by_repeat.iter().map(|metrics| bounds(metrics)).collect();
    let mut validations = Vec::new();
    let mut reports = Vec::new();
    for (index, planned) in plan.schedulers.iter().enumerate() {
        let side = |metrics: &RunMetrics, bounds: &[reports::Bounds]| measure::headline(metrics, bounds.get(index));
        let live = by_repeat.iter().zip(&measured_bounds).map(|(metrics, bounds)| side(&metrics[index], bounds));
        let (recorder, log) = &measured[index].runs[0];
        let (model_recorder, model_log) = &predicted[index];
        let first_difference =
            (!plan.online()).then(|| measured[index].runs.iter().find_map(|(_, log)| model_log.first_difference(log)));
        validations.push(SchedulerValidation {
            name: planned.name.clone(),
            metrics: measure::compare(&side(&predicted_metrics[index], &predicted_bounds), &live.collect::<Vec<_>>()),
            batches_identical: first_difference.as_ref().map(Option::is_none),
            first_difference: first_difference.flatten(),
            ks_distance: measure::ks_distances(model_log, log),
            stages: measure::stages(model_log, log),
            step_pairs: measure::step_pairs(model_log, log),
        });
        let report = |name: &str, recorder: &Recorder, bounds: &[reports::Bounds]| SchedulerReport {
            bounds: bounds.get(index).copied(),
            ..compare::scheduler_report(&named(planned, name), recorder)
        };
        reports.push(report("predicted", model_recorder, &predicted_bounds));
        reports.push(report("measured", recorder, &measured_bounds[0]));
    }
    Outcome {
        validation: Validation {
            title: title.into(),
            device: engine.describe(),
            profile: plan.profile.name.clone(),
            exits: exit_label.into(),
            repeats: plan.scenario.live.repeats.0,
            schedulers: validations,
        },
        schedulers: reports,
    }
}

fn named(planned: &Planned, side: &str) -> Planned {
    Planned { name: format!("{}, {side}", planned.name), ..planned.clone() }
}

impl From<ReportError> for LiveError {
    fn from(error: ReportError) -> Self {
        Self::Report(error)
    }
}
