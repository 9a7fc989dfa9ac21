//! A file that takes its name only when it is whole.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::TracesError;

/// Writes a whole file at once.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TracesError> {
    let pending = PendingFile::create(path)?;
    pending.handle().write_all(bytes).map_err(|source| TracesError::Io { path: path.into(), source })?;
    pending.finish()
}

/// A file under a temporary name beside its own; removed unless [`Self::finish`] is reached.
pub(crate) struct PendingFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Arc<File>,
    finished: bool,
}

impl PendingFile {
    /// Opens the temporary file.
    pub(crate) fn create(path: &Path) -> Result<Self, TracesError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The process id keeps apart two runs that write to the same place, until the last rename wins.
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&temporary).map_err(|source| TracesError::Io { path: path.into(), source })?;
        Ok(Self { path: path.into(), temporary, file: Arc::new(file), finished: false })
    }

    /// A handle to write through.
    pub(crate) fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> Result<(), TracesError> {
        fs::rename(&self.temporary, &self.path)
            .map_err(|source| TracesError::Io { path: self.path.clone(), source })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to tell: the error that led here is already on its way.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
