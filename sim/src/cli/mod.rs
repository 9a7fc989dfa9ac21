//! The command line: a scenario alone is simulated, a subcommand asks for something else.

mod accuracy;
mod capacity;
mod explore;
mod observe;
mod show;
mod simulate;
mod sweep;
mod tune;
mod validate;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use miette::{Report, miette};
use reports::Results;
use sim::run::plan::Plan;
use sim::scenario::inputs::Inputs;
use sim::scenario::load::Loaded;

/// Simulates schedulers for looped language models on the same requests, and compares them with full depth and the bounds.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    simulate: simulate::SimulateArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Asks a real model questions with known answers, and says what early exits cost in right ones.
    Accuracy(accuracy::AccuracyArguments),
    /// Searches the highest request rate that keeps the SLO, and draws latencies over the rate.
    Capacity(capacity::CapacityArguments),
    /// Compares architectures on a datasheet's GPU: costs, KV, bounds and simulated speed-ups.
    Explore(explore::ExploreArguments),
    /// Picks scheduler mode, W, K, S and the share of prompts, and says why.
    Tune(tune::TuneArguments),
    /// Runs every point of the scenario's `sweep`, or goes on where it was stopped.
    Sweep(sweep::SweepArguments),
    /// Combines what `sim sweep --shard` left in one or more folders.
    Merge(sweep::MergeArguments),
    /// Sends the scenario's requests to a server, and sets what came back beside what the model says.
    Observe(observe::ObserveArguments),
    /// Runs a protocol on the model and for real, run by run, or goes on where it was stopped.
    Validate(validate::ValidateArguments),
}

/// Which scenario, and what is changed in it; the same for every subcommand.
#[derive(Args)]
struct Chosen {
    /// The scenario, a YAML file.
    scenario: PathBuf,
    /// Sets a field of the scenario, as path.to.field=value; list entries by index.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// At most 300 requests, 120 s of arrivals, and the ends of each swept list.
    #[arg(long)]
    quick: bool,
    /// Where to write; reports/out/<scenario> by default.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Does what the arguments say; prints to stdout.
pub(crate) fn serve(arguments: Arguments) -> Result<(), Report> {
    match arguments.command {
        None => simulate::run(&arguments.simulate),
        Some(Command::Accuracy(arguments)) => accuracy::serve(&arguments),
        Some(Command::Capacity(arguments)) => capacity::serve(&arguments),
        Some(Command::Explore(arguments)) => explore::serve(&arguments),
        Some(Command::Tune(arguments)) => tune::serve(&arguments),
        Some(Command::Sweep(arguments)) => sweep::serve(&arguments),
        Some(Command::Merge(arguments)) => sweep::merge(&arguments),
        Some(Command::Observe(arguments)) => observe::serve(&arguments),
        Some(Command::Validate(arguments)) => validate::serve(&arguments),
    }
}

/// Fails, before anything is written, if a run's results in `dir` or `others` would replace a file that it reads.
fn keep(
    inputs: &Inputs,
    (results, dir): (Results, &Path),
    others: impl IntoIterator<Item = PathBuf>,
) -> Result<(), Report> {
    inputs.check(results.files(dir).into_iter().chain(others)).map_err(|clash| miette!("--out: {clash}"))
}

/// Leaves one scheduler of the plan, if one is named.
fn only(plan: &mut Plan, name: Option<&str>) -> Result<(), Report> {
    let Some(name) = name else { return Ok(()) };
    let names: Vec<_> = plan.schedulers.iter().map(|planned| planned.name.clone()).collect();
    plan.schedulers.retain(|planned| planned.name == name);
    if plan.schedulers.is_empty() {
        return Err(miette!("--only {name}: the scenario has no such scheduler; it has {}", names.join(", ")));
    }
    Ok(())
}

impl Chosen {
    fn load(&self) -> Result<Loaded, Report> {
        let mut loaded = Loaded::read(&self.scenario, &self.overrides).map_err(show::load_error)?;
        if self.quick {
            loaded.shrink();
        }
        Ok(loaded)
    }

    fn out(&self, loaded: &Loaded) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("reports/out").join(loaded.name()))
    }

    /// The folder of a study, in which nothing lies that the study reads.
    fn study(&self, loaded: &Loaded, name: &'static str, models: Option<&Path>) -> Result<PathBuf, Report> {
        let dir = self.out(loaded).join(name);
        let mut inputs = Inputs::of(loaded);
        models.into_iter().for_each(|path| inputs.add(path));
        keep(&inputs, (Results::Study(name), &dir), [])?;
        Ok(dir)
    }
}
