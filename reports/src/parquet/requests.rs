//! `requests.parquet`: one row per finished request.

use std::path::{Path, PathBuf};

use engine::metrics::RequestRecord;
use polars::prelude::Column;

use super::RowGroups;
use super::columns::{Columns, F64, Optional, Text, U32, columns};
use crate::error::Result;

columns!(RequestColumns {
    scheduler: Text,
    request: U32,
    arrival_s: F64,
    sent_s: F64,
    admitted_s: F64,
    first_token_s: F64,
    finish_s: F64,
    prompt_tokens: U32,
    output_tokens: U32,
    ttft_s: F64,
    tpot_s: Optional,
    e2e_s: F64,
    normalized_s: F64,
    mean_exit_depth: Optional,
    preemptions: U32,
});

/// Writes `requests.parquet`, request by request; several schedulers share the file.
///
/// Dropped before [`Self::finish`], it leaves no file.
pub struct RequestsWriter(RowGroups<RequestColumns>);

impl RequestsWriter {
    /// Opens the file under a temporary name.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        RowGroups::create(path).map(Self)
    }

    /// Adds a finished request.
    ///
    /// # Errors
    /// A full row group cannot be written.
    pub fn push(&mut self, scheduler: &str, record: &RequestRecord) -> Result<()> {
        self.0.push(|columns| {
            columns.scheduler.push(Some(scheduler));
            columns.request.push(record.request.0);
            columns.arrival_s.push(record.arrival.as_secs());
            columns.sent_s.push(record.sent.as_secs());
            columns.admitted_s.push(record.admitted.as_secs());
            columns.first_token_s.push(record.first_token.as_secs());
            columns.finish_s.push(record.finish.as_secs());
            columns.prompt_tokens.push(record.prompt_tokens);
            columns.output_tokens.push(record.output_tokens);
            columns.ttft_s.push(record.ttft().as_secs());
            columns.tpot_s.push(record.tpot().map(|tpot| tpot.as_secs()));
            columns.e2e_s.push(record.e2e().as_secs());
            columns.normalized_s.push(record.normalized().as_secs());
            columns.mean_exit_depth.push(record.mean_depth());
            columns.preemptions.push(record.preemptions);
        })
    }

    /// Writes what is left and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(self) -> Result<PathBuf> {
        self.0.finish()
    }
}
