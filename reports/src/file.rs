//! Files that exist only when they are whole, with errors that name them.

use std::io::Write;
use std::path::{Path, PathBuf};

use files::PendingFile;

use crate::error::{Result, at};

/// Opens the temporary file; its folder is made if it is missing.
pub(crate) fn create(path: &Path) -> Result<PendingFile> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(at(folder))?;
    }
    PendingFile::create(path).map_err(at(path))
}

/// Gives the file its name.
pub(crate) fn finish(file: PendingFile) -> Result<PathBuf> {
    let path = file.path().to_owned();
    file.finish().map_err(at(&path))
}

/// Writes a whole file at once.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    let mut file = create(path)?;
    file.write_all(bytes).map_err(at(path))?;
    finish(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_path() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let occupied = folder.path().join("occupied");
        std::fs::write(&occupied, b"")?;
        let error = write_whole(&occupied.join("inside"), b"").expect_err("a file is no folder");
        assert!(error.to_string().contains("occupied"), "{error}");
        Ok(())
    }
}
