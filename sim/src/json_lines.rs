//! Journals: files of JSON lines, each on disk before the work goes on.
//!
//! A kill can leave half a line at the end of a file; it is cut off when the file is next opened, and passed over when it is read.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum JournalError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Two processes would write to one file.
    #[error("{}: another process is writing to it; wait for it, or use another --out", path.display())]
    InUse { path: PathBuf },
}

/// A file that this process appends to.
#[derive(Debug)]
pub(crate) struct JsonLines {
    path: PathBuf,
    file: Mutex<File>,
}

impl JsonLines {
    /// Opens a file for appending and locks it, cutting off half a line at its end; its folder is made if it is missing.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub(crate) fn open(path: PathBuf) -> Result<Self, JournalError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(at(&path))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path }),
            // Some network file systems have no locks; two workers on one file then waste work, and lose none.
            Ok(()) | Err(TryLockError::Error(_)) => (),
        }
        let whole = whole_lines(&mut file).map_err(at(&path))?;
        file.set_len(whole).map_err(at(&path))?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Appends a line and waits until it is on disk.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn append(&self, entry: &impl Serialize) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(entry).expect("numbers and names are JSON");
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(at(&self.path))
    }
}

/// The lines of a file, in order.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, JournalError> {
    let lines = BufReader::new(File::open(path).map_err(at(path))?).split(b'\n');
    // What is no line of ours was cut short by a kill or a crash: the work is done again.
    lines.filter_map(|line| line.map(|line| serde_json::from_slice(&line).ok()).map_err(at(path)).transpose()).collect()
}

/// Bytes up to the last line's end.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at as u64 + 1))
}

/// Names the file in an error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    |source| JournalError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_is_cut_off_and_whole_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/lines.jsonl");
        let lines = JsonLines::open(path.clone()).unwrap();
        lines.append(&1).unwrap();
        lines.file.lock().unwrap().write_all(b"{\"hal").unwrap();
        drop(lines);
        JsonLines::open(path.clone()).unwrap().append(&2).unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), [1, 2]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn one_process_at_a_time_writes() {
        let dir = tempfile::tempdir().unwrap();
        let _first = JsonLines::open(dir.path().join("a")).unwrap();
        assert!(matches!(JsonLines::open(dir.path().join("a")), Err(JournalError::InUse { .. })));
        assert!(JsonLines::open(dir.path().join("b")).is_ok());
    }
}
