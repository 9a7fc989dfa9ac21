//! How a recorded exit schedule becomes depths: the rules of the CDB authors' benchmark.

use crate::import::fields::Fault;

/// A threshold and its surroundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthRule {
    /// Where a recorded probability or criterion lets a token exit; recorded depths need none.
    pub threshold: Option<f64>,
    /// Steps before it let no token exit, whatever is recorded for them.
    pub min_depth: u8,
    /// Steps between the decision and the exit: 1 for a gate that is delayed by a loop.
    pub delay: u8,
}

impl Default for DepthRule {
    /// Exits where they are recorded.
    fn default() -> Self {
        Self { threshold: None, min_depth: 1, delay: 0 }
    }
}

/// What is recorded of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// The probability of an exit at each step.
    Pdf,
    /// A criterion after each step, which falls as the token converges.
    Values,
    /// The depth itself.
    Depth,
}

const MUST_BE_PROBABILITY: &str = "must be a probability";
const MUST_BE_VALUE: &str = "must be a finite value from 0";
const MUST_BE_DEPTH: &str = "must be a depth from 1 to the bundle's total_steps";

impl DepthRule {
    /// The depth of a token, from 1 to `steps`.
    ///
    /// The first step at which the sum of the probabilities (in single precision, so that the depths are those of the
    /// authors' code) reaches the threshold, or the value falls below it; the last one if none does. Then the delay, capped.
    pub(super) fn depth(&self, recorded: Recorded, token: &[f64], steps: u8) -> Result<u8, Fault> {
        let threshold = self.threshold.unwrap_or(0.0) as f32;
        let mut sum = 0.0f32;
        let mut crossing = None;
        if recorded == Recorded::Depth {
            let depth = token.first().copied().unwrap_or(0.0);
            if !(1.0..=f64::from(steps)).contains(&depth) {
                return Err(Fault::new("exit_depths", MUST_BE_DEPTH, depth.to_string()));
            }
            crossing = Some(depth as u8);
        } else {
            for (step, &number) in (1..=steps).zip(token) {
                let crosses = match recorded {
                    // Probabilities of half precision may be a little above 1.
                    Recorded::Pdf if !(0.0..=1.001).contains(&number) => {
                        return Err(Fault::new("exit_pdf", MUST_BE_PROBABILITY, number.to_string()));
                    }
                    Recorded::Pdf => {
                        sum += number as f32;
                        sum >= threshold
                    }
                    Recorded::Values if !(number >= 0.0 && number.is_finite()) => {
                        return Err(Fault::new("exit_values", MUST_BE_VALUE, number.to_string()));
                    }
                    Recorded::Values | Recorded::Depth => (number as f32) < threshold,
                };
                if crosses && step >= self.min_depth && crossing.is_none() {
                    crossing = Some(step);
                }
            }
        }
        let depth = crossing.unwrap_or(steps).max(self.min_depth);
        Ok(depth.saturating_add(self.delay).min(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(threshold: f64, min_depth: u8, delay: u8) -> DepthRule {
        DepthRule { threshold: Some(threshold), min_depth, delay }
    }

    #[test]
    fn a_pdf_exits_where_its_sum_reaches_the_threshold() {
        let pdf = [0.0, 0.3, 0.3, 0.4];
        let check = |rule: DepthRule, expect| assert_eq!(rule.depth(Recorded::Pdf, &pdf, 4), Ok(expect), "{rule:?}");
        check(rule(0.2, 1, 0), 2);
        check(rule(0.5, 1, 0), 3);
        check(rule(1.0, 1, 0), 4);
        check(rule(0.0, 1, 0), 1);
        check(rule(0.2, 3, 0), 3);
        check(rule(0.2, 1, 1), 3);
        check(rule(0.5, 1, 9), 4);
        check(rule(0.5, 9, 0), 4);
    }

    #[test]
    fn a_sum_is_taken_in_single_precision() {
        // 0.1 + 0.2 of single precision is 0.3 of single precision; of double precision it is more than 0.3.
        let pdf = [0.1, 0.2, 0.7].map(f64::from);
        assert_eq!(rule(0.3, 1, 0).depth(Recorded::Pdf, &pdf, 3), Ok(2));
        assert_eq!(rule(0.300_000_1, 1, 0).depth(Recorded::Pdf, &pdf, 3), Ok(3));
    }

    #[test]
    fn a_value_exits_where_it_falls_below_and_not_at_the_threshold() {
        let values = [0.9, 0.1, 0.25, 0.05];
        let check =
            |rule: DepthRule, expect| assert_eq!(rule.depth(Recorded::Values, &values, 4), Ok(expect), "{rule:?}");
        check(rule(0.28, 1, 0), 2);
        check(rule(0.1, 1, 0), 4);
        check(rule(0.0, 1, 0), 4);
        // What crossed before the minimum and rose again has not crossed.
        check(rule(0.2, 3, 0), 4);
        check(rule(0.28, 3, 0), 3);
        check(rule(0.28, 1, 1), 3);
    }

    #[test]
    fn a_depth_is_floored_delayed_and_capped() {
        let check = |depth, rule: DepthRule, expect| {
            assert_eq!(rule.depth(Recorded::Depth, &[depth], 4), Ok(expect), "{depth} {rule:?}");
        };
        check(1.0, DepthRule::default(), 1);
        check(1.0, DepthRule { min_depth: 2, ..DepthRule::default() }, 2);
        check(3.0, DepthRule { min_depth: 2, delay: 1, ..DepthRule::default() }, 4);
        check(4.0, DepthRule { delay: 1, ..DepthRule::default() }, 4);
    }

    #[test]
    fn numbers_that_cannot_be_are_faults() {
        let check = |recorded, token: &[f64], expect: &str| {
            let fault = rule(0.5, 1, 0).depth(recorded, token, 2).expect_err("a fault");
            assert_eq!(format!("{}: {}, got {}", fault.field, fault.must, fault.got), expect);
        };
        check(Recorded::Pdf, &[0.5, f64::NAN], "exit_pdf: must be a probability, got NaN");
        check(Recorded::Pdf, &[1.5, 0.0], "exit_pdf: must be a probability, got 1.5");
        check(Recorded::Values, &[-0.5, 0.0], "exit_values: must be a finite value from 0, got -0.5");
        check(Recorded::Depth, &[0.0], "exit_depths: must be a depth from 1 to the bundle's total_steps, got 0");
        check(Recorded::Depth, &[3.0], "exit_depths: must be a depth from 1 to the bundle's total_steps, got 3");
    }
}
