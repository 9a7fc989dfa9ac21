//! The plots of a report.

mod batches;
mod exits;
mod latency;
mod load;
mod speed;

use engine::metrics::SeriesPoint;

use crate::chart::{Axis, Figure, Panel, Series, lines};
use crate::report::Report;

/// A figure, its file name and what it shows.
#[derive(Clone, Debug)]
pub struct Plot {
    /// File name without extension.
    pub stem: &'static str,
    /// What to see in it.
    pub caption: &'static str,
    /// The figure.
    pub figure: Figure,
}

/// Every plot that the report has data for.
pub fn plots(report: &Report) -> Vec<Plot> {
    let plots = [
        speed::throughput(report),
        latency::latency_cdf(report),
        batches::core_batch(report),
        exits::exit_depths(report),
        load::load(report),
    ];
    plots.into_iter().flatten().collect()
}

/// Points of a curve over time; more would be finer than a plot shows.
const POINTS: usize = 160;

/// A panel with a curve per scheduler.
fn over_time(report: &Report, title: &str, y: Axis, value: impl Fn(usize, &SeriesPoint) -> Option<f64>) -> Panel {
    let series =
        report.schedulers.iter().enumerate().map(|(index, run)| {
            Series::new(&run.name, index, merged(&run.metrics.series, |point| value(index, point)))
        });
    lines(title, Axis::linear("time, s").from_zero(), y, series.collect())
}

/// Means over stretches of the run, weighted by time, at the middle of each stretch.
fn merged(series: &[SeriesPoint], value: impl Fn(&SeriesPoint) -> Option<f64>) -> Vec<(f64, f64)> {
    let stretches = series.chunks(series.len().div_ceil(POINTS).max(1));
    stretches
        .filter_map(|stretch| {
            let (mut weight, mut sum) = (0.0, 0.0);
            for point in stretch {
                if let Some(value) = value(point) {
                    let seconds = (point.end_s - point.start_s).max(1e-9);
                    weight += seconds;
                    sum += seconds * value;
                }
            }
            let middle = (stretch.first()?.start_s + stretch.last()?.end_s) / 2.0;
            (weight > 0.0).then_some((middle, sum / weight))
        })
        .collect()
}
