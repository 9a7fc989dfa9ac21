//! Latency distributions.

use engine::metrics::{Latencies, Latency};

use super::Plot;
use crate::chart::{Axis, Figure, Panel, Series, lines};
use crate::definitions::{self as d, Definition};
use crate::report::Report;

pub(super) fn latency_cdf(report: &Report) -> Option<Plot> {
    let panels: Vec<Panel> = [
        panel(report, d::TTFT, "s", 1.0, |latencies| &latencies.ttft),
        panel(report, d::TPOT, "ms", 1e3, |latencies| &latencies.tpot),
        panel(report, d::E2E, "s", 1.0, |latencies| &latencies.e2e),
        panel(report, d::NORMALIZED, "ms/token", 1e3, |latencies| &latencies.normalized),
    ]
    .into_iter()
    .filter(|panel| !panel.is_empty())
    .collect();
    (!panels.is_empty()).then(|| Plot {
        stem: "latency_cdf",
        caption: "Share of requests that a latency does not exceed. The x axis is logarithmic where the values span more \
                  than a factor of 20.",
        figure: Figure::new("Latency distributions", panels).columns(2).panel_size(500, 300),
    })
}

fn panel(
    report: &Report,
    definition: Definition,
    unit: &str,
    factor: f64,
    pick: impl Fn(&Latencies) -> &Latency,
) -> Panel {
    let latencies = || report.schedulers.iter().map(|run| pick(&run.latencies));
    // Outliers do not decide what kind of axis the bulk gets.
    let bulk = latencies().filter(|latency| latency.count() > 0);
    let bulk = bulk.flat_map(|latency| [latency.quantile(0.02), latency.quantile(0.98)]);
    let x = Axis::log_if_wide(format!("{}, {unit}", definition.name), bulk);
    let series = report.schedulers.iter().enumerate().map(|(index, run)| {
        let cdf = pick(&run.latencies).cdf();
        Series::new(
            &run.name,
            index,
            cdf.into_iter().map(|(seconds, share)| (factor * seconds, 100.0 * share)).collect(),
        )
    });
    let y = Axis::linear("share of requests, %").within(0.0, 100.0);
    lines(definition.name, x, y, series.collect())
}
