//! Numbers that check themselves, so that a wrong one is reported under the number.

use engine::whole::Whole;
use serde::{Deserialize, Serialize};

/// A number of things, from 1 to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Whole", into = "u32")]
pub struct Count<const MAX: u32 = { u32::MAX }>(pub u32);

/// How often something is run: each repeat is a whole run of every scheduler.
pub type Repeats = Count<10_000>;

/// CPU threads; 0 for one a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Whole", into = "u32")]
pub struct Threads(pub u32);

impl<const MAX: u32> TryFrom<Whole> for Count<MAX> {
    type Error = String;

    fn try_from(Whole(number): Whole) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(count) if (1..=MAX).contains(&count) => Ok(Self(count)),
            _ => Err(format!("must be a whole number from 1 to {MAX}, got {number}")),
        }
    }
}

impl<const MAX: u32> From<Count<MAX>> for u32 {
    fn from(count: Count<MAX>) -> Self {
        count.0
    }
}

impl Threads {
    /// More than any machine has cores.
    pub const MAX: u32 = 1024;
}

impl TryFrom<Whole> for Threads {
    type Error = String;

    fn try_from(Whole(number): Whole) -> Result<Self, String> {
        let threads = u32::try_from(number).ok().filter(|threads| *threads <= Self::MAX);
        threads.map(Self).ok_or_else(|| format!("must be a whole number from 0 to {}, got {number}", Self::MAX))
    }
}

impl From<Threads> for u32 {
    fn from(threads: Threads) -> Self {
        threads.0
    }
}

/// A share, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(pub f64);

impl Default for Share {
    /// All of it.
    fn default() -> Self {
        Self(1.0)
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("a share must be between 0 and 1, got {number}"))
        }
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.0
    }
}

/// The share of a datasheet's figure that is reached. None reaches nothing: times would have no end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Reached(pub f64);

impl Reached {
    /// The least.
    const MIN: f64 = 1e-6;
}

impl Default for Reached {
    /// All of it.
    fn default() -> Self {
        Self(1.0)
    }
}

impl TryFrom<f64> for Reached {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        if (Self::MIN..=1.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("a share that is reached must be between {} and 1, got {number:?}", Self::MIN))
        }
    }
}

impl From<Reached> for f64 {
    fn from(share: Reached) -> Self {
        share.0
    }
}

/// How many times of something, above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Factor(pub f64);

impl TryFrom<f64> for Factor {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        if number.is_finite() && number > 0.0 {
            Ok(Self(number))
        } else {
            Err(format!("must be finite and above 0, got {number}"))
        }
    }
}

impl From<Factor> for f64 {
    fn from(factor: Factor) -> Self {
        factor.0
    }
}
