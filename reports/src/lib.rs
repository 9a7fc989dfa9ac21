//! Reports: what a run measured, as tables, plots, a page, Parquet files and a timeline.

mod above;
mod aligned;
mod capacity;
pub mod chart;
mod composition;
mod confidence;
pub mod definitions;
mod error;
mod file;
mod folder;
mod format;
mod grid;
mod headline;
mod html;
mod measures;
mod parquet;
mod plots;
mod report;
mod stage_trace;
mod study;
mod summary;
mod sweep;
pub mod table;
mod timeline;
pub mod validation;
mod write;

pub use above::{ABOVE_S_E2E, is_above};
pub use aligned::{Side, aligned};
pub use capacity::{Bracket, Capacity};
pub use confidence::Confidence;
pub use error::{ReportError, Result};
pub use folder::Results;
pub use format::number;
pub use grid::{Cell, Grid};
pub use headline::headline;
pub use measures::{Measure, Measures};
pub use parquet::{
    LiveRun, LiveStep, ROW_GROUP_ROWS, RequestsWriter, StepsWriter, Timing, write_live_requests, write_live_steps,
    write_timings,
};
pub use plots::{Plot, plots};
pub use report::{Bounds, Floor, Report, SchedulerReport};
pub use stage_trace::{StageTrace, detail};
pub use study::Study;
pub use summary::summary_json;
pub use sweep::{Scalar, Sweep, SweepRow, sweep_text, write_sweep};
pub use table::summary_text;
pub use timeline::{TIMELINE_STEPS, TimelineWriter};
pub use write::{WriteOptions, write};
