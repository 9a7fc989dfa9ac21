//! Reports: what a run measured, as tables, plots, a page, Parquet files and a timeline.

mod composition;
mod error;
mod file;
mod parquet;
mod stage_trace;

pub use error::{ReportError, Result};
pub use parquet::{ROW_GROUP_ROWS, RequestsWriter, StepsWriter};
pub use stage_trace::{StageTrace, detail};
