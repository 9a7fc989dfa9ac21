//! Whose requests a file holds. A comparison's `requests.parquet` has every request once for each scheduler, and a protocol's
//! once more for each run and repeat: replayed whole, it would be several times the load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::TracesError;

/// The other columns by which a protocol's file tells its runs apart; of other files they mean nothing.
pub(super) const RUN: &str = "run";
pub(super) const REPEAT: &str = "repeat";

/// Names that an error lists.
const LISTED: usize = 12;

/// The schedulers of a file, and the runs of each.
#[derive(Default)]
pub(super) struct Parts(BTreeMap<String, BTreeSet<String>>);

impl Parts {
    /// A row's scheduler, and its run and repeat if there are such columns.
    pub(super) fn add(&mut self, scheduler: &str, [run, repeat]: [Option<&str>; 2]) {
        let run = match (run, repeat) {
            (Some(run), Some(repeat)) => format!("{run}, repeat {repeat}"),
            (Some(one), None) | (None, Some(one)) => one.into(),
            (None, None) => String::new(),
        };
        match self.0.get_mut(scheduler) {
            Some(runs) if runs.contains(&run) => {}
            Some(runs) => {
                runs.insert(run);
            }
            None => {
                self.0.insert(scheduler.into(), [run].into());
            }
        }
    }

    /// The scheduler whose rows are taken: the one that is asked for, or the only one.
    ///
    /// # Errors
    /// Nobody says which, or the file does not have it, or has its requests several times.
    pub(super) fn choose(&self, path: &Path, asked: Option<&str>) -> Result<String, TracesError> {
        let known = || listed(self.0.keys());
        let chosen = match asked {
            Some(name) => self.0.get_key_value(name).ok_or_else(|| TracesError::UnknownScheduler {
                path: path.into(),
                name: name.into(),
                known: known(),
            })?,
            None if self.0.len() > 1 => {
                return Err(TracesError::ManySchedulers { path: path.into(), count: self.0.len(), known: known() });
            }
            None => self.0.first_key_value().ok_or_else(|| TracesError::EmptyFile { path: path.into() })?,
        };
        match chosen {
            (scheduler, runs) if runs.len() > 1 => {
                let (scheduler, runs) = (scheduler.clone(), listed(runs.iter()));
                Err(TracesError::ManyRuns { path: path.into(), scheduler, runs })
            }
            (scheduler, _) => Ok(scheduler.clone()),
        }
    }
}

/// Names with commas; the first of many.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(LISTED);
    let mut listed = names.take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more > 0 {
        listed += &format!(" and {more} more");
    }
    listed
}
