//! What has been run: a line per point, on disk before the next point begins.
//!
//! Every worker appends to a file of its own under `points/`, and reads those of all. A line holds the key of what the point
//! was computed from, so lines of another scenario are passed over, and a changed scenario runs only what is new in it. A kill
//! can leave half a line at the end of a file; it is cut off when the file is next opened.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::point::Measured;
use super::points::Points;
use super::shard::Shard;
use crate::facts::REVISION;

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two workers would write to one file.
    #[error("{}: another process is running this shard; wait for it, or use another --out", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// A worker's file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

/// The lines of all files, by key.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, Entry>);

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    key: String,
    revision: String,
    schedulers: Vec<Measured>,
}

impl Journal {
    /// Opens a shard's file for appending and locks it, cutting off half a line at its end.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open(dir: &Path, shard: Shard) -> Result<Self, JournalError> {
        let folder = dir.join("points");
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let path = folder.join(format!("{}.jsonl", shard.file_stem()));
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(at(&path))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path }),
            // Some network file systems have no locks; two workers on one shard then waste work, and lose none.
            Ok(()) | Err(TryLockError::Error(_)) => (),
        }
        let whole = whole_lines(&mut file).map_err(at(&path))?;
        file.set_len(whole).map_err(at(&path))?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Reads every file under the folders' `points/`; a folder without one has no lines.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(dirs: &[PathBuf]) -> Result<Known, JournalError> {
        let mut known = Known::default();
        for dir in dirs {
            let folder = dir.join("points");
            let listed = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                listed => listed.map_err(at(&folder))?,
            };
            let mut files: Vec<PathBuf> =
                listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(at(&folder))?;
            // Of two lines with one key the same one must win on every machine.
            files.sort();
            for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")) {
                known.read(path)?;
            }
        }
        Ok(known)
    }

    /// Appends a point and waits until it is on disk.
    pub(super) fn append(&self, key: &str, schedulers: Vec<Measured>) -> Result<(), JournalError> {
        let entry = Entry { key: key.into(), revision: REVISION.into(), schedulers };
        let mut line = serde_json::to_vec(&entry).expect("numbers and names are JSON");
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(at(&self.path))
    }
}

impl Known {
    /// Whether a point has been run.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn schedulers(&self, key: &str) -> Option<&[Measured]> {
        self.0.get(key).map(|entry| entry.schedulers.as_slice())
    }

    /// Says so on stderr if points that are used were run by another revision of the program.
    pub(super) fn warn_of_other_revisions(&self, points: &Points, shard: Shard) {
        let used = shard.points(points.len()).filter_map(|index| self.0.get(points.key(index)));
        let other: Vec<_> = used.filter(|entry| entry.revision != REVISION).collect();
        if let Some(entry) = other.first() {
            eprintln!(
                "{} points were run by revision {} and are kept; remove the folder `points` to run them anew with {REVISION}",
                other.len(),
                entry.revision
            );
        }
    }

    fn read(&mut self, path: &Path) -> Result<(), JournalError> {
        for line in BufReader::new(File::open(path).map_err(at(path))?).split(b'\n') {
            // What is no line of ours was cut short by a kill or a crash: the point is run again.
            if let Ok(entry) = serde_json::from_slice::<Entry>(&line.map_err(at(path))?) {
                self.0.entry(entry.key.clone()).or_insert(entry);
            }
        }
        Ok(())
    }
}

/// Bytes up to the last line's end.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at as u64 + 1))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    |source| JournalError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(journal: &Journal, key: &str) {
        journal.append(key, Vec::new()).unwrap();
    }

    #[test]
    fn half_a_line_is_cut_off_and_whole_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), Shard::WHOLE).unwrap();
        append(&journal, "a");
        journal.file.lock().unwrap().write_all(b"{\"key\": \"hal").unwrap();
        drop(journal);
        append(&Journal::open(dir.path(), Shard::WHOLE).unwrap(), "b");
        let known = Journal::read(&[dir.path().into()]).unwrap();
        assert!(known.has("a") && known.has("b"));
        let text = fs::read_to_string(dir.path().join("points/0-of-1.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn one_worker_at_a_time_has_a_shard() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Journal::open(dir.path(), Shard::WHOLE).unwrap();
        assert!(matches!(Journal::open(dir.path(), Shard::WHOLE), Err(JournalError::InUse { .. })));
        assert!(Journal::open(dir.path(), "1/2".parse().unwrap()).is_ok());
    }
}
