//! `sim scenario.yaml`: what would depth-adaptive batching gain?

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report, miette};
use reports::WriteOptions;
use sim::load::{LoadError, Loaded};
use sim::output::{FileSink, Files};
use sim::plan::{Plan, PlanError};
use sim::{compare, locate, quick, run, steps};

/// Simulates schedulers for looped language models on the same requests, and compares them with full depth and the bounds.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The scenario, a YAML file.
    scenario: PathBuf,
    /// Where to write; reports/out/<scenario> by default.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Sets a field of the scenario, as path.to.field=value; list entries by index.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// At most 300 requests, and 30 s of arrivals.
    #[arg(long)]
    quick: bool,
    /// Runs only the scheduler of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Prints the first N steps of a single scheduler as CSV, and nothing else.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(report) => {
            eprintln!("{report:?}");
            ExitCode::from(2)
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), Report> {
    let mut loaded = Loaded::read(&arguments.scenario, &arguments.overrides).map_err(show_load_error)?;
    if arguments.quick {
        quick::shrink(&mut loaded.scenario);
    }
    let mut plan = Plan::new(loaded.scenario.clone()).map_err(|error| show_plan_error(&error, &loaded))?;
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
    let dir = arguments.out.clone().unwrap_or_else(|| PathBuf::from("reports/out").join(loaded.name()));
    let report = simulate(&plan, &loaded.name(), &dir).map_err(|error| miette!("{error}"))?;
    print(&format!("{report}\n"))
}

/// Runs the plan, writes everything and returns the summary to print.
fn simulate(plan: &Plan, name: &str, dir: &std::path::Path) -> reports::Result<String> {
    let settings = &plan.scenario.output;
    let mut files = Files::create(dir, settings)?;
    let requests = plan.workload.requests();
    let schedulers = compare::compare(plan, |planned| {
        run::run(plan, planned, &mut FileSink::new(&mut files, &planned.name, requests))
    })?;
    files.finish()?;
    let yaml = serde_yaml::to_string(&plan.scenario).expect("a scenario is YAML");
    let report = compare::report(plan, name, yaml, schedulers);
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
    print(&String::from_utf8_lossy(&text))
}

/// Prints to stdout; a reader that has seen enough is no error.
fn print(text: &str) -> Result<(), Report> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(miette!("stdout: {error}")),
        _ => Ok(()),
    }
}

fn show_load_error(error: LoadError) -> Report {
    match error {
        LoadError::Yaml { path, text, source } => {
            serde_yaml::miette::to_miette_report(&source, &text, &path.to_string_lossy())
        }
        other => miette!("{other}"),
    }
}

/// Shows the fault under the field, if the file has it.
fn show_plan_error(error: &PlanError, loaded: &Loaded) -> Report {
    let mut diagnostic = MietteDiagnostic::new(error.to_string());
    if let Some(range) = locate::locate(&loaded.text, &error.path) {
        diagnostic = diagnostic.with_label(LabeledSpan::new_with_span(Some("here".into()), range));
    }
    Report::new(diagnostic).with_source_code(NamedSource::new(loaded.path.to_string_lossy(), loaded.text.clone()))
}
