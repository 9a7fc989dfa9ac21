//! How much load a scheduler carries, and how well that is known.

use serde::Serialize;

use crate::format::{number, percent};

/// Where a search found the capacity, in requests per second that arrive, refused ones among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bracket {
    /// The highest rate that was carried.
    pub carried_per_s: Option<f64>,
    /// The lowest rate above it that was not.
    pub failed_per_s: Option<f64>,
    /// Why the two are too far apart to enclose a capacity, and what to change; `None` if they are within 1%.
    pub open: Option<String>,
    /// Share of the arrivals that can never fit, at any rate.
    pub refused_share: f64,
}

/// A scheduler's capacity, set against full depth's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capacity {
    /// The capacity, if it was found: [`Bracket::capacity_per_s`].
    pub requests_per_s: Option<f64>,
    /// Between which rates it lies.
    #[serde(flatten)]
    pub rates: Bracket,
    /// The SLO, in words.
    pub slo: String,
    /// Ratio to full-depth continuous batching's capacity, if both are known.
    pub speedup: Option<f64>,
    /// `speedup / s_e2e`.
    pub realised_share: Option<f64>,
}

impl Bracket {
    /// The capacity: the highest rate that was carried, where one within 1% above it was not.
    pub fn capacity_per_s(&self) -> Option<f64> {
        self.carried_per_s.filter(|_| self.open.is_none())
    }

    /// `carries 13.8 requests/s (limits)`, or as much as is known of it; [`Self::remark`] goes behind it.
    pub fn claim(&self, slo: &str) -> String {
        match (self.capacity_per_s(), self.carried_per_s, self.failed_per_s) {
            (Some(rate), ..) => format!("carries {} requests/s ({slo})", number(rate)),
            (_, Some(rate), None) => format!("carries at least {} requests/s ({slo})", number(rate)),
            (_, Some(rate), Some(failed)) => {
                format!("carries at least {} requests/s and not {} ({slo})", number(rate), number(failed))
            }
            (_, None, Some(failed)) => format!("does not carry {} requests/s ({slo})", number(failed)),
            (_, None, None) => format!("carries no rate that can be judged ({slo})"),
        }
    }

    /// Of which requests the claim speaks, and why it is no better; empty if there is nothing to say.
    pub fn remark(&self) -> String {
        let refused = format!("{}% of the arrivals can never fit and are refused", percent(self.refused_share));
        let refused = (self.refused_share > 0.0).then_some(refused);
        refused.iter().chain(&self.open).map(|text| format!("; {text}")).collect()
    }

    /// The rate for a table: `≥ 13.8` if it is only known from below.
    pub(crate) fn cell(&self) -> Option<String> {
        let at_least = self.carried_per_s.map(|rate| format!("≥ {}", number(rate)));
        self.capacity_per_s().map(number).or(at_least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_no_more_than_is_known() {
        let check = |carried_per_s, failed_per_s, open: Option<&str>, refused_share, said: &str| {
            let rates = Bracket { carried_per_s, failed_per_s, open: open.map(String::from), refused_share };
            assert_eq!(rates.claim("ttft <= 1 s") + &rates.remark(), said);
        };
        let refused = "5.0% of the arrivals can never fit and are refused";
        check(Some(4.0), Some(4.03), None, 0.0, "carries 4.000 requests/s (ttft <= 1 s)");
        check(Some(4.0), Some(4.03), None, 0.05, &format!("carries 4.000 requests/s (ttft <= 1 s); {refused}"));
        check(Some(4.0), None, Some("why"), 0.0, "carries at least 4.000 requests/s (ttft <= 1 s); why");
        check(
            Some(4.0),
            Some(9.0),
            Some("why"),
            0.0,
            "carries at least 4.000 requests/s and not 9.000 (ttft <= 1 s); why",
        );
        check(
            None,
            Some(9.0),
            Some("why"),
            0.05,
            &format!("does not carry 9.000 requests/s (ttft <= 1 s); {refused}; why"),
        );
        check(None, None, Some("why"), 0.0, "carries no rate that can be judged (ttft <= 1 s); why");
    }
}
