//! What live runs did, beside what was predicted: request by request and step by step.

use std::path::{Path, PathBuf};

use engine::batch::Stage;
use engine::metrics::RequestRecord;
use polars::prelude::Column;

use super::RowGroups;
use super::columns::{Columns, F64, Optional, Text, U32, columns};
use crate::error::Result;

columns!(RequestColumns {
    run: Text,
    scheduler: Text,
    repeat: U32,
    request: U32,
    prompt_tokens: U32,
    output_tokens: U32,
    arrival_s: F64,
    ttft_s: F64,
    e2e_s: F64,
    predicted_ttft_s: F64,
    predicted_e2e_s: F64,
});

columns!(StepColumns {
    run: Text,
    scheduler: Text,
    repeat: U32,
    step: U32,
    stage: Text,
    rows: U32,
    took_ms: F64,
    predicted_ms: Optional,
});

/// A live run, by its names in the report.
#[derive(Clone, Copy, Debug)]
pub struct LiveRun<'a> {
    /// The protocol's run.
    pub run: &'a str,
    /// The scheduler.
    pub scheduler: &'a str,
    /// From 0.
    pub repeat: u32,
}

/// A step on both sides.
#[derive(Clone, Copy, Debug)]
pub struct LiveStep {
    /// From 0 in each run.
    pub step: u32,
    /// What was run.
    pub stage: Stage,
    /// Its rows.
    pub rows: u32,
    /// Device time.
    pub took_ms: f64,
    /// The model's; `None` if the two sides made other batches.
    pub predicted_ms: Option<f64>,
}

/// Writes finished requests, each as it was measured and as it was predicted; whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_live_requests<'a>(
    path: &Path,
    requests: impl IntoIterator<Item = (LiveRun<'a>, &'a RequestRecord, &'a RequestRecord)>,
) -> Result<PathBuf> {
    let mut groups: RowGroups<RequestColumns> = RowGroups::create(path)?;
    for (live, measured, predicted) in requests {
        groups.push(|columns| {
            columns.run.push(Some(live.run));
            columns.scheduler.push(Some(live.scheduler));
            columns.repeat.push(live.repeat);
            columns.request.push(measured.request.0);
            columns.prompt_tokens.push(measured.prompt_tokens);
            columns.output_tokens.push(measured.output_tokens);
            columns.arrival_s.push(measured.arrival.as_secs());
            columns.ttft_s.push(measured.ttft().as_secs());
            columns.e2e_s.push(measured.e2e().as_secs());
            columns.predicted_ttft_s.push(predicted.ttft().as_secs());
            columns.predicted_e2e_s.push(predicted.e2e().as_secs());
        })?;
    }
    groups.finish()
}

/// Writes the steps of offline runs; whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_live_steps<'a>(path: &Path, steps: impl IntoIterator<Item = (LiveRun<'a>, LiveStep)>) -> Result<PathBuf> {
    let mut groups: RowGroups<StepColumns> = RowGroups::create(path)?;
    for (live, LiveStep { step, stage, rows, took_ms, predicted_ms }) in steps {
        groups.push(|columns| {
            columns.run.push(Some(live.run));
            columns.scheduler.push(Some(live.scheduler));
            columns.repeat.push(live.repeat);
            columns.step.push(step);
            columns.stage.push(Some(stage.name()));
            columns.rows.push(rows);
            columns.took_ms.push(took_ms);
            columns.predicted_ms.push(predicted_ms);
        })?;
    }
    groups.finish()
}
