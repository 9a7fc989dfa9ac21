//! `traces inspect`: a workload file's statistics.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use engine::units::Depth;
use miette::{Report, miette};
use traces::file::Rows;
use traces::statistics::{ArrivalStatistics, ExitStatistics, Sorted, Statistics};

use crate::cdf;
use crate::output::{grouped, keep_inputs, print, rate, show};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The workload file, .csv or .parquet.
    input: PathBuf,
    /// Write the lengths' cumulative distribution as an SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write quantiles of the lengths as CSV: field,q,tokens.
    #[arg(long, value_name = "FILE")]
    quantiles: Option<PathBuf>,
    /// Whose requests to look at, of a file that has those of several schedulers.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Report> {
    let svg = arguments.svg.as_deref();
    if let Some(path) = svg.filter(|path| path.extension().is_none_or(|ending| ending != "svg")) {
        return Err(miette!("{}: an SVG's name ends in .svg", path.display()));
    }
    keep_inputs([&arguments.input], arguments.svg.iter().chain(&arguments.quantiles))?;
    let rows = Rows::read_all(&arguments.input, arguments.scheduler.as_deref()).map_err(show)?;
    let statistics = Statistics::of(&rows);
    let mut text = summary(&arguments.input, &statistics);
    if let Some(path) = &arguments.quantiles {
        write(path, &quantiles(&statistics))?;
        let _ = writeln!(text, "quantiles written to {}", path.display());
    }
    if let Some(path) = svg {
        let title = arguments.input.file_name().unwrap_or_default().to_string_lossy();
        write(path, &cdf::svg(&title, &statistics))?;
        let _ = writeln!(text, "plot written to {}", path.display());
    }
    print(&text)
}

fn summary(path: &Path, statistics: &Statistics) -> String {
    let mut text = format!("{}: {} requests\n\n", path.display(), grouped(statistics.prompt.count() as u64));
    let _ = writeln!(
        text,
        "{:<8}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>14}",
        "tokens", "mean", "min", "p50", "p90", "p95", "p99", "max", "sum"
    );
    for (name, numbers) in fields(statistics) {
        let _ = write!(text, "{name:<8}{:>10.1}", numbers.mean());
        for q in [0.0, 0.5, 0.9, 0.95, 0.99, 1.0] {
            let _ = write!(text, "{:>9}", numbers.quantile(q));
        }
        let sum = numbers.mean() * numbers.count() as f64;
        let _ = writeln!(text, "{:>14}", grouped(sum.round() as u64));
    }
    let correlation = |value: Option<f64>| value.map_or("undefined".into(), |value| format!("{value:+.3}"));
    let (pearson, spearman) = (correlation(statistics.pearson), correlation(statistics.spearman));
    let _ = writeln!(text, "\ncorrelation of prompt and output: Pearson {pearson}, Spearman {spearman}");
    text += &statistics.arrivals.as_ref().map_or("arrivals: none in the file\n".into(), arrivals);
    text += &statistics.exits.as_ref().map_or("exit depths: none in the file\n".into(), exits);
    text
}

fn arrivals(arrivals: &ArrivalStatistics) -> String {
    match (arrivals.rate_per_s, arrivals.gap_variation) {
        (Some(per_s), Some(variation)) => format!(
            "arrivals: {} per second over {:.1} s; gaps vary by {variation:.2} of their mean (Poisson: 1); \
             {} in the busiest 60 s\n",
            rate(per_s),
            arrivals.span_s,
            grouped(arrivals.busiest_minute.into())
        ),
        _ => "arrivals: all at once\n".into(),
    }
}

fn exits(exits: &ExitStatistics) -> String {
    let share = |count: u64| 100.0 * count as f64 / exits.tokens as f64;
    let shares: Vec<String> =
        exits.counts.iter().map(|(Depth(depth), count)| format!("{depth}: {:.2}%", share(*count))).collect();
    let correlation = exits.correlation.map_or("undefined".into(), |value| format!("{value:+.3}"));
    format!(
        "exit depths: mean {:.3} of {} decoded tokens ({:.3} of each request's first); \
         correlation with the token before {correlation}\n             {}\n",
        exits.mean,
        grouped(exits.tokens),
        exits.first_token_mean,
        shares.join(", ")
    )
}

fn quantiles(statistics: &Statistics) -> String {
    let mut text = "field,q,tokens\n".to_owned();
    let points = (0..=100).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.999]);
    let mut points: Vec<f64> = points.collect();
    points.sort_by(f64::total_cmp);
    for (name, numbers) in fields(statistics) {
        for q in &points {
            let _ = writeln!(text, "{name},{q},{}", numbers.quantile(*q));
        }
    }
    text
}

fn fields(statistics: &Statistics) -> [(&'static str, &Sorted); 3] {
    [("prompt", &statistics.prompt), ("output", &statistics.output), ("total", &statistics.total)]
}

fn write(path: &Path, text: &str) -> Result<(), Report> {
    files::write_whole(path, text.as_bytes()).map_err(|error| miette!("{}: {error}", path.display()))?;
    Ok(())
}
