//! `sim explore scenario.yaml`.

use std::path::{Path, PathBuf};

use clap::Args;
use engine::architecture::Architecture;
use miette::{Report, miette};
use reports::ABOVE_S_E2E;
use sim::run::plan::Plan;
use sim::scenario::load::{self, LoadError};
use sim::scenario::model::ModelChoice;
use sim::study::explore::{self, Split};

use super::{Chosen, show};

#[derive(Args)]
pub(super) struct ExploreArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// The scenario's model with other prelude-core-coda splits, such as 2-4-2,1-4-1,0-4-0.
    #[arg(long, value_delimiter = ',', value_parser = Split::parse)]
    splits: Vec<Split>,
    /// A YAML list of models, by name or as `custom: { .. }`.
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
    /// GPUs by datasheet, such as h100-80gb,h200; the scenario's device by default.
    #[arg(long, value_delimiter = ',')]
    gpus: Vec<String>,
}

pub(super) fn serve(arguments: &ExploreArguments) -> Result<(), Report> {
    let loaded = arguments.chosen.load()?;
    let dir = arguments.chosen.study(&loaded, "explore", arguments.models.as_deref())?;
    let plan = Plan::new(loaded.scenario.clone()).map_err(|error| show::plan_error(&error, &loaded))?;
    let mut models: Vec<Architecture> = arguments.splits.iter().map(|split| split.of(&plan.model)).collect();
    if let Some(path) = &arguments.models {
        models.extend(read(path)?);
    }
    if models.is_empty() {
        models.push(plan.model.clone());
    }
    let explored =
        explore::explore(&plan, &models, &arguments.gpus).map_err(|error| show::plan_error(&error, &loaded))?;
    let study = explore::study(&plan, &explored);
    study.write(&dir).map_err(|error| miette!("{error}"))?;
    let above = explored.iter().any(explore::Explored::is_above).then(|| format!("\n{ABOVE_S_E2E}\n"));
    let text = study.grid.text() + &above.unwrap_or_default();
    show::print(&format!("{text}\nwritten to {}\n", dir.display()))
}

fn read(path: &Path) -> Result<Vec<Architecture>, Report> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| show::load_error(LoadError::Read { path: path.into(), source }))?;
    let models: Vec<ModelChoice> = load::parse(&text).map_err(|source| {
        show::load_error(LoadError::Yaml { path: path.into(), text: text.clone(), source: Box::new(source) })
    })?;
    models.iter().map(|model| model.architecture().map_err(|error| miette!("{error}"))).collect()
}
