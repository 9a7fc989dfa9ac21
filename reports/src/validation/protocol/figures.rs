//! Measured beside predicted: speed-ups offline, latencies over the rate online.

use super::{Protocol, ProtocolRun};
use crate::chart::{Axis, BarGroup, Bars, Figure, Mark, Panel, Series, bars, lines};
use crate::format::ratio;
use crate::plots::Plot;
use crate::validation::{MetricPair, SchedulerValidation, Validation};

/// What is plotted over the rate: metric, title, and the factor to its unit.
const OVER_RATE: [(&str, &str, f64); 4] = [
    ("normalized_mean_s", "mean normalized latency, ms/token", 1e3),
    ("normalized_p99_s", "p99 normalized latency, ms/token", 1e3),
    ("ttft_mean_s", "mean TTFT, ms", 1e3),
    ("tpot_mean_s", "mean TPOT, ms", 1e3),
];

pub(super) fn plots(protocol: &Protocol) -> Vec<Plot> {
    [offline(protocol), over_rate(protocol)].into_iter().flatten().collect()
}

/// A panel per offline run, a category per scheduler that is not the baseline.
fn offline(protocol: &Protocol) -> Option<Plot> {
    let panels = protocol.measured().filter(|(_, validation)| !validation.online).map(|(run, validation)| {
        let sped =
            |scheduler: &&SchedulerValidation| scheduler.metric("s_e2e").is_some_and(|bound| bound.predicted > 1.0);
        let schedulers: Vec<_> = validation.schedulers.iter().filter(sped).collect();
        let values = |metric: &str, side: fn(&MetricPair) -> f64| -> Vec<Option<f64>> {
            schedulers.iter().map(|scheduler| scheduler.metric(metric).map(side)).collect()
        };
        let group = |name: &str, style, side: fn(&MetricPair) -> f64| BarGroup {
            name: name.into(),
            style,
            values: values("speedup", side),
        };
        let chart = Bars {
            categories: schedulers.iter().map(|scheduler| scheduler.name.clone()).collect(),
            groups: vec![group("predicted", 0, |pair| pair.predicted), group("measured", 1, |pair| pair.measured)],
            marks: vec![Mark { name: "S_e2e".into(), style: 2, values: values("s_e2e", |pair| pair.measured) }],
            format: ratio,
        };
        bars(&run.name, "", Axis::linear("speed-up over full depth, ×"), chart)
    });
    let panels: Vec<Panel> = panels.filter(|panel| !panel.is_empty()).collect();
    (!panels.is_empty()).then(|| Plot {
        stem: "offline_speedup",
        caption: "Offline speed-up over full-depth continuous batching, predicted and measured, with the bound S_e2e as measured.",
        figure: Figure::new("Offline speed-up", panels).columns(2).panel_size(480, 300),
    })
}

/// A row of panels per group of online runs; each scheduler has a line per side.
fn over_rate(protocol: &Protocol) -> Option<Plot> {
    let online: Vec<_> = protocol.measured().filter(|(_, validation)| validation.online).collect();
    let mut groups: Vec<&str> = online.iter().map(|(run, _)| run.group.as_str()).collect();
    groups.dedup();
    let panels: Vec<Panel> = groups
        .iter()
        .flat_map(|group| {
            let runs: Vec<_> = online.iter().filter(|(run, _)| run.group == *group).collect();
            OVER_RATE.map(|(metric, title, scale)| {
                let x = Axis::linear("requests/s").from_zero();
                lines(format!("{group}: {title}"), x, Axis::log(title), series(&runs, metric, scale))
            })
        })
        .collect();
    (!panels.is_empty()).then(|| Plot {
        stem: "latency_over_rate",
        caption: "Latency over the request rate, predicted and measured: every scheduler at shares of its own predicted capacity.",
        figure: Figure::new("Latency over the request rate", panels).columns(2).panel_size(500, 300),
    })
}

fn series(runs: &[&(&ProtocolRun, &Validation)], metric: &str, scale: f64) -> Vec<Series> {
    let mut names: Vec<&str> = Vec::new();
    for scheduler in runs.iter().flat_map(|(_, validation)| &validation.schedulers) {
        if !names.contains(&scheduler.name.as_str()) {
            names.push(&scheduler.name);
        }
    }
    let side = |name: &str, style: usize, side: &str, value: fn(&MetricPair) -> f64| {
        let schedulers = runs.iter().flat_map(|(_, validation)| &validation.schedulers);
        let points = schedulers
            .filter(|scheduler| scheduler.name == name)
            .filter_map(|scheduler| Some((scheduler.load?.rate_per_s, scale * value(scheduler.metric(metric)?))));
        let mut points: Vec<_> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(format!("{name}, {side}"), style, points)
    };
    let sides = names.iter().enumerate().flat_map(|(index, name)| {
        [
            side(name, 2 * index, "predicted", |pair| pair.predicted),
            side(name, 2 * index + 1, "measured", |pair| pair.measured),
        ]
    });
    sides.collect()
}
