//! Whole numbers as people write them: `1000`, `1e3` and `1000.0` are the same one.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A whole number that was read; whoever needs it within a range says within which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole(pub i128);

/// Beyond what any field holds.
const FLOAT_END: f64 = 18_446_744_073_709_551_616.0;

/// Reads a field of an unsigned type: `#[serde(deserialize_with = "whole::read")]`.
///
/// # Errors
/// It is no whole number, or the type cannot hold it.
pub fn read<'de, T: TryFrom<i128>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    within(Whole::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// The same of a field that may be missing: with `default` beside it.
///
/// # Errors
/// As [`read`].
pub fn read_optional<'de, T: TryFrom<i128>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let number = Option::<Whole>::deserialize(deserializer)?;
    number.map(within).transpose().map_err(D::Error::custom)
}

/// The same of a command's option: `#[arg(value_parser = whole::parse::<u64>)]`.
///
/// # Errors
/// As [`read`].
pub fn parse<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    within(text.parse()?)
}

fn within<T: TryFrom<i128>>(Whole(number): Whole) -> Result<T, String> {
    let most = u128::MAX >> (128 - 8 * size_of::<T>());
    T::try_from(number).map_err(|_| format!("must be a whole number from 0 to {most}, got {number}"))
}

/// What is said of everything else.
fn needed(got: impl fmt::Display) -> String {
    format!("a whole number is needed, got {got}")
}

impl TryFrom<f64> for Whole {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let whole = number.fract() == 0.0 && number.abs() < FLOAT_END;
        if whole { Ok(Self(number as i128)) } else { Err(needed(format_args!("{number:?}"))) }
    }
}

impl FromStr for Whole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.replace('_', "");
        let float = || digits.parse::<f64>().ok().and_then(|number| Self::try_from(number).ok());
        let number = digits.parse().ok().map(Self).or_else(float);
        // 010 is ten to some and eight to others.
        let ambiguous = matches!(digits.trim_start_matches('-').as_bytes(), [b'0', b'0'..=b'9', ..]);
        number.filter(|_| !ambiguous).ok_or_else(|| needed(format_args!("`{text}`")))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        Ok(Whole(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        Whole::try_from(number).map_err(E::custom)
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<Whole, E> {
        Err(E::custom(needed(if yes { "yes (true)" } else { "no (false)" })))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_unit<E: Error>(self) -> Result<Whole, E> {
        Err(E::custom(needed("nothing")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_in_several_ways() {
        let check = |text: &str, number: i128| assert_eq!(text.parse(), Ok(Whole(number)), "{text}");
        check("1000", 1000);
        check("1e3", 1000);
        check("1.0", 1);
        check("-4", -4);
        check("1_000", 1000);
        check("18446744073709551615", u64::MAX.into());
        for text in ["1.5", "yes", "", "010", "inf", "nan", "1e300", "0x10", "1e-3"] {
            assert_eq!(text.parse::<Whole>(), Err(format!("a whole number is needed, got `{text}`")));
        }
        assert_eq!(parse::<u8>("256"), Err("must be a whole number from 0 to 255, got 256".into()));
        assert_eq!(parse(&u64::MAX.to_string()), Ok(u64::MAX));
        assert_eq!(Whole::try_from(2.5), Err("a whole number is needed, got 2.5".into()));
    }
}
