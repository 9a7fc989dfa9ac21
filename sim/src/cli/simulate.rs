//! `sim scenario.yaml`: runs the scenario's schedulers, with `--live` for real as well, and writes the report.

use std::path::Path;

use clap::Args;
use engine::whole;
use miette::{Report, miette};
use reports::validation::{validation_text, write_validation};
use reports::{Confidence, ReportError, Results, SchedulerReport, WriteOptions};
use sim::live::{self, Engine, LiveDevice, LiveError};
use sim::run::output::{FileSink, Files};
use sim::run::plan::Plan;
use sim::run::serve::serve;
use sim::run::{compare, repeats, steps};
use sim::scenario::inputs::Inputs;
use sim::scenario::load::Loaded;
use traces::file::write::FileWriter;

use super::{Chosen, keep, only, show};

#[derive(Args)]
pub(super) struct SimulateArguments {
    #[command(flatten)]
    chosen: Option<Chosen>,
    /// Runs only the scheduler of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Runs every scheduler for real, too, and compares.
    #[arg(long, value_name = "DEVICE", conflicts_with = "steps")]
    live: Option<LiveDevice>,
    /// Prints the first N steps of a single scheduler as CSV, and nothing else.
    #[arg(long, value_name = "N", value_parser = whole::parse::<u64>)]
    steps: Option<u64>,
}

pub(super) fn run(arguments: &SimulateArguments) -> Result<(), Report> {
    let chosen = arguments.chosen.as_ref().expect("clap asks for a scenario where there is no subcommand");
    let loaded = chosen.load()?;
    let dir = chosen.out(&loaded);
    if loaded.scenario.sweep.is_some() {
        if arguments.only.is_some() || arguments.steps.is_some() || arguments.live.is_some() {
            let reason =
                "--only, --live and --steps are for a single run: add `--set sweep=null` to leave the sweep out";
            return Err(miette!("{reason}"));
        }
        return super::sweep::run(&loaded, &dir, None);
    }
    let mut engine = arguments.live.map(Engine::new);
    let plan = match &mut engine {
        None => Plan::new(loaded.scenario.clone()),
        Some(engine) => engine.plan(loaded.scenario.clone()),
    };
    let mut plan = plan.map_err(|error| show::plan_error(&error, &loaded))?;
    only(&mut plan, arguments.only.as_deref())?;
    if let Some(steps) = arguments.steps {
        return print_steps(&plan, steps);
    }
    keep(&Inputs::of(&loaded), (Results::Comparison, &dir), live::recordings(&plan, &dir))?;
    let text = match &mut engine {
        None => simulate(&plan, &loaded, &dir)?,
        Some(engine) => {
            live::check(&plan).map_err(|error| show::plan_error(&error, &loaded))?;
            validate(&plan, engine, &loaded.name(), &dir).map_err(|error| miette!("{error}"))?
        }
    };
    show::print(&format!("{text}\nwritten to {}\n", dir.display()))
}

/// Runs the plan on the model and live, writes both and returns the comparison to print.
fn validate(plan: &Plan, engine: &mut Engine, name: &str, dir: &Path) -> Result<String, LiveError> {
    // Before any file is made.
    engine.prepare(&plan.scenario)?;
    let mut files = Files::create(dir, &plan.scenario.output)?;
    let live::LiveComparison { validation, schedulers, recordings } = live::validate(plan, engine, name, &mut files)?;
    files.finish()?;
    recordings.into_iter().try_for_each(FileWriter::finish)?;
    write_validation(&validation, dir, plan.scenario.output.plots)?;
    write_report(plan, name, dir, schedulers, None)?;
    Ok(validation_text(&validation))
}

/// Runs the plan, writes everything and returns the summary to print.
fn simulate(plan: &Plan, loaded: &Loaded, dir: &Path) -> Result<String, Report> {
    let (schedulers, files) = run_all(plan, dir).map_err(write_error)?;
    let confidence = repeats::confidence(plan, &schedulers).map_err(|error| show::plan_error(&error, loaded))?;
    files.finish().map_err(write_error)?;
    let report = write_report(plan, &loaded.name(), dir, schedulers, confidence).map_err(write_error)?;
    Ok(reports::summary_text(&report))
}

/// Runs every scheduler into the files, which are left open.
fn run_all(plan: &Plan, dir: &Path) -> reports::Result<(Vec<SchedulerReport>, Files)> {
    let mut files = Files::create(dir, &plan.scenario.output)?;
    let requests = plan.workload.requests();
    let schedulers = compare::compare(plan, |planned| {
        serve(plan, planned, &mut FileSink::new(&mut files, &planned.name, requests))
    })?;
    Ok((schedulers, files))
}

fn write_report(
    plan: &Plan,
    name: &str,
    dir: &Path,
    schedulers: Vec<SchedulerReport>,
    confidence: Option<Confidence>,
) -> reports::Result<reports::Report> {
    let report = reports::Report { confidence, ..compare::report(plan, name, plan.yaml(), schedulers) };
    let plots = plan.scenario.output.plots;
    reports::write(&report, dir, WriteOptions { plots, png: plots, html: plots })?;
    Ok(report)
}

fn write_error(error: ReportError) -> Report {
    miette!("{error}")
}

fn print_steps(plan: &Plan, count: u64) -> Result<(), Report> {
    if plan.schedulers.len() != 1 {
        let names: Vec<_> = plan.schedulers.iter().map(|planned| planned.name.as_str()).collect();
        return Err(miette!("--steps shows one scheduler: choose with --only one of {}", names.join(", ")));
    }
    let mut text = Vec::new();
    steps::write(plan, count, &mut text).expect("a vector takes every byte");
    show::print(&String::from_utf8_lossy(&text))
}
