//! Parquet files, written in row groups while a run goes on, so that a million rows need a few megabytes.

mod columns;
mod live;
mod requests;
mod steps;
mod timings;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polars::prelude::{BatchedWriter, DataFrame, ParquetWriter, PolarsResult};

pub use live::{LiveRun, LiveStep, write_live_requests, write_live_steps};
pub use requests::RequestsWriter;
pub use steps::StepsWriter;
pub use timings::{Timing, write_timings};

use files::PendingFile;

use crate::error::{ReportError, Result};
use crate::file::{create, finish};
use columns::Columns;

/// Rows that are held in memory and written together.
pub const ROW_GROUP_ROWS: usize = 65_536;

/// A Parquet file that grows by row groups. Dropped before [`Self::finish`], it leaves no file.
struct RowGroups<C> {
    columns: C,
    rows: usize,
    writer: BatchedWriter<Arc<File>>,
    file: PendingFile,
}

impl<C: Columns> RowGroups<C> {
    fn create(path: &Path) -> Result<Self> {
        let mut columns = C::new();
        let file = create(path)?;
        let mut open = || {
            let empty = DataFrame::new_infer_height(columns.take())?;
            // One thread: a row group takes milliseconds, and a pool's buffers outweigh it.
            ParquetWriter::new(file.handle()).set_parallel(false).batched(empty.schema())
        };
        let writer = open().map_err(|source| ReportError::Parquet { path: path.to_owned(), source })?;
        Ok(Self { columns, rows: 0, writer, file })
    }

    /// Adds the row that `fill` appends to every column.
    fn push(&mut self, fill: impl FnOnce(&mut C)) -> Result<()> {
        fill(&mut self.columns);
        self.rows += 1;
        if self.rows == ROW_GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.rows = 0;
        let table = DataFrame::new_infer_height(self.columns.take());
        let written = table.and_then(|table| self.writer.write_batch(&table));
        self.named(written)
    }

    /// Writes what is left and gives the file its name.
    fn finish(mut self) -> Result<PathBuf> {
        if self.rows > 0 {
            self.flush()?;
        }
        let written = self.writer.finish();
        self.named(written)?;
        finish(self.file)
    }

    fn named<T>(&self, result: PolarsResult<T>) -> Result<T> {
        result.map_err(|source| ReportError::Parquet { path: self.file.path().to_owned(), source })
    }
}
