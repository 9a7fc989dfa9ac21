//! `traces generate`: the workload that a scenario would draw, as a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use engine::executor::ExitSource;
use engine::units::Depth;
use engine::whole::{self, Whole};
use miette::{Report, miette};
use traces::exits::preset::{Preset, PresetName};
use traces::exits::table::DepthTable;
use traces::file::Rows;
use traces::file::write::{Contents, FileWriter, RecordedRequest};
use traces::numbers::{Burstiness, Correlation, GroupCount, Probability, RatePerS, RequestCount, Seconds, TokenCount};
use traces::{
    AllowedExits, ArrivalsConfig, ExitsConfig, LengthsConfig, SharedPrefixes, TracesError, Workload, WorkloadConfig,
};

use crate::import::{request_count, token_count};
use crate::output::{keep_inputs, print, show, written};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The workload file to write, .csv or .parquet.
    output: PathBuf,
    /// sharegpt, alpaca, arxiv, or PROMPT:OUTPUT tokens for all alike.
    #[arg(long, value_parser = lengths, required_unless_present = "file")]
    lengths: Option<LengthsConfig>,
    /// Take the lengths from a workload file instead.
    #[arg(long, conflicts_with = "lengths")]
    file: Option<PathBuf>,
    /// Whose requests to take, of a --file that has those of several schedulers.
    #[arg(long, value_name = "NAME", requires = "file")]
    scheduler: Option<String>,
    /// How many requests; a file's end or --duration-s may end the workload earlier.
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = request_count)]
    requests: Option<RequestCount>,
    /// When requests arrive.
    #[arg(long, value_enum, default_value_t = Arrivals::Offline)]
    arrivals: Arrivals,
    /// Mean rate of poisson and gamma arrivals.
    #[arg(long, allow_negative_numbers = true, value_parser = number::<RatePerS>, required_if_eq_any = [("arrivals", "poisson"), ("arrivals", "gamma")])]
    rate_per_s: Option<RatePerS>,
    /// Shape of gamma arrivals: 1 is poisson, less comes in bursts.
    #[arg(long, allow_negative_numbers = true, value_parser = number::<Burstiness>, required_if_eq("arrivals", "gamma"))]
    burstiness: Option<Burstiness>,
    /// Cut off poisson and gamma arrivals from here on.
    #[arg(long, allow_negative_numbers = true, value_parser = number::<Seconds>)]
    duration_s: Option<Seconds>,
    /// A preset's name like ouro-q0.2, or probabilities like 2:0.25,3:0.55,4:0.2 [default: no exit depths].
    #[arg(long, value_parser = exits)]
    exits: Option<ExitsArgument>,
    /// How likely a token keeps the depth of the token before it.
    #[arg(long, allow_negative_numbers = true, value_parser = number::<Correlation>, requires = "exits")]
    correlation: Option<Correlation>,
    /// Put one of so many shared texts in front of prompts.
    #[arg(long, allow_negative_numbers = true, value_parser = group_count, requires = "prefix_tokens")]
    prefix_groups: Option<GroupCount>,
    /// Tokens of each shared text.
    #[arg(long, allow_negative_numbers = true, value_parser = token_count, requires = "prefix_groups")]
    prefix_tokens: Option<TokenCount>,
    /// How probable it is that a prompt begins with a shared text.
    #[arg(long, allow_negative_numbers = true, value_parser = number::<Probability>, default_value = "1", requires = "prefix_groups")]
    prefix_share: Probability,
    /// Generated lengths with a longer sum are drawn again.
    #[arg(long, allow_negative_numbers = true, value_parser = token_count, default_value = "16384")]
    max_total_tokens: TokenCount,
    /// Decides every number; the scenario with the same seed draws the same workload.
    #[arg(long, default_value_t = 0, value_parser = whole::parse::<u64>)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Arrivals {
    Offline,
    Poisson,
    Gamma,
    /// The times of --file.
    Trace,
}

#[derive(Clone)]
enum ExitsArgument {
    Preset(PresetName),
    Table(DepthTable),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Report> {
    keep_inputs(&arguments.file, [&arguments.output])?;
    let arrivals = arrivals(&arguments)?;
    let shared_prefixes = arguments
        .prefix_groups
        .zip(arguments.prefix_tokens)
        .map(|(groups, prefix_tokens)| SharedPrefixes { groups, prefix_tokens, share: arguments.prefix_share });
    let config = WorkloadConfig {
        lengths: arguments.lengths,
        file: arguments.file,
        scheduler: arguments.scheduler,
        requests: arguments.requests,
        arrivals,
        max_total_tokens: arguments.max_total_tokens,
        shared_prefixes,
    };
    let correlation = arguments.correlation.unwrap_or_default();
    let mut allowed = AllowedExits::ANY;
    let exits = match arguments.exits {
        None => ExitsConfig::FullDepth,
        Some(ExitsArgument::Preset(name)) => {
            allowed.family = name.preset().family;
            ExitsConfig::Preset { name, correlation }
        }
        Some(ExitsArgument::Table(depths)) => ExitsConfig::Distribution { depths, correlation },
    };
    let workload = Workload::new(&config, &exits, allowed, arguments.seed).map_err(show)?;
    let contents = Contents {
        arrivals: arrivals != ArrivalsConfig::Offline,
        cancels: false,
        pieces: workload.has_pieces(),
        exits: exits != ExitsConfig::FullDepth,
    };
    write(&workload, contents, &arguments.output).map_err(show)?;
    let rows = Rows::read_all(&arguments.output, None).map_err(show)?;
    print(&written(&rows, &arguments.output))
}

/// Request by request: a workload of any length needs one row group's memory.
fn write(workload: &Workload, contents: Contents, path: &std::path::Path) -> Result<(), TracesError> {
    let mut writer = FileWriter::create(path, contents)?;
    let mut depths: Vec<Depth> = Vec::new();
    for arrival in workload.arrivals() {
        let (request, output_tokens) = (arrival.request, arrival.output_tokens);
        depths.clear();
        if contents.exits {
            depths.extend((1..output_tokens).map(|token| workload.exits().exit_depth(request.id, token)));
        }
        writer.push(&RecordedRequest {
            prompt_tokens: request.prompt_tokens,
            output_tokens,
            arrival: request.arrival,
            cancel_after: None,
            pieces: &workload.pieces(request.id),
            exit_depths: &depths,
        })?;
    }
    writer.finish()
}

fn arrivals(arguments: &Arguments) -> Result<ArrivalsConfig, Report> {
    let &Arguments { rate_per_s, burstiness, duration_s, .. } = arguments;
    let unused = |name: &str| {
        miette!("{name} says nothing about these arrivals: leave it out, or choose others with --arrivals")
    };
    match arguments.arrivals {
        Arrivals::Offline | Arrivals::Trace if rate_per_s.is_some() => Err(unused("--rate-per-s")),
        Arrivals::Offline | Arrivals::Trace if duration_s.is_some() => Err(unused("--duration-s")),
        Arrivals::Offline | Arrivals::Trace | Arrivals::Poisson if burstiness.is_some() => Err(unused("--burstiness")),
        Arrivals::Offline => Ok(ArrivalsConfig::Offline),
        Arrivals::Trace => Ok(ArrivalsConfig::Trace),
        Arrivals::Poisson | Arrivals::Gamma => {
            let rate_per_s = rate_per_s.ok_or_else(|| miette!("these arrivals need --rate-per-s"))?;
            Ok(match burstiness {
                Some(burstiness) => ArrivalsConfig::Gamma { rate_per_s, burstiness, duration_s },
                None => ArrivalsConfig::Poisson { rate_per_s, duration_s },
            })
        }
    }
}

fn lengths(text: &str) -> Result<LengthsConfig, String> {
    match text {
        "sharegpt" => Ok(LengthsConfig::Sharegpt),
        "alpaca" => Ok(LengthsConfig::Alpaca),
        "arxiv" => Ok(LengthsConfig::Arxiv),
        other => {
            let (prompt, output) =
                other.split_once(':').ok_or("must be sharegpt, alpaca, arxiv or PROMPT:OUTPUT, like 512:128")?;
            Ok(LengthsConfig::Fixed { prompt_tokens: token_count(prompt)?, output_tokens: token_count(output)? })
        }
    }
}

fn exits(text: &str) -> Result<ExitsArgument, String> {
    let show = |error: TracesError| error.to_string();
    if !text.contains(':') {
        let known = Preset::named(text).is_some();
        let hint = if known { "" } else { "; or give probabilities like 2:0.25,3:0.55,4:0.2" };
        return PresetName::try_from(text.to_owned())
            .map(ExitsArgument::Preset)
            .map_err(|error| format!("{error}{hint}"));
    }
    let mut table = BTreeMap::new();
    for entry in text.split(',') {
        let must = || format!("must list depths and probabilities like 2:0.25,3:0.55,4:0.2, and has `{entry}`");
        let (depth, probability) = entry.split_once(':').ok_or_else(must)?;
        let depth = Depth(depth.trim().parse().map_err(|_| must())?);
        let probability: f64 = probability.trim().parse().map_err(|_| must())?;
        if table.insert(depth, Probability::try_from(probability).map_err(show)?).is_some() {
            return Err(format!("has the depth {depth} twice"));
        }
    }
    DepthTable::try_from(table).map(ExitsArgument::Table).map_err(show)
}

fn group_count(text: &str) -> Result<GroupCount, String> {
    text.parse::<Whole>().and_then(|number| GroupCount::try_from(number).map_err(|error| error.to_string()))
}

fn number<T: TryFrom<f64, Error = TracesError>>(text: &str) -> Result<T, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    T::try_from(number).map_err(|error| error.to_string())
}
