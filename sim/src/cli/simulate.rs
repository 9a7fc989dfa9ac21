//! `sim scenario.yaml`: runs the scenario's schedulers and writes the report.

use std::path::Path;

use clap::Args;
use miette::{Report, miette};
use reports::{ReportError, WriteOptions};
use sim::load::Loaded;
use sim::output::{FileSink, Files};
use sim::plan::Plan;
use sim::{compare, repeats, run, steps};

use super::{Chosen, show};

#[derive(Args)]
pub(super) struct SimulateArguments {
    #[command(flatten)]
    chosen: Option<Chosen>,
    /// Runs only the scheduler of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Prints the first N steps of a single scheduler as CSV, and nothing else.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
}

pub(super) fn serve(arguments: &SimulateArguments) -> Result<(), Report> {
    let chosen = arguments.chosen.as_ref().expect("clap asks for a scenario where there is no subcommand");
    let loaded = chosen.load()?;
    if loaded.scenario.sweep.is_some() {
        if arguments.only.is_some() || arguments.steps.is_some() {
            return Err(miette!("--only and --steps show a single run: add `--set sweep=null` to leave the sweep out"));
        }
        return super::sweep::run(&loaded, &chosen.out(&loaded), None);
    }
    let mut plan = Plan::new(loaded.scenario.clone()).map_err(|error| show::plan_error(&error, &loaded))?;
    if let Some(name) = &arguments.only {
        let names: Vec<_> = plan.schedulers.iter().map(|planned| planned.name.clone()).collect();
        plan.schedulers.retain(|planned| planned.name == *name);
        if plan.schedulers.is_empty() {
            return Err(miette!("--only {name}: the scenario has no such scheduler; it has {}", names.join(", ")));
        }
    }
    if let Some(steps) = arguments.steps {
        return print_steps(&plan, steps);
    }
    let dir = chosen.out(&loaded);
    let report = simulate(&plan, &loaded, &dir)?;
    show::print(&format!("{report}\n"))
}

/// Runs the plan, writes everything and returns the summary to print.
fn simulate(plan: &Plan, loaded: &Loaded, dir: &Path) -> Result<String, Report> {
    let settings = &plan.scenario.output;
    let mut files = Files::create(dir, settings).map_err(write_error)?;
    let requests = plan.workload.requests();
    let schedulers = compare::compare(plan, |planned| {
        run::run(plan, planned, &mut FileSink::new(&mut files, &planned.name, requests))
    })
    .map_err(write_error)?;
    files.finish().map_err(write_error)?;
    let confidence = repeats::confidence(plan, &schedulers).map_err(|error| show::plan_error(&error, loaded))?;
    let yaml = serde_yaml::to_string(&plan.scenario).expect("a scenario is YAML");
    let report = reports::Report { confidence, ..compare::report(plan, &loaded.name(), yaml, schedulers) };
    let options = WriteOptions { plots: settings.plots, png: settings.plots, html: settings.plots };
    reports::write(&report, dir, options).map_err(write_error)?;
    Ok(format!("{}\nwritten to {}", reports::summary_text(&report), dir.display()))
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
