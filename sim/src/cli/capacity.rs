//! `sim capacity scenario.yaml`.

use clap::Args;
use miette::{Report, miette};
use sim::run::plan::Plan;
use sim::study::capacity;

use super::{Chosen, show};

#[derive(Args)]
pub(super) struct CapacityArguments {
    #[command(flatten)]
    chosen: Chosen,
}

pub(super) fn serve(arguments: &CapacityArguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
    let dir = arguments.chosen.study(&loaded, "capacity", None)?;
    let plan = Plan::new(loaded.scenario.clone()).map_err(|error| show::plan_error(&error, &loaded))?;
    let curves = capacity::curves(&plan).map_err(|error| show::plan_error(&error, &loaded))?;
    let study = capacity::study(&plan, &curves);
    study.write(&dir).map_err(|error| miette!("{error}"))?;
    let mut text = study.grid.text() + "\n";
    for scheduler in &study.summary.schedulers {
        let (rates, slo) = (&scheduler.rates, &study.summary.slo);
        text += &format!("{}: {}{}\n", scheduler.name, rates.claim(slo), rates.remark());
    }
    show::print(&format!("{text}written to {}\n", dir.display()))
}
