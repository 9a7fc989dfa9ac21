//! `sim scenario.yaml`: runs the scenario's schedulers and writes the report.

use std::path::Path;

use clap::Args;
use miette::{Report, miette};
use reports::WriteOptions;
use sim::output::{FileSink, Files};
use sim::plan::Plan;
use sim::{compare, run, steps};

use super::{Chosen, show};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Runs only the scheduler of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Prints the first N steps of a single scheduler as CSV, and nothing else.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
}

pub(super) fn serve(arguments: &Arguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
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
    let dir = arguments.chosen.out(&loaded);
    let report = simulate(&plan, &loaded.name(), &dir).map_err(|error| miette!("{error}"))?;
    show::print(&format!("{report}\n"))
}

/// Runs the plan, writes everything and returns the summary to print.
fn simulate(plan: &Plan, name: &str, dir: &Path) -> reports::Result<String> {
    let settings = &plan.scenario.output;
    let mut files = Files::create(dir, settings)?;
    let requests = plan.workload.requests();
    let schedulers = compare::compare(plan, |planned| {
        run::run(plan, planned, &mut FileSink::new(&mut files, &planned.name, requests))
    })?;
    files.finish()?;
    let report = compare::report(plan, name, plan.yaml(), schedulers);
    let options = WriteOptions { plots: settings.plots, png: settings.plots, html: settings.plots };
    reports::write(&report, dir, options)?;
    Ok(format!("{}\nwritten to {}", reports::summary_text(&report), dir.display()))
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
