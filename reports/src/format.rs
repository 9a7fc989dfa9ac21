//! Numbers as people read them.

/// Four significant digits, thousands apart: `12,345`, `1,234`, `123.4`, `12.34`, `1.234`, `0.123`; what would round to `0.000`
/// with a power of ten: `3.142e-4`.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v > 0.0 && v < 0.0005 => return format!("{value:.3e}"),
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.9995 => 2,
        _ => 3,
    };
    grouped(&format!("{value:.decimals$}"))
}

/// A count, thousands apart.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// A ratio like `1.52`, to two decimals.
pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// A share in percent, without its unit.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// Seconds with their unit, in milliseconds below one.
pub(crate) fn duration(seconds: f64) -> String {
    let (factor, prefix) = scale([seconds].into_iter());
    format!("{} {prefix}s", number(factor * seconds))
}

/// Factor and unit prefix in which to show durations, given their medians in seconds: one for all, so that they compare at a
/// glance.
pub(crate) fn scale(mut medians: impl Iterator<Item = f64>) -> (f64, &'static str) {
    if medians.any(|median| median >= 1.0) { (1.0, "") } else { (1e3, "m") }
}

/// Parts thousands of a plain decimal number.
pub(crate) fn grouped(number: &str) -> String {
    let digits_end = number.find('.').unwrap_or(number.len());
    let (whole, rest) = number.split_at(digits_end);
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut text = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let cases = [
            (1_234_567.0, "1,234,567"),
            (999.96, "1,000"),
            (123.44, "123.4"),
            (12.345, "12.35"),
            (0.1234, "0.123"),
            (0.0005, "0.001"),
            (0.00031416, "3.142e-4"),
            (0.0, "0.000"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!((number(-1234.0), count(999), percent(0.9681)), ("-1,234".into(), "999".into(), "96.8".into()));
    }
}
