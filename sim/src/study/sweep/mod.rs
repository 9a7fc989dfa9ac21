//! Sweeps: a scenario's fields varied over lists of values, every point run, all of them in one table.
//!
//! A sweep first completes its journal, then reads the table from it: what is written is the same whether the points were run
//! at once, after a kill, or on several machines.

mod collect;
mod journal;
mod point;
mod points;
mod shard;
mod shared;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

pub use collect::collect;
pub use journal::Journal;
pub use points::{PointError, Points};
pub use shard::Shard;

use crate::json_lines::JournalError;
use crate::parallel::try_map;
use crate::run::output::bar;
use shared::Shared;

/// Why a sweep has no result.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum SweepError {
    /// A point is no scenario.
    #[error(transparent)]
    Point(#[from] PointError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A folder to merge has no journals.
    #[error("{}: {reason}; name folders that `sim sweep` wrote to", dir.display())]
    NoJournals { dir: PathBuf, reason: &'static str },
    /// Points have not been run.
    #[error("{missing} of {count} points have not been run: {some}. Run `sim sweep` on this scenario to complete them")]
    Missing { missing: usize, count: usize, some: String },
}

/// Runs the points of a shard that the journals under `dir` do not have yet, and returns how many those were.
///
/// A finished point is on disk before the next one begins, so that a kill loses only what was running.
///
/// # Errors
/// See [`SweepError`]; points that were finished until then stay finished.
pub fn complete(points: &Points, dir: &Path, shard: Shard) -> Result<usize, SweepError> {
    let journal = Journal::open(dir, shard)?;
    let known = Journal::read(&[dir.to_owned()])?;
    let missing: Vec<usize> = shard.points(points.len()).filter(|&index| !known.has(points.key(index))).collect();
    known.warn_of_other_revisions(points, shard);
    let shared = Shared::default();
    let bar = Cleared(bar("sweep", missing.len() as u64, "points"));
    try_map(missing.len(), |job| {
        let index = missing[job];
        let schedulers = point::run(&points.plan(index)?, &shared).map_err(|error| points.blame(index, error))?;
        journal.append(points.key(index), schedulers)?;
        bar.0.inc(1);
        Ok::<_, SweepError>(())
    })?;
    Ok(missing.len())
}

/// A bar that leaves nothing behind.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
