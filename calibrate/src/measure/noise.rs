//! How noisy the times are: repeats of a point should agree, and the last round should be as fast as the first.

use std::collections::BTreeMap;

use crate::measurements::{Measurement, Point, Timed, median};

/// Repeats that differ by more than this are noise that the fit inherits.
const SPREAD_MAX: f64 = 0.05;

/// A change of speed by more than this means that the rounds did not time the same machine.
const DRIFT_MAX: f64 = 0.03;

/// With more of the measurements disturbed, the others are likely to be so too.
const DISTURBED_MAX: f64 = 0.1;

/// How well the rounds agree, over the fused steps and the staged cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Rounds that any point has.
    pub rounds: u32,
    /// Median over points of the interquartile range of its repeats, relative to their median.
    pub spread: f64,
    /// Median over points of last round's time / first round's - 1.
    pub drift: f64,
    /// Share of the measurements in which every launch had to wait for a core; they count for nothing.
    pub disturbed: f64,
}

impl Noise {
    /// Compares the repeats of each point; `None` if no point has two.
    pub fn of(rows: &[Measurement]) -> Option<Self> {
        let mut points: BTreeMap<Point, Vec<&Measurement>> = BTreeMap::new();
        let decode = |row: &&Measurement| matches!(row.point.timed, Timed::Step | Timed::Core);
        let disturbed = rows.iter().filter(decode).filter(|row| !row.is_undisturbed()).count();
        let disturbed = disturbed as f64 / rows.iter().filter(decode).count().max(1) as f64;
        for row in rows.iter().filter(decode).filter(|row| row.is_undisturbed()) {
            points.entry(row.point).or_default().push(row);
        }
        points.retain(|_, repeats| repeats.len() > 1);
        let rounds = points.values().map(Vec::len).max()? as u32;
        let spread = |repeats: &Vec<&Measurement>| {
            let mut times: Vec<f64> = repeats.iter().map(|row| row.times.time_ms).collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
            (at(0.75) - at(0.25)) / median(times.iter().copied())
        };
        let drift =
            |repeats: &Vec<&Measurement>| repeats[repeats.len() - 1].times.time_ms / repeats[0].times.time_ms - 1.0;
        Some(Self {
            rounds,
            spread: median(points.values().map(spread)),
            drift: median(points.values().map(drift)),
            disturbed,
        })
    }

    /// Repeats agree well enough to trust the fit.
    pub fn is_low(&self) -> bool {
        self.spread <= SPREAD_MAX && self.drift.abs() <= DRIFT_MAX && self.disturbed <= DISTURBED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(factor: impl Fn(u32, u32) -> f64) -> Vec<Measurement> {
        let row = |round: u32, batch: u32| Measurement {
            round,
            ..Measurement::once(Point::step(batch, 64, 4), f64::from(batch) * factor(round, batch))
        };
        (0..5).flat_map(|round| (1..9).map(move |batch| row(round, batch))).collect()
    }

    #[test]
    fn a_machine_that_slows_down_is_noisy() {
        let noise = |factor: &dyn Fn(u32, u32) -> f64| Noise::of(&rows(factor)).expect("five rounds");
        assert!(noise(&|_, _| 1.0).is_low());
        let slower = noise(&|round, _| 1.0 + 0.02 * f64::from(round));
        assert!(!slower.is_low() && (slower.drift - 0.08).abs() < 1e-9, "{slower:?}");
        let noisy = noise(&|round, batch| if (round + batch) % 2 == 0 { 1.2 } else { 1.0 });
        assert!(!noisy.is_low() && noisy.spread > 0.05, "{noisy:?}");
        // One slow round in five does not move the median, nor the ends.
        assert!(noise(&|round, _| if round == 2 { 3.0 } else { 1.0 }).is_low());
        assert_eq!(Noise::of(&rows(|_, _| 1.0)[..8]), None);
    }
}
