//! The journal of a measurement: a table to which every group of points is appended at once, so that a run that was cut off can
//! be continued.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::schedule::Group;
use crate::error::CalibrateError;
use crate::measurements::{HEADER, Measurement, parse, to_csv};

/// How a file's first line begins.
const SETUP: &str = "# measured by calibrate: ";

/// Its last line, once the run is over.
const COMPLETE: &str = "# complete\n";

/// Rows of measurements, in memory and in a file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    rows: Vec<Measurement>,
    resumed: usize,
}

impl Journal {
    /// Starts a file, or continues one that was cut off. `setup` is a line that says what is measured.
    ///
    /// # Errors
    /// The file cannot be read or written, or it is an unfinished run of another setup.
    pub fn open(path: &Path, setup: &str) -> Result<Self, CalibrateError> {
        let unwritable = |source| CalibrateError::Write { path: path.into(), source };
        let mut text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(CalibrateError::Read { path: path.into(), source }),
        };
        // A run that was cut off while writing leaves half a line.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        let head = format!("{SETUP}{setup}\n{HEADER}\n");
        let unfinished = !text.is_empty() && !text.ends_with(COMPLETE);
        if unfinished && !text.starts_with(&head) {
            let found = text.lines().next().unwrap_or("").trim_start_matches(SETUP).to_owned();
            return Err(CalibrateError::OtherSetup { path: path.into(), found, expected: setup.into() });
        }
        if !unfinished {
            text = head;
        }
        let rows = parse(text.as_bytes(), &path.display().to_string())?.rows;
        std::fs::write(path, &text).map_err(unwritable)?;
        let file = File::options().append(true).open(path).map_err(unwritable)?;
        Ok(Self { path: path.into(), file, resumed: rows.len(), rows })
    }

    /// Whether a group's rows of a round are in the file: its last one is.
    pub fn holds(&self, round: u32, group: &Group) -> bool {
        self.rows.iter().any(|row| (row.round, row.point) == (round, group.last()))
    }

    /// Adds a group's rows, all or none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, rows: &[Measurement]) -> Result<(), CalibrateError> {
        let lines: String = rows.iter().map(to_csv).collect();
        self.write(&lines)?;
        // As the file says it, so that `fit` makes the same profile of it. The setup's line and the header come before.
        let read = parse(format!("{HEADER}\n{lines}").as_bytes(), &self.path.display().to_string())?.rows;
        let first = self.rows.len() as u64 + 3;
        self.rows.extend((first..).zip(read).map(|(line, row)| Measurement { line, ..row }));
        Ok(())
    }

    /// Says that nothing is missing: the next run starts afresh.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn complete(&mut self) -> Result<(), CalibrateError> {
        self.write(COMPLETE)
    }

    /// Everything measured.
    pub fn rows(&self) -> &[Measurement] {
        &self.rows
    }

    /// Rows that were there already.
    pub fn resumed(&self) -> usize {
        self.resumed
    }

    fn write(&mut self, text: &str) -> Result<(), CalibrateError> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        written.map_err(|source| CalibrateError::Write { path: self.path.clone(), source })
    }
}
