//! How deep tokens go.

use super::Plot;
use crate::chart::{Axis, BarGroup, Bars, Figure, bars};
use crate::report::Report;

pub(super) fn exit_depths(report: &Report) -> Option<Plot> {
    let deepest = report.schedulers.iter().map(|run| run.metrics.exit_depths.len().saturating_sub(1)).max()?;
    let panel = bars(
        "",
        "exit depth, loops",
        Axis::linear("share of decoded tokens, %"),
        Bars {
            categories: (1..=deepest).map(|depth| depth.to_string()).collect(),
            groups: groups(report, deepest),
            marks: Vec::new(),
            format: |share| format!("{share:.1}"),
        },
    );
    (deepest > 0).then(|| Plot {
        stem: "exit_depths",
        caption: "Exit depths of decoded tokens (all but each request's first, which prefill makes at full depth).",
        figure: Figure::new("Exit depths", vec![panel]).panel_size(860, 300),
    })
}

/// One group per distribution: replayed exits are the same whatever the scheduler.
fn groups(report: &Report, deepest: usize) -> Vec<BarGroup> {
    let mut groups: Vec<BarGroup> = Vec::new();
    for (style, run) in report.schedulers.iter().enumerate() {
        let mut values: Vec<Option<f64>> =
            run.exit_shares().iter().map(|&(_, tokens, share)| (tokens > 0).then_some(100.0 * share)).collect();
        values.resize(deepest, None);
        match groups.iter_mut().find(|group| group.values == values) {
            Some(group) => group.name = format!("{}, {}", group.name, run.name),
            None => groups.push(BarGroup { name: run.name.clone(), style, values }),
        }
    }
    groups
}
