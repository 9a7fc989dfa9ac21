//! What became of the records of an imported file.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::Place;

/// How many malformed records are listed one by one.
const LISTED: usize = 10;

/// What is wrong with one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// The field; empty if the record as a whole is meant.
    pub field: &'static str,
    /// What it must be.
    pub must: &'static str,
    /// What it is.
    pub got: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, field, must, got } = self;
        match *field {
            "" => write!(f, "{place}: {must}, got {got}"),
            field => write!(f, "{place}, field `{field}`: {must}, got {got}"),
        }
    }
}

/// Counts every record once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    kept: u64,
    left_out: BTreeMap<&'static str, u64>,
    malformed: BTreeMap<(&'static str, &'static str), u64>,
    first_problems: Vec<Problem>,
    ignored: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// All records that were looked at: kept, left out and malformed.
    pub fn read(&self) -> u64 {
        self.kept + self.left_out.values().sum::<u64>() + self.malformed()
    }

    /// Records that became requests.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Well-formed records that became none, by reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.left_out.iter().map(|(reason, count)| (*reason, *count))
    }

    /// Records that could not be understood.
    pub fn malformed(&self) -> u64 {
        self.malformed.values().sum()
    }

    /// Those by field and reason, the commonest first.
    pub fn malformed_by_reason(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut all: Vec<_> = self.malformed.iter().map(|((field, must), count)| (*field, *must, *count)).collect();
        all.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        all
    }

    /// The first ten of those.
    pub fn first_problems(&self) -> &[Problem] {
        &self.first_problems
    }

    /// Values that a workload has no place for, by field.
    pub fn ignored(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.ignored.iter().map(|(field, count)| (*field, *count))
    }

    pub(super) fn keep(&mut self) {
        self.kept += 1;
    }

    pub(super) fn leave_out(&mut self, reason: &'static str) {
        *self.left_out.entry(reason).or_default() += 1;
    }

    pub(super) fn malform(&mut self, problem: Problem) {
        *self.malformed.entry((problem.field, problem.must)).or_default() += 1;
        if self.first_problems.len() < LISTED {
            self.first_problems.push(problem);
        }
    }

    pub(super) fn ignore(&mut self, field: &'static str, count: u64) {
        *self.ignored.entry(field).or_default() += count;
    }
}
