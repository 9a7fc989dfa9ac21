//! The files that a command reads, which nothing that it writes may replace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use files::{Clash, check_outputs};

use crate::scenario::Scenario;
use crate::scenario::load::Loaded;

/// Files that are read.
#[derive(Clone, Debug, Default)]
pub struct Inputs(BTreeSet<PathBuf>);

impl Inputs {
    /// A scenario's file, and those that it names.
    pub fn of(loaded: &Loaded) -> Self {
        let mut inputs = Self::default();
        inputs.add(&loaded.path);
        inputs.add_scenario(&loaded.scenario);
        inputs
    }

    /// One more file.
    pub fn add(&mut self, path: &Path) {
        self.0.insert(path.into());
    }

    /// The files that a scenario names.
    pub fn add_scenario(&mut self, scenario: &Scenario) {
        self.0.extend(scenario.files().map(Path::to_path_buf));
    }

    /// The files of both.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// Checks that none of them is among the outputs.
    ///
    /// # Errors
    /// The first output that is.
    pub fn check(&self, outputs: impl IntoIterator<Item = PathBuf>) -> Result<(), Clash> {
        check_outputs(&self.0, outputs)
    }
}
