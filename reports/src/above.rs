//! What is said where a speed-up is above a bound: never without a word.

use crate::format::ratio;

/// Why a share of S_e2e can be above 100%.
pub const ABOVE_S_E2E: &str = "S_e2e counts the FLOPs of linear layers and nothing else: where other things take the time, such as KV \
                               reads, more can be saved than it allows.";

/// Whether a share of S_e2e is shown as more than 100.0%.
pub fn is_above(share: f64) -> bool {
    share >= 1.0005
}

/// What must be said, as sentences behind others, of a share of S_e2e and of a speed-up beside its S_roof.
pub(crate) fn above(share: f64, roof: Option<(f64, f64)>) -> String {
    let mut text = String::new();
    if is_above(share) {
        text.push_str(&format!(" {ABOVE_S_E2E}"));
    }
    match roof {
        Some((speedup, s_roof)) if speedup > s_roof => text.push_str(&format!(
            " Stages were faster than the bandwidth and FLOP rate of the profile's device allow, as with weights that stay in a cache: \
             S_roof = {}× is no bound here.",
            ratio(s_roof)
        )),
        Some((_, s_roof)) if is_above(share) => {
            text.push_str(&format!(" S_roof, which counts bytes as well, is {}×.", ratio(s_roof)));
        }
        _ => (),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_a_bound_is_explained() {
        assert_eq!(above(1.0004, Some((1.5, 1.6))), "", "shown as 100.0%");
        assert!(above(1.0006, Some((1.5, 1.6))).ends_with("S_roof, which counts bytes as well, is 1.60×."));
        assert!(above(1.2, None).ends_with("more can be saved than it allows."));
        assert!(above(0.9, Some((1.5, 1.4))).ends_with("S_roof = 1.40× is no bound here."));
    }
}
