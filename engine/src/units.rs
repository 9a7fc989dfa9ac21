//! Time in integer nanoseconds and depth in loops: the two quantities everything else is measured in.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

use crate::whole::Whole;

/// A point in time or a duration, in nanoseconds since the start of the run.
///
/// Integers, so that adding a million steps gives the same bytes on every machine. Sums stop at the end of time, after 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero.
    pub const ZERO: Self = Self(0);

    /// Rounds seconds to the nearest nanosecond; negative and NaN become zero.
    pub fn from_secs(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// Rounds microseconds to the nearest nanosecond; negative and NaN become zero.
    pub fn from_micros(micros: f64) -> Self {
        Self((micros * 1e3).round() as u64)
    }

    /// Seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds.
    pub fn as_millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// `self - other`, or zero if `other` is later.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Panics, in every build, if the other is later: a time that wraps would look like centuries.
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.checked_sub(other.0).expect("a later time is subtracted from an earlier one"))
    }
}

/// How many times the core has run for a token: 1 after the first loop, `r_max` at full depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Whole", into = "u8")]
pub struct Depth(pub u8);

impl Depth {
    /// The first loop.
    pub const FIRST: Self = Self(1);

    /// One loop deeper.
    #[inline]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl TryFrom<Whole> for Depth {
    type Error = String;

    fn try_from(Whole(loops): Whole) -> Result<Self, String> {
        u8::try_from(loops)
            .map(Self)
            .map_err(|_| format!("a depth is a number of loops up to {}, got {loops}", u8::MAX))
    }
}

impl From<Depth> for u8 {
    fn from(depth: Depth) -> Self {
        depth.0
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
