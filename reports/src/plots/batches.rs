//! Core batch size over time.

use super::{Plot, over_time};
use crate::chart::{Axis, Figure};
use crate::report::Report;

pub(super) fn core_batch(report: &Report) -> Option<Plot> {
    let panel = over_time(report, "", Axis::linear("rows per core step").from_zero(), |_, point| point.core_batch);
    (!panel.is_empty()).then(|| Plot {
        stem: "core_batch",
        caption: "Mean rows per core step (per forward step under continuous batching). Each core step reads the same \
                  weights, however few rows share it.",
        figure: Figure::new("Core batch size over time", vec![panel]),
    })
}
