//! When requests were offered, in bounded memory.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Marks kept at most; a full list keeps every second one.
const CAPACITY: usize = 2048;

/// The part of a load on which saturation is judged: all arrivals but the first fifth, while slots still fill.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// When it begins, in seconds; it ends with the last arrival.
    pub from_s: f64,
    /// Arrivals per second in it.
    pub rate_per_s: f64,
    /// Squared coefficient of variation of the gaps between them: 0 if they are even, 1 for Poisson arrivals.
    pub gap_variation: f64,
    /// The prompt queue was empty at some time in it.
    pub emptied: bool,
}

/// Collects arrivals of requests that can be served, in order.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    count: u64,
    first: Nanos,
    last: Nanos,
    /// Sum over the gaps so far, in seconds squared.
    squared_gaps: f64,
    /// Every so many arrivals have a mark.
    stride: u64,
    marks: Vec<Mark>,
}

/// What stood when an arrival came.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Nanos,
    squared_gaps: f64,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            count: 0,
            first: Nanos::ZERO,
            last: Nanos::ZERO,
            squared_gaps: 0.0,
            stride: 1,
            marks: Vec::with_capacity(CAPACITY),
        }
    }

    pub(super) fn add(&mut self, at: Nanos) {
        if self.count == 0 {
            (self.first, self.last) = (at, at);
        }
        // Several engines tell of them when each has looked, which may be in another order.
        self.squared_gaps += at.saturating_sub(self.last).as_secs().powi(2);
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
        if self.count.is_multiple_of(self.stride) {
            if self.marks.len() == CAPACITY {
                self.marks = self.marks.iter().copied().step_by(2).collect();
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.marks.push(Mark { at, squared_gaps: self.squared_gaps });
            }
        }
        self.count += 1;
    }

    /// The first arrival; zero without any.
    pub(super) fn first(&self) -> Nanos {
        self.first
    }

    /// From the first to the last arrival.
    pub(super) fn window(&self) -> Nanos {
        self.last - self.first
    }

    /// The part to judge, if the queue was last empty at `emptied` before the last arrival; `None` if it takes no time.
    pub(super) fn judged(&self, emptied: Option<Nanos>) -> Option<Judged> {
        let mark = self.count / 5 / self.stride;
        let Mark { at, squared_gaps } = *self.marks.get(mark as usize)?;
        let (window_s, gaps) = ((self.last - at).as_secs(), (self.count - 1 - mark * self.stride) as f64);
        (window_s > 0.0).then(|| Judged {
            from_s: at.as_secs(),
            rate_per_s: gaps / window_s,
            gap_variation: (self.squared_gaps - squared_gaps) * gaps / window_s.powi(2) - 1.0,
            emptied: emptied.is_some_and(|emptied| emptied >= at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(times_s: impl Iterator<Item = f64>) -> Judged {
        let mut arrivals = Arrivals::new();
        times_s.for_each(|s| arrivals.add(Nanos::from_secs(s)));
        arrivals.judged(None).expect("it takes time")
    }

    #[test]
    fn a_fifth_of_the_arrivals_is_left_out_however_many_there_are() {
        for count in [10, 2048, 100_000] {
            // A request every 2 s after an hour in which one came.
            let Judged { from_s, rate_per_s, gap_variation, .. } =
                judged((0..count).map(|n| if n == 0 { 0.0 } else { 3600.0 + 2.0 * f64::from(n) }));
            let fifth = 3600.0 + 2.0 * f64::from(count) / 5.0;
            assert!((from_s - fifth).abs() <= 2.0 * f64::from(count) / 1024.0, "{from_s} for {fifth}");
            assert!((rate_per_s - 0.5).abs() < 1e-9 && gap_variation.abs() < 1e-6, "{rate_per_s} {gap_variation}");
        }
    }

    #[test]
    fn bursts_vary_more_than_even_arrivals() {
        // Ten at once every 10 s: gaps of 0 nine times in ten.
        let bursts = judged((0..1000).map(|n| f64::from(n / 10) * 10.0));
        assert!((bursts.gap_variation - 9.0).abs() < 0.2, "{}", bursts.gap_variation);
    }

    #[test]
    fn arrivals_at_one_instant_cannot_be_judged() {
        let mut arrivals = Arrivals::new();
        (0..50).for_each(|_| arrivals.add(Nanos(7)));
        assert_eq!((arrivals.judged(None), arrivals.first(), arrivals.window()), (None, Nanos(7), Nanos::ZERO));
        assert_eq!(Arrivals::new().judged(None), None);
    }
}
