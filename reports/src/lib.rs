//! Reports: what a run measured, as tables, plots, a page, Parquet files and a timeline.

pub mod chart;
mod composition;
pub mod definitions;
mod error;
mod file;
mod format;
mod headline;
mod html;
mod parquet;
mod plots;
mod report;
mod stage_trace;
mod summary;
pub mod table;
mod timeline;
mod write;

pub use error::{ReportError, Result};
pub use headline::headline;
pub use parquet::{ROW_GROUP_ROWS, RequestsWriter, StepsWriter};
pub use plots::{Plot, plots};
pub use report::{Bounds, Capacity, Floor, Report, SchedulerReport};
pub use stage_trace::{StageTrace, detail};
pub use summary::summary_json;
pub use table::summary_text;
pub use timeline::{TIMELINE_STEPS, TimelineWriter};
pub use write::{WriteOptions, write};
