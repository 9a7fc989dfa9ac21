//! In which unit a trace counts its timestamps, where its format does not say: seconds that are taken for milliseconds make a
//! load a thousand times too dense.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde_json::Value;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// s
    Seconds,
    /// ms
    Milliseconds,
    /// us
    Microseconds,
    /// ns
    Nanoseconds,
}

/// Mean rates, in requests per second, between which a recorded trace is believed to be. The densest public traces of one
/// service have some tens per second.
const BELIEVED_PER_S: RangeInclusive<f64> = 1e-3..=100.0;

/// The years 2001 to 2096 in seconds since 1970: what is as large as this counts from 1970.
const SINCE_1970_S: RangeInclusive<f64> = 1e9..=4e9;

impl TimeUnit {
    /// All of them, the largest first.
    pub const NAMED: [(&str, Self); 4] =
        [("s", Self::Seconds), ("ms", Self::Milliseconds), ("us", Self::Microseconds), ("ns", Self::Nanoseconds)];

    /// Nanoseconds in one.
    pub(super) fn ns(self) -> u32 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1000,
            Self::Nanoseconds => 1,
        }
    }

    fn seconds(self) -> f64 {
        f64::from(self.ns()) * 1e-9
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMED.iter().find(|(_, unit)| unit == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = Self::NAMED.iter().find(|(name, _)| *name == text).map(|(_, unit)| *unit);
        unit.ok_or_else(|| "a unit of time is one of s, ms, us, ns".into())
    }
}

/// A timestamp in a unit that is not known yet, in two parts: as one float, nanoseconds since 1970 would lose digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timestamp {
    whole: i64,
    /// From 0 to below 1.
    fraction: f64,
}

impl Timestamp {
    /// So many whole units.
    pub(super) fn whole(whole: i64) -> Self {
        Self { whole, fraction: 0.0 }
    }

    /// A number of JSON; `None` if it is none, or beyond 64 bits.
    pub(super) fn parse(value: Option<&Value>) -> Option<Self> {
        let value = value?;
        if let Some(whole) = value.as_i64() {
            return Some(Self::whole(whole));
        }
        let number = value.as_f64().filter(|number| number.abs() < 9e18)?;
        Some(Self { whole: number.floor() as i64, fraction: number - number.floor() })
    }

    pub(super) fn in_ns(self, unit: TimeUnit) -> i128 {
        let fraction = (self.fraction * f64::from(unit.ns())).round();
        i128::from(self.whole) * i128::from(unit.ns()) + fraction as i128
    }

    fn number(self) -> f64 {
        self.whole as f64 + self.fraction
    }
}

/// What a trace's timestamps look like, and what else its records have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    count: u64,
    least: f64,
    most: f64,
    fractions: bool,
    chat_ids: bool,
}

/// A unit, and what the user should be told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) unit: TimeUnit,
    pub(super) remark: Option<String>,
}

impl Seen {
    /// Another record's timestamp; `chat_id` says that it has one, as traces of chat sessions in seconds do.
    pub(super) fn add(&mut self, time: Timestamp, chat_id: bool) {
        let number = time.number();
        (self.least, self.most) =
            if self.count == 0 { (number, number) } else { (self.least.min(number), self.most.max(number)) };
        self.count += 1;
        self.fractions |= time.fraction != 0.0;
        self.chat_ids |= chat_id;
    }

    /// The unit: the one that is given; else what the records tell; else milliseconds for whole numbers.
    ///
    /// # Errors
    /// Numbers with fractions that make sense both as seconds and as milliseconds.
    pub(super) fn unit(&self, given: Option<TimeUnit>) -> Result<Told, String> {
        use TimeUnit::{Milliseconds, Seconds};
        if let Some(unit) = given {
            return Ok(self.told(unit, None));
        }
        if let Some(unit) = self.since_1970() {
            let why = (unit != Milliseconds).then(|| "since 1970".into());
            return Ok(self.told(unit, why));
        }
        if self.chat_ids {
            return Ok(self.told(Seconds, Some("as in other traces with `chat_id`".into())));
        }
        let as_ms = self.rate_per_s(Milliseconds);
        match as_ms.filter(|_| self.fractions) {
            None => Ok(self.told(Milliseconds, None)),
            Some(rate) if rate > *BELIEVED_PER_S.end() => {
                let why = format!("as milliseconds they would be {} requests per second", short(rate));
                Ok(self.told(Seconds, Some(why)))
            }
            Some(rate) if rate * 1e-3 < *BELIEVED_PER_S.start() => {
                let why = format!("as seconds they would be {} requests per second", short(rate * 1e-3));
                Ok(self.told(Milliseconds, Some(why)))
            }
            Some(rate) => Err(format!(
                "its timestamps have fractions, and could be seconds ({} requests per second) or milliseconds ({}): say which with \
                 --time-unit s or --time-unit ms",
                short(rate * 1e-3),
                short(rate)
            )),
        }
    }

    /// With a reason to be told if the unit was not the format's own, and a doubt if the rate makes no sense.
    fn told(&self, unit: TimeUnit, why: Option<String>) -> Told {
        let name = unit.plural();
        let doubt = self.rate_per_s(unit).filter(|rate| !BELIEVED_PER_S.contains(rate)).map(|rate| {
            format!(
                "{} requests within {} s make no sense ({} per second): the timestamps are taken as {name}; if they are not, say \
                 what they are with --time-unit (s, ms, us or ns)",
                self.count,
                short((self.most - self.least) * unit.seconds()),
                short(rate)
            )
        });
        let reason = why.map(|why| format!("the timestamps are taken as {name}, {why}; --time-unit says otherwise"));
        Told { unit, remark: doubt.or(reason) }
    }

    /// The mean rate in a unit; `None` where all requests come at once.
    fn rate_per_s(&self, unit: TimeUnit) -> Option<f64> {
        let span_s = (self.most - self.least) * unit.seconds();
        (span_s > 0.0).then(|| (self.count - 1) as f64 / span_s)
    }

    /// The unit in which all timestamps lie between 2001 and 2096.
    fn since_1970(&self) -> Option<TimeUnit> {
        let units = TimeUnit::NAMED.into_iter().map(|(_, unit)| unit);
        let fits = |number: f64, unit: TimeUnit| SINCE_1970_S.contains(&(number * unit.seconds()));
        units.into_iter().find(|unit| self.count > 0 && fits(self.least, *unit) && fits(self.most, *unit))
    }
}

/// Three significant digits.
fn short(number: f64) -> String {
    let decimals = (2.0 - number.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(numbers: &[f64], chat_id: bool) -> Seen {
        let mut seen = Seen::default();
        for number in numbers {
            seen.add(Timestamp::parse(Some(&(*number).into())).expect("a number"), chat_id);
        }
        seen
    }

    #[test]
    fn the_records_tell_the_unit() {
        use TimeUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
        let check = |numbers: &[f64], chat_id, expect, remark: &str| {
            let told = seen(numbers, chat_id).unit(None).expect("a unit");
            assert_eq!(told.unit, expect, "{numbers:?}");
            let said = told.remark.unwrap_or_default();
            assert!(said.contains(remark) && said.is_empty() == remark.is_empty(), "{numbers:?}: {said}");
        };
        check(&[0.0, 27_000.0, 30_000.0], false, Milliseconds, "");
        check(&[0.0, 0.0], false, Milliseconds, "");
        check(&[61.114, 62.5, 121.114], true, Seconds, "taken as seconds, as in other traces with `chat_id`");
        check(&[61.0, 62.0, 121.0], true, Seconds, "`chat_id`");
        check(&[0.0, 0.2, 0.4], false, Seconds, "as milliseconds they would be 5000 requests per second");
        check(&[27_000.0, 30_000.5], false, Milliseconds, "as seconds they would be 0.000333");
        check(&[0.0, 1.0, 2.0], false, Milliseconds, "3 requests within 0.002 s make no sense (1000 per second)");
        check(&[1.7e9, 1.7e9 + 9.5], false, Seconds, "taken as seconds, since 1970");
        check(&[1.7e12, 1.7e12 + 9e3], true, Milliseconds, "");
        check(&[1.7e15, 1.7e15 + 9e6], false, Microseconds, "since 1970");
        check(&[1.7e18, 1.7e18 + 9e9], false, Nanoseconds, "since 1970");
    }

    #[test]
    fn what_cannot_be_told_is_asked_and_what_is_given_holds() {
        let unclear = seen(&[61.114, 62.5, 75.25, 121.114], false);
        let error = unclear.unit(None).expect_err("two units make sense");
        assert!(error.contains("seconds (0.05 requests per second) or milliseconds (50)"), "{error}");
        for (_, unit) in TimeUnit::NAMED {
            assert_eq!(unclear.unit(Some(unit)).map(|told| told.unit), Ok(unit));
        }
    }

    #[test]
    fn digits_are_kept() {
        let check = |text: &str, unit, expect: i128| {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(Timestamp::parse(Some(&value)).expect("a number").in_ns(unit), expect, "{text}");
        };
        check("61.114", TimeUnit::Seconds, 61_114_000_000);
        check("-0.5", TimeUnit::Milliseconds, -500_000);
        check("1700000000123456789", TimeUnit::Nanoseconds, 1_700_000_000_123_456_789);
        check("27000", TimeUnit::Milliseconds, 27_000_000_000);
    }
}
