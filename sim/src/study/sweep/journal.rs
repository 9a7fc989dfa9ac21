//! What has been run: a line per point, on disk before the next point begins.
//!
//! Every worker appends to a file of its own under `points/`, and reads those of all. A line holds the key of what the point
//! was computed from, so lines of another scenario are passed over, and a changed scenario runs only what is new in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::point::Measured;
use super::points::Points;
use super::shard::Shard;
use crate::json_lines::{self, JournalError, JsonLines, at};
use crate::run::facts::REVISION;

/// A worker's file.
#[derive(Debug)]
pub struct Journal(JsonLines);

/// The lines of all files, by key.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, PointLine>);

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct PointLine {
    key: String,
    revision: String,
    schedulers: Vec<Measured>,
}

impl Journal {
    /// Opens a shard's file for appending and locks it.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open(dir: &Path, shard: Shard) -> Result<Self, JournalError> {
        JsonLines::open(Self::path(dir, shard)).map(Self)
    }

    /// Where a folder's journals are.
    pub(super) fn folder(dir: &Path) -> PathBuf {
        dir.join("points")
    }

    /// A shard's file.
    pub fn path(dir: &Path, shard: Shard) -> PathBuf {
        Self::folder(dir).join(format!("{}.jsonl", shard.file_stem()))
    }

    /// Reads every file under the folders' `points/`; a folder without one has no lines.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(dirs: &[PathBuf]) -> Result<Known, JournalError> {
        let mut known = Known::default();
        for dir in dirs {
            let folder = Self::folder(dir);
            let listed = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                listed => listed.map_err(at(&folder))?,
            };
            let mut files: Vec<PathBuf> =
                listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(at(&folder))?;
            // Of two lines with one key the same one must win on every machine.
            files.sort();
            for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")) {
                for entry in json_lines::read::<PointLine>(path)? {
                    known.0.entry(entry.key.clone()).or_insert(entry);
                }
            }
        }
        Ok(known)
    }

    /// Appends a point and waits until it is on disk.
    pub(super) fn append(&self, key: &str, schedulers: Vec<Measured>) -> Result<(), JournalError> {
        self.0.append(&PointLine { key: key.into(), revision: REVISION.into(), schedulers })
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_files_of_their_own_and_read_all() {
        let dir = tempfile::tempdir().unwrap();
        let second: Shard = "1/2".parse().unwrap();
        for (shard, key) in [(Shard::WHOLE, "a"), (second, "b")] {
            Journal::open(dir.path(), shard).unwrap().append(key, Vec::new()).unwrap();
        }
        let known = Journal::read(&[dir.path().into()]).unwrap();
        assert!(known.has("a") && known.has("b") && !known.has("c"));
    }
}
