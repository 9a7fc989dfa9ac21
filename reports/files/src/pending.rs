//! Files that exist only when they are whole.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::{Builder, TempPath};

/// A file under a temporary name beside its own; it takes its name in [`Self::finish`] and is removed if that is not reached.
#[derive(Debug)]
pub struct PendingFile {
    path: PathBuf,
    temporary: TempPath,
    file: Arc<File>,
}

impl PendingFile {
    /// Opens the temporary file, in a folder that is there.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut prefix = OsString::from(".");
        prefix.push(path.file_name().unwrap_or_default());
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        // Others may read it, as any file that this user makes: a temporary file alone would be its owner's.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let (file, temporary) = builder.tempfile_in(folder)?.into_parts();
        Ok(Self { path: path.to_owned(), temporary, file: Arc::new(file) })
    }

    /// A second handle, for writers that keep what they write to.
    pub fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// The name that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The file system's; nothing is left of it then.
    pub fn finish(self) -> io::Result<PathBuf> {
        self.temporary.persist(&self.path).map_err(|failed| failed.error)?;
        Ok(self.path)
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

/// Writes a whole file at once, and returns its name.
///
/// # Errors
/// The file system's; what was there under the name is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut file = PendingFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_not_finished_leaves_nothing() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("table");
        let files = || Ok::<_, io::Error>(fs::read_dir(folder.path())?.count());
        let mut file = PendingFile::create(&path)?;
        file.write_all(b"half")?;
        drop(file);
        assert_eq!(files()?, 0);
        write_whole(&path, b"whole")?;
        assert_eq!((fs::read(&path)?.as_slice(), files()?), (&b"whole"[..], 1));
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_it_as_any_file() -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let (plain, whole) = (folder.path().join("plain"), folder.path().join("whole"));
        fs::write(&plain, b"")?;
        write_whole(&whole, b"")?;
        let mode = |path: &Path| Ok::<_, io::Error>(fs::metadata(path)?.permissions().mode());
        assert_eq!(mode(&whole)?, mode(&plain)?);
        Ok(())
    }
}
