//! Files that exist only when they are whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Result, at};

/// A file under a temporary name beside its own; it takes its name in [`Self::finish`] and is removed if that is not reached.
#[derive(Debug)]
pub(crate) struct PendingFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Arc<File>,
    finished: bool,
}

impl PendingFile {
    /// Opens the temporary file; its folder is created if it is missing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The process id keeps two runs that write to the same place apart until the last rename wins.
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let file = Arc::new(File::create(&temporary).map_err(at(path))?);
        Ok(Self { path: path.to_owned(), temporary, file, finished: false })
    }

    /// A second handle, for writers that keep what they write to.
    pub(crate) fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// The name that it will have.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> Result<PathBuf> {
        fs::rename(&self.temporary, &self.path).map_err(at(&self.path))?;
        self.finished = true;
        Ok(std::mem::take(&mut self.path))
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing is left to tell it to: the error that led here is already on its way.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file at once.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    let mut file = PendingFile::create(path)?;
    file.write_all(bytes).map_err(at(path))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_file_that_is_not_finished_leaves_nothing() -> TestResult {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("new/table");
        let mut file = PendingFile::create(&path)?;
        file.write_all(b"half")?;
        drop(file);
        assert_eq!(fs::read_dir(folder.path().join("new"))?.count(), 0);
        write_whole(&path, b"whole")?;
        assert_eq!(fs::read(&path)?, b"whole");
        assert_eq!(fs::read_dir(folder.path().join("new"))?.count(), 1);
        Ok(())
    }

    #[test]
    fn errors_name_the_path() -> TestResult {
        let folder = tempfile::tempdir()?;
        let occupied = folder.path().join("occupied");
        fs::write(&occupied, b"")?;
        let error = write_whole(&occupied.join("inside"), b"").expect_err("a file is no folder");
        assert!(error.to_string().contains("occupied"), "{error}");
        Ok(())
    }
}
