//! Two ways of answering the same questions, compared question by question.

use serde::Serialize;

/// (z(0.975) + z(0.8))²: a two-sided test at 5% that finds what is there four times out of five.
const POWER: f64 = 7.848_879_7;

/// What pairs vary by at least where one is worse by a point: one in a hundred is lost.
const POINT_VARIANCE: f64 = 0.01 - 0.01 * 0.01;

/// Right answers of one condition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Share of right answers.
    pub mean: f64,
    /// Its standard error, `sqrt(p (1 - p) / n)`.
    pub standard_error: f64,
}

impl Share {
    /// Of `right` answers to `questions` questions; `None` without any.
    pub fn of(right: usize, questions: usize) -> Option<Self> {
        let mean = (questions > 0).then(|| right as f64 / questions as f64)?;
        Some(Self { mean, standard_error: (mean * (1.0 - mean) / questions as f64).sqrt() })
    }
}

/// How one condition differs from another on the same questions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Questions that both answered.
    pub questions: usize,
    /// Right in the other alone.
    pub lost: usize,
    /// Right in this one alone.
    pub won: usize,
    /// Share of right answers minus the other's.
    pub difference: f64,
    /// The difference's standard error, from the pairs; `None` for a single question.
    pub standard_error: Option<f64>,
    /// McNemar's test, exact and two-sided: how probable so uneven a split is if neither is better.
    pub p_value: f64,
    /// Questions with which a difference of one point would be found four times out of five, at 5%; `None` where no pair
    /// differs, so that nothing says how much pairs vary.
    pub questions_for_a_point: Option<f64>,
}

impl Paired {
    /// Of (this one right, the other right), question by question; `None` without any.
    pub fn of(pairs: impl IntoIterator<Item = (bool, bool)>) -> Option<Self> {
        let (mut questions, mut lost, mut won) = (0, 0, 0);
        for (this, other) in pairs {
            questions += 1;
            lost += usize::from(other && !this);
            won += usize::from(this && !other);
        }
        if questions == 0 {
            return None;
        }
        let n = questions as f64;
        let difference = (won as f64 - lost as f64) / n;
        // Each pair's difference is -1, 0 or 1.
        let variance = (lost + won) as f64 / n - difference * difference;
        Some(Self {
            questions,
            lost,
            won,
            difference,
            standard_error: (questions > 1).then(|| (variance / (n - 1.0)).sqrt()),
            p_value: mcnemar(lost, won),
            questions_for_a_point: (lost + won > 0).then_some(POWER * variance.max(POINT_VARIANCE) / (0.01 * 0.01)),
        })
    }
}

/// The exact two-sided binomial test of `lost` against `won` at one half.
fn mcnemar(lost: usize, won: usize) -> f64 {
    let (n, fewer) = ((lost + won) as f64, lost.min(won));
    // ln of C(n, k) / 2^n, from one k to the next: 2^-n alone is 0 in f64 from n = 1075 on.
    let mut ln_term = -n * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for k in 0..=fewer {
        tail += ln_term.exp();
        ln_term += ((n - k as f64) / (k as f64 + 1.0)).ln();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(both: usize, lost: usize, won: usize, neither: usize) -> Vec<(bool, bool)> {
        let of = |pair, count| std::iter::repeat_n(pair, count);
        of((true, true), both)
            .chain(of((false, true), lost))
            .chain(of((true, false), won))
            .chain(of((false, false), neither))
            .collect()
    }

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{got}, not {expected}");
    }

    #[test]
    fn mcnemars_test_is_the_binomials_tail() {
        close(mcnemar(0, 5), 2.0 / 32.0);
        close(mcnemar(1, 9), 2.0 * 11.0 / 1024.0);
        close(mcnemar(9, 1), mcnemar(1, 9));
        close(mcnemar(4, 4), 1.0);
        close(mcnemar(0, 0), 1.0);
    }

    #[test]
    fn thousands_of_pairs_neither_overflow_nor_vanish() {
        // Three standard deviations of a fair coin thrown 10,000 times, with the continuity correction 2.99.
        let p = mcnemar(4850, 5150);
        assert!((p - 0.002_79).abs() < 2e-5, "{p}");
        assert!(mcnemar(0, 5000) < 1e-300);
    }

    #[test]
    fn the_difference_and_its_error_are_those_of_the_pairs() {
        let paired = Paired::of(pairs(90, 6, 2, 2)).unwrap();
        assert_eq!((paired.questions, paired.lost, paired.won), (100, 6, 2));
        close(paired.difference, -0.04);
        // Eight pairs of 100 differ: the sum of squares is 8 - 100 * 0.04^2.
        close(paired.standard_error.unwrap(), ((8.0 - 0.16) / 99.0 / 100.0_f64).sqrt());
        close(paired.questions_for_a_point.unwrap(), POWER * 0.0784 / 1e-4);
    }

    #[test]
    fn a_point_takes_778_questions_however_few_pairs_differ() {
        let paired = Paired::of(pairs(9_999, 1, 0, 0)).unwrap();
        assert_eq!(paired.questions_for_a_point.unwrap().ceil(), 778.0);
    }

    #[test]
    fn equal_answers_say_nothing_of_how_many_questions_are_needed() {
        let paired = Paired::of(pairs(10, 0, 0, 3)).unwrap();
        assert_eq!((paired.difference, paired.standard_error, paired.p_value), (0.0, Some(0.0), 1.0));
        assert_eq!(paired.questions_for_a_point, None);
        assert_eq!(Paired::of([]), None);
        assert_eq!(Paired::of([(true, false)]).unwrap().standard_error, None);
    }

    #[test]
    fn a_shares_error_is_the_binomials() {
        assert_eq!(Share::of(3, 0), None);
        close(Share::of(80, 100).unwrap().standard_error, 0.04);
    }
}
