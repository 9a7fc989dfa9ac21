//! What can go wrong while a report is written.

use std::io;
use std::path::{Path, PathBuf};

use polars::prelude::PolarsError;

/// A file that could not be written, or a plot that could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The table could not be encoded.
    #[error("cannot write the table {}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PolarsError,
    },
    /// A row that is no CSV.
    #[error("cannot write the table {}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// Why.
        source: csv::Error,
    },
    /// A value that JSON cannot hold.
    #[error("cannot write {} as JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The drawing failed.
    #[error("cannot draw the plot \"{plot}\": {reason}")]
    Plot {
        /// Its title.
        plot: String,
        /// Why.
        reason: String,
    },
}

/// What this crate's fallible functions return.
pub type Result<T> = std::result::Result<T, ReportError>;

/// Names the file in an IO error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ReportError {
    |source| ReportError::Io { path: path.to_owned(), source }
}
