//! Latency distributions.

use engine::metrics::{Latencies, Latency};

use super::Plot;
use crate::chart::{Axis, Figure, Panel, Series, lines};
use crate::definitions::{self as d, Definition};
use crate::format::scale;
use crate::report::Report;

pub(super) fn latency_cdf(report: &Report) -> Option<Plot> {
    let panels: Vec<Panel> = [
        panel(report, d::TTFT, |latencies| &latencies.ttft),
        panel(report, d::TPOT, |latencies| &latencies.tpot),
        panel(report, d::E2E, |latencies| &latencies.e2e),
        panel(report, d::NORMALIZED, |latencies| &latencies.normalized),
    ]
    .into_iter()
    .filter(|panel| !panel.is_empty())
    .collect();
    (!panels.is_empty()).then(|| Plot {
        stem: "latency_cdf",
        caption: "Share of requests whose latency is at most x. An x axis is logarithmic where the values spread widely.",
        figure: Figure::new("Latency distributions", panels).columns(2).panel_size(500, 300),
    })
}

fn panel(report: &Report, definition: Definition, pick: impl Fn(&Latencies) -> &Latency) -> Panel {
    let latencies = || report.schedulers.iter().map(|run| pick(&run.latencies)).filter(|latency| latency.count() > 0);
    let (factor, prefix) = scale(latencies().map(|latency| latency.quantile(0.5)));
    let label = format!("{}, {prefix}{}", definition.name, definition.unit);
    let x = if latencies().any(is_wide) { Axis::log(label) } else { Axis::linear(label) };
    let series = report.schedulers.iter().enumerate().map(|(index, run)| {
        let cdf = pick(&run.latencies).cdf();
        let start = cdf.first().map(|&(seconds, _)| (seconds, 0.0));
        let points = start.into_iter().chain(cdf).map(|(seconds, share)| (factor * seconds, 100.0 * share));
        Series::new(&run.name, index, points.collect())
    });
    let y = Axis::linear("share of requests, %").within(0.0, 100.0);
    lines("", x, y, series.collect())
}

/// Its bulk spans more than a factor of 30, or its tail reaches 12 times beyond the median.
fn is_wide(latency: &Latency) -> bool {
    let at = |q| latency.quantile(q);
    at(0.9) > 30.0 * at(0.1) || at(1.0) > 12.0 * at(0.5)
}
