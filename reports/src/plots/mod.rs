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

#[cfg(test)]
#[path = "../../examples/sample_report/run.rs"]
mod run;

#[cfg(test)]
mod tests {
    use engine::scheduler::Mode;

    use super::{plots, run};
    use crate::capacity::{Bracket, Capacity};
    use crate::report::{Bounds, Floor, Report, SchedulerReport};

    #[test]
    fn labels_neither_touch_nor_leave_the_picture() {
        for schedulers in [1, 3, 5, 12] {
            for (count, rate_per_s) in [(0, None), (3, None), (200, None), (200, Some(9.0))] {
                let report = report(schedulers, count, rate_per_s);
                for plot in plots(&report) {
                    plot.figure.check_labels();
                }
            }
        }
    }

    fn report(schedulers: u32, requests: u32, rate_per_s: Option<f64>) -> Report {
        let schedulers = (0..schedulers).map(|index| {
            let mode = if index == 0 { Mode::ContinuousBatching } else { Mode::Refill { min_coda_batch: index } };
            let recorder = run::serve(mode, &mut run::arrivals(requests, rate_per_s), &mut |_, _| ());
            let name = format!("a long name of a refill scheduler, K={index}");
            let speedup = 1.0 + 0.04 * f64::from(index);
            let bounds = Bounds {
                baseline: index == 0,
                speedup,
                steady_speedup: None,
                s_dec: speedup * (1.03 - 0.02 * f64::from(index % 4)),
                s_e2e: speedup * (1.02 - 0.02 * f64::from(index % 4)),
                s_roof: None,
                realised_share: 0.9,
            };
            let floor = Floor { throughput_tokens_per_s: 1e4, speedup: 1.02 * speedup, realised_share: 0.95 };
            let capacity = Capacity {
                requests_per_s: Some(7.0),
                rates: Bracket { carried_per_s: Some(7.0), ..Bracket::default() },
                slo: "TTFT at p99 at most 1 s".into(),
                speedup: Some(speedup),
                realised_share: Some(0.97 + 0.02 * f64::from(index % 4)),
            };
            let run = SchedulerReport::new(name, mode, recorder.metrics(), recorder.latencies().clone(), 4096);
            match rate_per_s {
                None => SchedulerReport { bounds: Some(bounds), floor: Some(floor), ..run },
                Some(_) => SchedulerReport { capacity: Some(capacity), ..run },
            }
        });
        Report {
            title: "labels".into(),
            facts: Vec::new(),
            notes: Vec::new(),
            scenario_yaml: String::new(),
            online: rate_per_s.is_some(),
            schedulers: schedulers.collect(),
            confidence: None,
        }
    }
}
