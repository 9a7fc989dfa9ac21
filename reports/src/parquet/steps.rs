//! `steps.parquet`: one row per executor call.

use std::path::{Path, PathBuf};

use engine::batch::Stage;
use engine::event_loop::Step;
use polars::prelude::Column;

use super::RowGroups;
use super::columns::{Columns, F64, Text, U32, U64, columns};
use crate::composition::write_composition;
use crate::error::Result;

columns!(StepColumns {
    scheduler: Text,
    step: U64,
    stage: Text,
    rows: U32,
    tokens: U64,
    context: U64,
    depths: Text,
    exits: U32,
    started_s: F64,
    finished_s: F64,
    recurrent_queue: U32,
    coda_queue: U32,
    decode_queue: U32,
    prompt_queue: U32,
    resident: U32,
    kv_used_blocks: U32,
    kv_cached_blocks: U32,
    hit_tokens: U32,
    evicted_pages: U32,
});

/// Writes `steps.parquet`, step by step; several schedulers share the file.
///
/// Dropped before [`Self::finish`], it leaves no file.
pub struct StepsWriter {
    groups: RowGroups<StepColumns>,
    depths: String,
}

impl StepsWriter {
    /// Opens the file under a temporary name.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { groups: RowGroups::create(path)?, depths: String::new() })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// A full row group cannot be written.
    pub fn push(&mut self, scheduler: &str, step: &Step) -> Result<()> {
        let (outcome, batch, queues) = (&step.outcome, &step.outcome.batch, &step.settled.queues);
        let depths = (batch.stage == Stage::Core).then(|| {
            self.depths.clear();
            write_composition(batch, &mut self.depths);
            self.depths.as_str()
        });
        self.groups.push(|columns| {
            columns.scheduler.push(Some(scheduler));
            columns.step.push(batch.id);
            columns.stage.push(Some(batch.stage.name()));
            columns.rows.push(batch.rows.len() as u32);
            columns.tokens.push(batch.rows.iter().map(|row| u64::from(row.span.count)).sum());
            columns.context.push(batch.rows.iter().map(|row| u64::from(row.context())).sum());
            columns.depths.push(depths);
            columns.exits.push(step.settled.exits);
            columns.started_s.push(outcome.started.as_secs());
            columns.finished_s.push(outcome.finished.as_secs());
            columns.recurrent_queue.push(queues.recurrent);
            columns.coda_queue.push(queues.coda);
            columns.decode_queue.push(queues.decode);
            columns.prompt_queue.push(queues.prompt);
            columns.resident.push(queues.resident);
            columns.kv_used_blocks.push(queues.kv_used_blocks);
            columns.kv_cached_blocks.push(queues.kv_cached_blocks);
            columns.hit_tokens.push(step.settled.reuse.hit_tokens);
            columns.evicted_pages.push(step.settled.reuse.evicted_pages);
        })
    }

    /// Writes what is left and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(self) -> Result<PathBuf> {
        self.groups.finish()
    }
}
