//! A round through the grid that is slower than the others wherever it went: the machine was another one then.

use std::collections::BTreeMap;

use crate::measurements::{Measurement, Timed, median};

/// Slower by no more than this at some point, and a round is not slow everywhere.
const SLOWER_MIN: f64 = 1.03;

/// A round that was slower at every point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowRound {
    /// Which one, from 0: the table's `round`, or which of a point's rows where the table has no rounds.
    pub round: u32,
    /// How many times as long as the others, at the middle one of its points.
    pub times: f64,
}

/// The rounds whose steps and cores took longer than those of the other rounds at every point that others went to, two points
/// at least.
pub fn slow_rounds(rows: &[Measurement]) -> Vec<SlowRound> {
    let mut points: BTreeMap<_, Vec<&Measurement>> = BTreeMap::new();
    for row in rows.iter().filter(|row| matches!(row.point.timed, Timed::Step | Timed::Core) && row.is_undisturbed()) {
        points.entry(row.point).or_default().push(row);
    }
    let numbered = rows.iter().any(|row| row.round > 0);
    let mut ratios: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for repeats in points.values().filter(|repeats| repeats.len() > 1) {
        for (index, row) in repeats.iter().enumerate() {
            let others = repeats.iter().enumerate().filter(|&(other, _)| other != index);
            let others_ms = median(others.map(|(_, other)| other.times.time_ms));
            let round = if numbered { row.round } else { index as u32 };
            ratios.entry(round).or_default().push(row.times.time_ms / others_ms);
        }
    }
    let everywhere = |ratios: &Vec<f64>| ratios.len() > 1 && ratios.iter().all(|&ratio| ratio > SLOWER_MIN);
    let slow = ratios.into_iter().filter(|(_, ratios)| everywhere(ratios));
    slow.map(|(round, ratios)| SlowRound { round, times: median(ratios.into_iter()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::Point;

    #[test]
    fn a_round_that_is_slower_at_every_point_is_named() {
        let row = |round: u32, batch: u32, time_ms: f64| Measurement {
            round,
            ..Measurement::once(Point::step(batch, 64, 4), time_ms)
        };
        let rows = |numbered: bool, factor: &dyn Fn(u32, u32) -> f64| -> Vec<Measurement> {
            let points = (0..3).flat_map(|round| (1..9).map(move |batch| (round, batch)));
            points.map(|(round, batch)| row(if numbered { round } else { 0 }, batch, factor(round, batch))).collect()
        };
        let second = |round: u32, _: u32| if round == 1 { 2.0 } else { 1.0 };
        for numbered in [true, false] {
            assert_eq!(slow_rounds(&rows(numbered, &second)), [SlowRound { round: 1, times: 2.0 }]);
        }
        // One point that is as fast as ever, and it was noise.
        let nearly = |round: u32, batch: u32| if round == 1 && batch > 1 { 2.0 } else { 1.0 };
        assert_eq!(slow_rounds(&rows(true, &nearly)), []);
        assert_eq!(slow_rounds(&rows(true, &second)[..8]), []);
    }
}
