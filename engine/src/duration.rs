//! Durations as people write them: `500ms`, `60s`, `8min`.

/// Reads a number with its unit (`ms`, `s`, `m` or `min`), as seconds. Which of them an option can use is the option's business.
///
/// # Errors
/// There is no unit, or no number before it.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[number.len()..] {
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        _ => None,
    };
    let seconds = number.parse().ok().zip(unit_s).map(|(number, unit_s): (f64, f64)| number * unit_s);
    let seconds = seconds.filter(|seconds| seconds.is_finite());
    seconds.ok_or_else(|| format!("must be a time with its unit, like 500ms, 60s or 8min, got `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, seconds) in
            [("500ms", 0.5), ("60s", 60.0), ("8min", 480.0), ("1.5m", 90.0), ("1e3s", 1e3), ("-1s", -1.0)]
        {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["60", "s", "", "soon", "8 hours", "NaNs", "infs"] {
            let said = format!("must be a time with its unit, like 500ms, 60s or 8min, got `{text}`");
            assert_eq!(parse_seconds(text), Err(said));
        }
    }
}
