//! Protocols: runs of one base scenario, predicted and measured, saved run by run.
//!
//! Everything is checked and predicted first. Live runs follow in the protocol's order, each on disk before the next begins; the
//! report is made from the journal and the predictions, so it is the same however often measuring was stopped.

mod jobs;
mod journal;
mod outline;
mod predict;
mod protocol;
mod raw;
mod report;
mod runs;
mod session;

pub use journal::journal_file;
pub use outline::outline;
pub use predict::Predicted;
pub use protocol::{Protocol, ProtocolError, RunEntry};
pub use runs::{PlannedRun, inputs, runs};
pub use session::{MeasureError, Progress, Session};
