//! A calibration's raw times.

use std::path::{Path, PathBuf};

use polars::prelude::Column;

use super::RowGroups;
use super::columns::{Columns, F64, Text, U32, columns};
use crate::error::Result;

columns!(TimingColumns {
    stage: Text,
    batch: U32,
    context: U32,
    loops: U32,
    tokens: U32,
    round: U32,
    calm: U32,
    time_ms: F64,
    min_ms: F64,
    max_ms: F64,
});

/// A row: the repeats of one launch in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// What was launched.
    pub stage: &'static str,
    /// Sequences.
    pub batch: u32,
    /// KV entries that each reads; for prefill, those before the chunk.
    pub context: u32,
    /// Core applications of a whole step; 0 otherwise.
    pub loops: u32,
    /// New tokens per sequence of a prefill; 0 otherwise.
    pub tokens: u32,
    /// Round through the grid.
    pub round: u32,
    /// Launches behind the figures that did not wait for a core.
    pub calm: u32,
    /// Mean time.
    pub time_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Writes raw times as a Parquet file, whole or not at all.
///
/// # Errors
/// It cannot be written.
pub fn write_timings(path: &Path, timings: impl IntoIterator<Item = Timing>) -> Result<PathBuf> {
    let mut groups: RowGroups<TimingColumns> = RowGroups::create(path)?;
    for Timing { stage, batch, context, loops, tokens, round, calm, time_ms, min_ms, max_ms } in timings {
        groups.push(|columns| {
            columns.stage.push(Some(stage));
            columns.batch.push(batch);
            columns.context.push(context);
            columns.loops.push(loops);
            columns.tokens.push(tokens);
            columns.round.push(round);
            columns.calm.push(calm);
            columns.time_ms.push(time_ms);
            columns.min_ms.push(min_ms);
            columns.max_ms.push(max_ms);
        })?;
    }
    groups.finish()
}
