//! What has been measured: a line per live run, on disk before the next one begins.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::json_lines::{self, JournalError, JsonLines};
use crate::live::{LiveDevice, Served};
use crate::run::key::{FileHashes, RunInputs, hash};
use crate::run::plan::{Plan, Planned};
use crate::scenario::LiveSettings;
use crate::scenario::numbers::Count;

/// The journal of a folder.
pub fn journal_file(dir: &Path) -> PathBuf {
    dir.join("live.jsonl")
}

/// Changes when journals of older programs must not be read.
const FORMAT: u32 = 3;

/// One scheduler's live run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LiveRun {
    pub(super) key: String,
    pub(super) run: String,
    pub(super) scheduler: String,
    pub(super) repeat: u32,
    /// The program's.
    pub(super) revision: String,
    /// What ran it, as reports name it.
    pub(super) device: String,
    /// Whose exits were taken, as reports name them.
    pub(super) exits: String,
    /// Everything that it took, loading and recording included.
    pub(super) wall_s: f64,
    /// Whether the SLO was kept and the queue did not grow, if there is one.
    pub(super) carried: Option<bool>,
    pub(super) served: Served,
}

impl LiveRun {
    /// From the start of its clock to its last token, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.served.metrics.first_arrival_s + self.served.metrics.makespan_s
    }
}

/// The lines of a folder's journal, by key.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, LiveRun>);

/// The file, open for appending.
pub(super) struct Journal(JsonLines);

impl Journal {
    pub(super) fn open(dir: &Path) -> Result<Self, JournalError> {
        JsonLines::open(journal_file(dir)).map(Self)
    }

    pub(super) fn append(&self, entry: &LiveRun) -> Result<(), JournalError> {
        self.0.append(entry)
    }
}

impl Known {
    /// Reads a folder's journal; a folder without one has no lines.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(dir: &Path) -> Result<Self, JournalError> {
        match json_lines::read::<LiveRun>(&journal_file(dir)) {
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            lines => Ok(Self(lines?.into_iter().map(|entry| (entry.key.clone(), entry)).collect())),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&LiveRun> {
        self.0.get(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn insert(&mut self, entry: LiveRun) {
        self.0.insert(entry.key.clone(), entry);
    }
}

/// A hash of everything that a live run depends on. The profile is not among it, except for what the scheduler is told of it:
/// after another calibration the same measurements are set against new predictions.
pub(super) fn key(device: LiveDevice, plan: &Plan, planned: &Planned, repeat: u32, hashes: &FileHashes) -> String {
    // Blocks are in the scheduler's settings, whoever chose their number.
    let live = LiveSettings { repeats: Count(1), kv_fraction: None, ..plan.scenario.live.clone() };
    hash(&(FORMAT, device, repeat, live, RunInputs::of(plan, planned, hashes)))
}
