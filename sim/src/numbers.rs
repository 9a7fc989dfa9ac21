//! Numbers that check themselves, so that a wrong one is reported under the number.

use serde::{Deserialize, Serialize};

/// A number of things, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "u32")]
pub struct Count(pub u32);

impl TryFrom<i64> for Count {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(count) if count > 0 => Ok(Self(count)),
            _ => Err(format!("must be a whole number from 1 to {}, got {number}", u32::MAX)),
        }
    }
}

impl From<Count> for u32 {
    fn from(count: Count) -> Self {
        count.0
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
