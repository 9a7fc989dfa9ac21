//! Timestamps of logs: `2023-11-16 18:15:46.6805900`, with a `T`, a `Z`, `UTC` or an offset if they like.

/// Nanoseconds since 1970, in UTC unless an offset is given; `None` if it is no such time or beyond the years 1970 to 2200.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once([' ', 'T'])?;
    let (time, offset_s) = split_offset(rest.trim())?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.split(':');
    let (hour, minute, second) = (number(time.next()?, 2)?, number(time.next()?, 2)?, number(time.next()?, 2)?);
    let in_range = date.next().is_none()
        && time.next().is_none()
        && (1970..=2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s;
    in_range.then_some(seconds * 1_000_000_000 + nanoseconds(fraction)?)
}

/// Splits off ` UTC`, `Z`, `+01:00`, ` -0700` or `+00`, as seconds east of Greenwich.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    for name in ["UTC", "GMT", "Z"] {
        let (time, end) = text.split_at_checked(text.len().saturating_sub(name.len()))?;
        if end.eq_ignore_ascii_case(name) {
            return Some((time.trim_end(), 0));
        }
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, 0)) };
    let sign = if text[at..].starts_with('-') { -1 } else { 1 };
    let digits = text[at + 1..].replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let hours = number(hours, 2)?;
    let minutes = if minutes.is_empty() { 0 } else { number(minutes, 2)? };
    (hours < 24 && minutes < 60).then_some((text[..at].trim_end(), sign * (hours * 3600 + minutes * 60)))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// The fraction's digits as nanoseconds; finer ones are cut off.
fn nanoseconds(fraction: &str) -> Option<i64> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{:0<9.9}", fraction).parse().ok()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let years: i64 = (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum();
    let months: i64 = (1..month).map(|month| days_of_month(year, month)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970() {
        let check = |text, seconds: i64, ns: i64| assert_eq!(parse(text), Some(seconds * 1_000_000_000 + ns), "{text}");
        check("1970-01-01 00:00:00", 0, 0);
        check("2023-11-16 18:15:46.6805900", 1_700_158_546, 680_590_000);
        check("2024-02-29T23:59:59.1Z", 1_709_251_199, 100_000_000);
        check("2024-05-10 00:00:00.009930+00:00", 1_715_299_200, 9_930_000);
        check("2024-05-10 02:00:00+02:00", 1_715_299_200, 0);
        check("2024-05-09 17:00:00-0700", 1_715_299_200, 0);
        check("2024-05-09 17:00:00 -07:00", 1_715_299_200, 0);
        check("2024-05-09 17:00:00.5 -07", 1_715_299_200, 500_000_000);
        check("2024-05-10 00:00:00+00", 1_715_299_200, 0);
        check("2024-05-10T05:30:00 +0530", 1_715_299_200, 0);
        check("2024-05-10 00:00:00 UTC", 1_715_299_200, 0);
        check("2024-05-10 00:00:00.009930UTC", 1_715_299_200, 9_930_000);
        check("2024-05-10 00:00:00 gmt", 1_715_299_200, 0);
        check("2024-05-10T00:00:00 z", 1_715_299_200, 0);
        check("2024-05-10 00:00:00.1234567899", 1_715_299_200, 123_456_789);
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "0.5",
            "2023-11-16",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 18:15",
            "2023-11-16 18:15:46.x",
            "23-11-16 18:15:46",
            "2023-11-16 18:15:46+",
            "2023-11-16 18:15:46+1:00:00:0",
            "2023-11-16 18:15:46 +24",
            "2023-11-16 18:15:46 CEST",
            "2023-11-16 UTC",
            "2023-11-16 18:15:46é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
