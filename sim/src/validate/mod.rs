//! Protocols: runs of one base scenario, predicted and measured, saved run by run.
//!
//! Everything is checked and predicted first. Live runs follow in the protocol's order, each on disk before the next begins; the
//! report is made from the journal and the predictions, so it is the same however often measuring was stopped.

mod jobs;
mod journal;
mod measure;
mod outline;
mod predict;
mod protocol;
mod raw;
mod report;
mod runs;

pub use journal::journal_file;
pub use measure::{MeasureError, Progress, Session};
pub use outline::outline;
pub use predict::Predicted;
pub use protocol::{Protocol, ProtocolError, RunEntry};
pub use runs::{Run, inputs, runs};
