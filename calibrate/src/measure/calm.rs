//! Was the machine calm? Repeats of a point should agree, and the last round should be as fast as the first.

use std::collections::BTreeMap;

use crate::measurements::{Measurement, Stage, median};

/// Repeats that differ by more than this are noise that the fit inherits.
const SPREAD_MAX: f64 = 0.05;

/// A change of speed by more than this means that the rounds did not time the same machine.
const DRIFT_MAX: f64 = 0.03;

/// With more of the measurements disturbed, the others are likely to be so too.
const DISTURBED_MAX: f64 = 0.1;

/// How well the rounds agree, over the fused steps and the staged cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calm {
    /// Rounds that any point has.
    pub rounds: u32,
    /// Median over points of the interquartile range of its repeats, relative to their median.
    pub spread: f64,
    /// Median over points of last round's time / first round's - 1.
    pub drift: f64,
    /// Share of the measurements in which every launch had to wait for a core; they count for nothing.
    pub disturbed: f64,
}

impl Calm {
    /// Compares the repeats of each point; `None` if no point has two.
    pub fn of(rows: &[Measurement]) -> Option<Self> {
        let mut points: BTreeMap<(u32, u32, u32), Vec<&Measurement>> = BTreeMap::new();
        let decode = |row: &&Measurement| matches!(row.stage, Stage::Step | Stage::Core);
        let disturbed = rows.iter().filter(decode).filter(|row| row.calm == 0).count();
        let disturbed = disturbed as f64 / rows.iter().filter(decode).count().max(1) as f64;
        for row in rows.iter().filter(decode).filter(|row| row.calm > 0) {
            points.entry((row.batch, row.context, row.loops)).or_default().push(row);
        }
        points.retain(|_, repeats| repeats.len() > 1);
        let rounds = points.values().map(Vec::len).max()? as u32;
        let spread = |repeats: &Vec<&Measurement>| {
            let mut times: Vec<f64> = repeats.iter().map(|row| row.time_ms).collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
            (at(0.75) - at(0.25)) / median(times.iter().copied())
        };
        let drift = |repeats: &Vec<&Measurement>| repeats[repeats.len() - 1].time_ms / repeats[0].time_ms - 1.0;
        Some(Self {
            rounds,
            spread: median(points.values().map(spread)),
            drift: median(points.values().map(drift)),
            disturbed,
        })
    }

    /// Repeats agree well enough to trust the fit.
    pub fn is_calm(&self) -> bool {
        self.spread <= SPREAD_MAX && self.drift.abs() <= DRIFT_MAX && self.disturbed <= DISTURBED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(factor: impl Fn(u32, u32) -> f64) -> Vec<Measurement> {
        let row = |round: u32, batch: u32| Measurement {
            line: 0,
            stage: Stage::Step,
            batch,
            context: 64,
            loops: 4,
            tokens: 0,
            time_ms: f64::from(batch) * factor(round, batch),
            min_ms: 0.0,
            max_ms: 0.0,
            round,
            calm: 1,
        };
        (0..5).flat_map(|round| (1..9).map(move |batch| row(round, batch))).collect()
    }

    #[test]
    fn a_machine_that_slows_down_is_not_calm() {
        let calm = |factor: &dyn Fn(u32, u32) -> f64| Calm::of(&rows(factor)).expect("five rounds");
        assert!(calm(&|_, _| 1.0).is_calm());
        let slower = calm(&|round, _| 1.0 + 0.02 * f64::from(round));
        assert!(!slower.is_calm() && (slower.drift - 0.08).abs() < 1e-9, "{slower:?}");
        let noisy = calm(&|round, batch| if (round + batch) % 2 == 0 { 1.2 } else { 1.0 });
        assert!(!noisy.is_calm() && noisy.spread > 0.05, "{noisy:?}");
        // One slow round in five does not move the median, nor the ends.
        assert!(calm(&|round, _| if round == 2 { 3.0 } else { 1.0 }).is_calm());
        assert_eq!(Calm::of(&rows(|_, _| 1.0)[..8]), None);
    }
}
