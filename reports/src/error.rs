//! What can go wrong while a report is written.

use std::io;
use std::path::{Path, PathBuf};

use polars::prelude::PolarsError;

/// A file that could not be written, or a plot that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ReportError {
    /// The file system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The table could not be encoded.
    #[error("cannot write the table {}: {source}", path.display())]
    Parquet { path: PathBuf, source: PolarsError },
    /// A row that is no CSV.
    #[error("cannot write the table {}: {source}", path.display())]
    Csv { path: PathBuf, source: csv::Error },
    /// A value that JSON cannot hold.
    #[error("cannot write {} as JSON: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// The drawing failed.
    #[error("cannot draw the plot \"{plot}\": {reason}")]
    Plot { plot: String, reason: String },
}

/// What this crate's fallible functions return.
pub type Result<T> = std::result::Result<T, ReportError>;

/// Names the file in an IO error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ReportError {
    |source| ReportError::Io { path: path.to_owned(), source }
}
