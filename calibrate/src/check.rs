//! Whether a profile holds: measured times of points that its fit never saw, against what it says.

use std::collections::BTreeMap;

use engine::profile::Profile;

use crate::contexts::contexts;
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Point, Timed};

/// Mean absolute error of core steps (or whole ones) up to which a profile holds, unless its own left-out error is larger.
pub const MEAN_MAX: f64 = 0.02;

/// The same for the worst point.
pub const WORST_MAX: f64 = 0.06;

/// One stage's errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Points of this kind that were measured; repeats do not count.
    pub points: usize,
    /// Mean of `|profile / measured - 1|`.
    pub mean: f64,
    /// The largest of these, with its sign.
    pub worst: f64,
    /// Where that is.
    pub worst_at: Point,
}

/// What a profile says for a point, in ms; `None` for what the host does.
pub fn predicted_ms(profile: &Profile, point: Point) -> Option<f64> {
    let padded = profile.buckets.pad(point.batch);
    let entries = || profile.kv_entries(contexts(point.batch, point.context));
    let staged_ms = profile.stage_overhead_us / 1e3;
    match point.timed {
        Timed::Step => Some(
            profile.prelude_ms(padded, entries())
                + f64::from(point.loops) * profile.core_ms(padded, entries())
                + profile.coda_ms(padded, entries()),
        ),
        Timed::Core => Some(profile.core_ms(padded, entries()) + staged_ms),
        Timed::Prelude => Some(profile.prelude_ms(padded, entries()) + staged_ms),
        Timed::Coda => Some(profile.coda_ms(padded, entries()) + staged_ms),
        Timed::Prefill => Some(profile.prefill_ms((0..point.batch).map(|_| (point.context, point.tokens)))),
        Timed::Offload | Timed::Build | Timed::Launch | Timed::Read => None,
    }
}

/// The errors of every stage that was measured.
pub fn errors(profile: &Profile, rows: &[Measurement]) -> BTreeMap<Timed, Errors> {
    let mut by_stage: BTreeMap<Timed, Vec<(f64, Point)>> = BTreeMap::new();
    for row in rows {
        if let Some(predicted) = predicted_ms(profile, row.point) {
            by_stage.entry(row.point.timed).or_default().push((predicted / row.times.time_ms - 1.0, row.point));
        }
    }
    let sum_up = |errors: Vec<(f64, Point)>| {
        let mean = errors.iter().map(|(error, _)| error.abs()).sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        worst.map(|&(worst, worst_at)| Errors { points: errors.len(), mean, worst, worst_at })
    };
    by_stage.into_iter().filter_map(|(timed, errors)| Some((timed, sum_up(errors)?))).collect()
}

/// What a profile is judged by: core steps, or whole steps where no core was timed by itself.
///
/// # Errors
/// Neither was timed.
pub fn judged(errors: &BTreeMap<Timed, Errors>) -> Result<(Timed, Errors), CalibrateError> {
    let of = |timed| errors.get(&timed).map(|errors| (timed, *errors));
    of(Timed::Core).or_else(|| of(Timed::Step)).ok_or(CalibrateError::NothingToJudge)
}

/// The judged stage's errors are no larger than [`MEAN_MAX`] and [`WORST_MAX`], or than the profile's own of left-out points.
pub fn holds(profile: &Profile, judged: &Errors) -> bool {
    let own = profile.fit.as_ref();
    let mean_max = own.map_or(MEAN_MAX, |fit| fit.cross_validated_error.max(MEAN_MAX));
    let worst_max = own.map_or(WORST_MAX, |fit| fit.cross_validated_error_max.max(WORST_MAX));
    judged.mean <= mean_max && judged.worst.abs() <= worst_max
}
