//! `traces import`: foreign files to workload files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use engine::whole::Whole;
use miette::{Report, miette};
use traces::file::check_output;
use traces::import::{self, DepthRule, Format, Imported, Options, Source, Tally, TimeUnit, TokenCounter};
use traces::numbers::{RequestCount, TokenCount};

use crate::output::{grouped, keep_inputs, print, show, written};
use crate::progress;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The file to import; of a bundle, the .json, with its .npz beside it.
    input: PathBuf,
    /// The workload file to write, .csv or .parquet.
    output: PathBuf,
    /// sharegpt, alpaca, arxiv, azure, mooncake or bundle [default: told by the first record].
    #[arg(long)]
    format: Option<Format>,
    /// A tokenizer.json, which counts the tokens of sharegpt, alpaca and arxiv.
    #[arg(long, value_name = "JSON")]
    tokenizer: Option<PathBuf>,
    /// Keep the first N requests that pass the filter, and read no further.
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = request_count)]
    limit: Option<RequestCount>,
    /// The Continuous Depth Batching paper's filter: --min-tokens 4 --max-total-tokens 16384.
    #[arg(long, conflicts_with_all = ["min_tokens", "max_total_tokens"])]
    paper_filter: bool,
    /// Leave out requests with fewer tokens in the prompt or the output [default: 1].
    #[arg(long, allow_negative_numbers = true, value_name = "TOKENS", value_parser = token_count)]
    min_tokens: Option<TokenCount>,
    /// Leave out requests with more tokens in prompt and output together [default: no limit].
    #[arg(long, allow_negative_numbers = true, value_name = "TOKENS", value_parser = token_count)]
    max_total_tokens: Option<TokenCount>,
    /// mooncake: what its timestamps count, s, ms, us or ns [default: told by the records].
    #[arg(long, value_name = "UNIT")]
    time_unit: Option<TimeUnit>,
    /// bundle: exit where the summed probability reaches it (Ouro), or the value falls below it (Huginn).
    #[arg(long, allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// bundle: steps before it let no token exit.
    #[arg(long, value_name = "STEPS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    min_depth: u8,
    /// bundle: steps between the decision and the exit; 1 for a gate that is delayed by a loop.
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    delay: u8,
    /// Malformed records are an error (exit code 2), and nothing is written.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Report> {
    // Counting tokens takes minutes.
    check_output(&arguments.output).map_err(show)?;
    keep_inputs([&arguments.input].into_iter().chain(&arguments.tokenizer), [&arguments.output])?;
    let format = match arguments.format {
        Some(format) => format,
        None => import::detect(&arguments.input).map_err(show)?,
    };
    let imported = read(arguments, format)?;
    // A bundle names a second file.
    keep_inputs(&imported.files, [&arguments.output])?;
    for remark in &imported.remarks {
        eprintln!("{}: {remark}", arguments.input.display());
    }
    let tally = &imported.tally;
    let input = arguments.input.display();
    if tally.malformed() > 0 {
        let malformed = malformed(tally, &arguments.input);
        if arguments.strict {
            return Err(miette!("{malformed}nothing was written, because of --strict"));
        }
        eprint!("{malformed}");
    }
    if imported.rows.is_empty() {
        return Err(miette!("{input}: none of its {} records was kept\n{}", tally.read(), left_out(tally).trim_end()));
    }
    imported.rows.write(&arguments.output).map_err(show)?;
    let read = grouped(tally.read());
    let kept = grouped(tally.kept());
    print(&format!("{input}: {format}, {read} records read, {kept} kept\n{}", left_out(tally)))?;
    print(&written(&imported.rows, &arguments.output))
}

fn read(arguments: &Arguments, format: Format) -> Result<Imported, Report> {
    if format != Format::Bundle && (arguments.threshold.is_some() || arguments.min_depth > 1 || arguments.delay > 0) {
        return Err(miette!("--threshold, --min-depth and --delay are for bundles, and this is {format}"));
    }
    if format != Format::Mooncake && arguments.time_unit.is_some() {
        return Err(miette!("--time-unit is for the timestamps of mooncake, and this is {format}"));
    }
    if let Some(threshold) = arguments.threshold.filter(|threshold| !(0.0..=1e6).contains(threshold)) {
        return Err(miette!("--threshold must be a number from 0, got {threshold}"));
    }
    let counter = match &arguments.tokenizer {
        Some(path) => Some(TokenCounter::read(path).map_err(show)?),
        None => None,
    };
    let needs = || miette!("{format} holds texts: give the model's tokenizer.json with --tokenizer");
    let counter = || counter.as_ref().ok_or_else(needs);
    let source = match format {
        Format::ShareGpt => Source::ShareGpt(counter()?),
        Format::Alpaca => Source::Alpaca(counter()?),
        Format::Arxiv => Source::Arxiv(counter()?),
        Format::Azure => Source::Azure,
        Format::Mooncake => Source::Mooncake,
        Format::Bundle => {
            let (threshold, min_depth, delay) = (arguments.threshold, arguments.min_depth, arguments.delay);
            Source::Bundle(DepthRule { threshold, min_depth, delay })
        }
    };
    let filter = if arguments.paper_filter { Options::PAPER } else { Options::default() };
    let options = Options {
        limit: arguments.limit,
        min_tokens: arguments.min_tokens.unwrap_or(filter.min_tokens),
        max_total_tokens: arguments.max_total_tokens.or(filter.max_total_tokens),
        time_unit: arguments.time_unit,
    };
    let bar = progress::bar();
    let imported = import::import(&arguments.input, source, options, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    imported.map_err(show)
}

/// Well-formed records that became no request, and values without a place.
fn left_out(tally: &Tally) -> String {
    let mut text = String::new();
    for (reason, count) in tally.left_out() {
        let _ = writeln!(text, "{:>10} left out: {reason}", grouped(count));
    }
    if tally.malformed() > 0 {
        let _ = writeln!(text, "{:>10} malformed", grouped(tally.malformed()));
    }
    for (field, count) in tally.ignored() {
        let _ = writeln!(text, "{:>10} values of `{field}` not used", grouped(count));
    }
    text
}

/// The first malformed records, and all of them by reason.
fn malformed(tally: &Tally, input: &Path) -> String {
    let mut text = String::new();
    for problem in tally.first_problems() {
        let _ = writeln!(text, "{}, {problem}", input.display());
    }
    let more = tally.malformed() - tally.first_problems().len() as u64;
    if more > 0 {
        let _ = writeln!(text, "and {} more", grouped(more));
    }
    let _ = writeln!(text, "{} of {} records are malformed:", grouped(tally.malformed()), grouped(tally.read()));
    for (field, must, count) in tally.malformed_by_reason() {
        let field = if field.is_empty() { "the record".into() } else { format!("`{field}`") };
        let _ = writeln!(text, "{:>10} {field} {must}", grouped(count));
    }
    text
}

pub(crate) fn request_count(text: &str) -> Result<RequestCount, String> {
    text.parse::<Whole>().and_then(|number| RequestCount::try_from(number).map_err(|error| error.to_string()))
}

pub(crate) fn token_count(text: &str) -> Result<TokenCount, String> {
    text.parse::<Whole>().and_then(|number| TokenCount::try_from(number).map_err(|error| error.to_string()))
}
