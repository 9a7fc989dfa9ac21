//! Queues and KV over time.

use super::{Plot, over_time};
use crate::chart::{Axis, Figure};
use crate::report::Report;

pub(super) fn load(report: &Report) -> Option<Plot> {
    let waiting = Axis::linear("requests").from_zero();
    let resident = Axis::linear("sequences").from_zero();
    let blocks = Axis::linear("blocks in use, %").from_zero();
    let panels = vec![
        over_time(report, "Requests waiting for admission", waiting, |_, point| Some(point.prompt_queue)),
        over_time(report, "Resident sequences", resident, |_, point| Some(point.resident)),
        over_time(report, "Core KV pool", blocks, |index, point| {
            Some(100.0 * point.kv_used_blocks / report.schedulers[index].kv_total_blocks.max(1) as f64)
        }),
    ];
    let empty = panels.iter().all(|panel| panel.is_empty());
    (!empty).then(|| Plot {
        stem: "queues_and_kv",
        caption: "Means over stretches of the run.",
        figure: Figure::new("Queues and KV over time", panels).panel_size(860, 220),
    })
}
