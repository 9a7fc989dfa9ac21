//! Repeats of a point, and the one time that stands for them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Measurement, Times};

/// The repeats of every point as one measurement with their median: what disturbs a machine makes a few of them slow.
///
/// Repeats of which every launch waited for a core do not count. With `undisturbed_only` a point of which nothing else is left
/// is left out, with all that is fitted together there; without, such repeats are better than none.
pub fn medians(measurements: &[Measurement], undisturbed_only: bool) -> Vec<Measurement> {
    let mut points: BTreeMap<_, Vec<&Measurement>> = BTreeMap::new();
    for row in measurements {
        points.entry(row.point).or_default().push(row);
    }
    let together = |row: &Measurement| (row.point.timed.kind(), row.point.context, row.point.tokens, row.point.batch);
    let disturbed = points.values().filter(|repeats| repeats.iter().all(|row| !row.is_undisturbed()));
    let left_out: BTreeSet<_> = disturbed.filter(|_| undisturbed_only).map(|repeats| together(repeats[0])).collect();
    let middle = |repeats: Vec<&Measurement>| {
        let any_undisturbed = repeats.iter().any(|row| row.is_undisturbed());
        let counts = repeats.iter().filter(|row| row.is_undisturbed() || !any_undisturbed);
        let time_ms = median(counts.map(|row| row.times.time_ms));
        Measurement { times: Times { time_ms, ..repeats[0].times }, ..*repeats[0] }
    };
    points.into_values().filter(|repeats| !left_out.contains(&together(repeats[0]))).map(middle).collect()
}

/// The middle value, or the mean of the middle two; NaN of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    match values.len() {
        0 => f64::NAN,
        count => f64::midpoint(at((count - 1) / 2), at(count / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Point;
    use super::*;

    #[test]
    fn a_point_that_was_always_disturbed_is_left_out_on_demand() {
        let row = |batch: u32, loops: u32, undisturbed: u32, time_ms: f64| Measurement {
            times: Times { undisturbed, ..Times::once(time_ms) },
            ..Measurement::once(Point::step(batch, 64, loops), time_ms)
        };
        let rows = [row(1, 1, 5, 1.0), row(1, 2, 5, 2.0), row(1, 2, 0, 9.0), row(2, 1, 0, 7.0), row(2, 2, 5, 3.0)];
        let kept = |undisturbed_only| {
            let medians = medians(&rows, undisturbed_only);
            medians.iter().map(|row| (row.point.batch, row.point.loops, row.times.time_ms)).collect::<Vec<_>>()
        };
        assert_eq!(kept(true), [(1, 1, 1.0), (1, 2, 2.0)]);
        assert_eq!(kept(false), [(1, 1, 1.0), (1, 2, 2.0), (2, 1, 7.0), (2, 2, 3.0)]);
        assert!(median([].into_iter()).is_nan());
        assert_eq!(median([3.0, 1.0, 2.0, 10.0].into_iter()), 2.5);
    }
}
