//! Numbers of a scenario that check themselves, so that a wrong one is reported under the number.

use engine::whole::Whole;
use serde::{Deserialize, Serialize};

use crate::error::TracesError;

/// The most tokens that a prompt or an output may have: positions stay within 32 bits with room to spare.
pub const MAX_TOKENS: u32 = 1 << 30;

/// The most requests of a workload.
pub const MAX_REQUESTS: u32 = 100_000_000;

/// Defines a newtype over f64 with a check.
macro_rules! checked_f64 {
    ($(#[$doc:meta])* $name:ident, $valid:expr, $must:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// The number.
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = TracesError;

            fn try_from(got: f64) -> Result<Self, TracesError> {
                let valid: fn(f64) -> bool = $valid;
                if valid(got) { Ok(Self(got)) } else { Err(TracesError::Number { must: $must, got }) }
            }
        }

        impl From<$name> for f64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }
    };
}

/// Defines a newtype over u32 with a check; any whole number is read, so that a negative one gets the same message.
macro_rules! checked_u32 {
    ($(#[$doc:meta])* $name:ident, $max:expr, $must:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "Whole", into = "u32")]
        pub struct $name(u32);

        impl $name {
            /// The number.
            pub fn get(self) -> u32 {
                self.0
            }
        }

        impl TryFrom<i64> for $name {
            type Error = TracesError;

            fn try_from(got: i64) -> Result<Self, TracesError> {
                Self::try_from(Whole(got.into()))
            }
        }

        impl TryFrom<Whole> for $name {
            type Error = TracesError;

            fn try_from(Whole(got): Whole) -> Result<Self, TracesError> {
                match u32::try_from(got) {
                    Ok(number) if (1..=$max).contains(&number) => Ok(Self(number)),
                    _ => Err(TracesError::Number { must: $must, got: got as f64 }),
                }
            }
        }

        impl From<$name> for u32 {
            fn from(number: $name) -> Self {
                number.0
            }
        }
    };
}

checked_f64!(
    /// Requests per second.
    RatePerS,
    |rate| rate.is_finite() && rate > 0.0,
    "a rate must be finite and positive"
);

checked_f64!(
    /// A length of time in seconds.
    Seconds,
    |seconds| seconds.is_finite() && seconds > 0.0,
    "a duration must be finite and positive"
);

checked_f64!(
    /// How long a client thinks between an answer and its next request, in seconds.
    ThinkSeconds,
    |seconds| (0.0..=1e9).contains(&seconds),
    "a time to think must be between 0 and 1e9 seconds"
);

checked_f64!(
    /// The shape of gamma-distributed gaps: 1 is Poisson, less is burstier, more is steadier.
    Burstiness,
    |shape| (0.01..=1000.0).contains(&shape),
    "a burstiness must be between 0.01 and 1000 (1 is Poisson, less comes in bursts)"
);

checked_f64!(
    /// How likely a token keeps the depth of the token before it.
    Correlation,
    |rho| (0.0..=0.999).contains(&rho),
    "a correlation of exit depths must be between 0 and 0.999"
);

checked_f64!(
    /// A probability.
    Probability,
    |p| (0.0..=1.0).contains(&p),
    "a probability must be between 0 and 1"
);

checked_u32!(
    /// A number of tokens.
    TokenCount,
    MAX_TOKENS,
    "a number of tokens must be between 1 and 1,073,741,824"
);

checked_u32!(
    /// A number of clients.
    Concurrency,
    1_000_000,
    "a concurrency must be between 1 and 1,000,000 clients"
);

checked_u32!(
    /// A number of groups of requests.
    GroupCount,
    MAX_REQUESTS,
    "a number of groups must be between 1 and 100,000,000"
);

checked_u32!(
    /// A number of requests.
    RequestCount,
    MAX_REQUESTS,
    "a number of requests must be between 1 and 100,000,000"
);

/// Whole numbers from here on are not all floats.
const EXACT: f64 = (1u64 << 53) as f64;

/// A float that is a whole number, as other tools write integers of a column that may lack some: `655.0`.
pub(crate) fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// The same of a text.
pub(crate) fn parse_whole(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| whole(text.parse().ok()?))
}

impl TokenCount {
    /// Of a constant, which is not checked again.
    pub(crate) const fn new_const(tokens: u32) -> Self {
        assert!(tokens >= 1 && tokens <= MAX_TOKENS, "a number of tokens is at least 1");
        Self(tokens)
    }

    /// The context that the paper serves: prompt and output together.
    pub const PAPER_CONTEXT: Self = Self(16_384);
}

impl Probability {
    /// Always.
    pub const CERTAIN: Self = Self(1.0);
}

impl Burstiness {
    /// Memoryless gaps.
    pub const POISSON: Self = Self(1.0);
}

impl Default for ThinkSeconds {
    /// The next request follows at once.
    fn default() -> Self {
        Self(0.0)
    }
}

impl Default for Correlation {
    /// Independent tokens.
    fn default() -> Self {
        Self(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_float_is_a_whole_number() {
        let check = |text, expect| assert_eq!(parse_whole(text), expect, "{text}");
        check("655", Some(655));
        check("655.0", Some(655));
        check("1e3", Some(1000));
        check("-2.0", Some(-2));
        for text in ["655.5", "nan", "inf", "1e300", "", "x"] {
            check(text, None);
        }
    }

    #[test]
    fn a_wrong_number_is_told_what_it_must_be() {
        let check = |error: TracesError, expect: &str| assert_eq!(error.to_string(), expect);
        check(RatePerS::try_from(-4.0).expect_err("out of range"), "a rate must be finite and positive, got -4");
        check(RatePerS::try_from(f64::NAN).expect_err("out of range"), "a rate must be finite and positive, got NaN");
        check(
            Seconds::try_from(f64::INFINITY).expect_err("out of range"),
            "a duration must be finite and positive, got inf",
        );
        check(
            TokenCount::try_from(0).expect_err("out of range"),
            "a number of tokens must be between 1 and 1,073,741,824, got 0",
        );
        check(
            Correlation::try_from(1.0).expect_err("out of range"),
            "a correlation of exit depths must be between 0 and 0.999, got 1",
        );
    }
}
