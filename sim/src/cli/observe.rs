//! `sim observe URL scenario.yaml`.

use clap::Args;
use client::Endpoint;
use engine::whole::Whole;
use miette::{Report, miette};
use reports::validation::{validation_text, write_validation};
use reports::{Results, WriteOptions};
use sim::live::recordings;
use sim::observe::{Observation, ObserveError, Server};
use sim::run::compare;
use sim::run::output::Files;
use sim::run::plan::Plan;
use sim::scenario::inputs::Inputs;
use sim::scenario::load::Loaded;
use sim::scenario::numbers::Repeats;
use traces::file::write::FileWriter;

use super::{Chosen, keep, only, show};

#[derive(Args)]
pub(super) struct ObserveArguments {
    /// The server, like http://127.0.0.1:8000; /v1 is added where there is no path.
    url: String,
    #[command(flatten)]
    chosen: Chosen,
    /// The environment's variable that has the API key.
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// The model's name there; the first that the server names by default.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How often the requests are sent, for the spread; the scenario's live.repeats by default.
    #[arg(long, value_name = "N", value_parser = repeats)]
    repeats: Option<Repeats>,
    /// Predicts this scheduler; the scenario's first by default.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

pub(super) fn serve(arguments: &ObserveArguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
    let dir = arguments.chosen.out(&loaded);
    let endpoint = endpoint(arguments)?;
    let plan = plan(arguments, &loaded)?;
    keep(&Inputs::of(&loaded), (Results::Comparison, &dir), recordings(&plan, &dir))?;
    let failed = |error: ObserveError| miette!("{error}");
    let server = Server::probe(endpoint, &plan, arguments.model.as_deref()).map_err(failed)?;
    let repeats = arguments.repeats.unwrap_or(plan.scenario.live.repeats).0;
    let name = loaded.name();
    // Files have temporary names until they are complete, and are gone if the server does not answer.
    let mut files = Files::create(&dir, &plan.scenario.output).map_err(|error| miette!("{error}"))?;
    let observation = server.observe(&plan, repeats, &name, &mut files).map_err(failed)?;
    files.finish().map_err(|error| miette!("{error}"))?;
    let text = write(&plan, &name, &dir, observation).map_err(failed)?;
    show::print(&format!("{text}\nwritten to {}\n", dir.display()))
}

fn endpoint(arguments: &ObserveArguments) -> Result<Endpoint, Report> {
    let key = arguments.api_key_env.as_ref().map(|name| {
        let key = std::env::var(name).ok().filter(|key| !key.is_empty());
        key.ok_or_else(|| miette!("--api-key-env {name}: the environment has no such variable, or it is empty"))
    });
    Endpoint::new(&arguments.url, key.transpose()?.as_deref()).map_err(|error| miette!("{error}"))
}

/// The plan of one scheduler: a server has no other.
fn plan(arguments: &ObserveArguments, loaded: &Loaded) -> Result<Plan, Report> {
    if loaded.scenario.sweep.is_some() {
        return Err(miette!("a server is observed under one scenario: add `--set sweep=null` to leave the sweep out"));
    }
    let plan = Plan::for_live(loaded.scenario.clone(), None);
    let mut plan = plan.map_err(|error| show::plan_error(&error, loaded))?;
    only(&mut plan, arguments.only.as_deref())?;
    plan.schedulers.truncate(1);
    Ok(plan)
}

/// Writes everything, and returns what to print.
fn write(plan: &Plan, name: &str, dir: &std::path::Path, observation: Observation) -> Result<String, ObserveError> {
    let Observation { validation, schedulers, observed, recording } = observation;
    recording.map(FileWriter::finish).transpose()?;
    write_validation(&validation, dir, false)?;
    observed.write(dir)?;
    let mut report = compare::report(plan, name, plan.yaml(), schedulers);
    report.notes.extend(observed.notes());
    let plots = plan.scenario.output.plots;
    reports::write(&report, dir, WriteOptions { plots, png: plots, html: plots })?;
    Ok(format!("{}\n{}", validation_text(&validation), observed.text()))
}

fn repeats(text: &str) -> Result<Repeats, String> {
    Repeats::try_from(text.parse::<Whole>()?)
}
