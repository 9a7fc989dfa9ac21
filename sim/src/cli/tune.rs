//! `sim tune scenario.yaml --objective throughput|goodput`.

use clap::{Args, ValueEnum};
use miette::{Report, miette};
use sim::run::plan::Plan;
use sim::study::tune;

use super::{Chosen, show};

#[derive(Args)]
pub(super) struct TuneArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// What is maximised.
    #[arg(long, value_enum, default_value_t = Objective::Throughput)]
    objective: Objective,
}

#[derive(Clone, Copy, ValueEnum)]
enum Objective {
    /// Output tokens per second with all requests there at the start.
    Throughput,
    /// Requests per second that keep the SLO, at the scenario's arrivals.
    Goodput,
}

pub(super) fn serve(arguments: &TuneArguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
    let dir = arguments.chosen.study(&loaded, "tune", None)?;
    let plan = Plan::new(loaded.scenario.clone()).map_err(|error| show::plan_error(&error, &loaded))?;
    let objective = match arguments.objective {
        Objective::Throughput => tune::Objective::Throughput,
        Objective::Goodput => tune::Objective::Goodput,
    };
    let trials = tune::tune(&plan, objective).map_err(|error| show::plan_error(&error, &loaded))?;
    let study = tune::study(&trials, objective);
    study.write(&dir).map_err(|error| miette!("{error}"))?;
    let (table, choice, reasons) = (study.grid.text(), trials[0].candidate.yaml(), tune::explain(&trials, objective));
    show::print(&format!(
        "{table}\nThe best, to paste into a scenario:\n\n{choice}\n{reasons}\nwritten to {}\n",
        dir.display()
    ))
}
