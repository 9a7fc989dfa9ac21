//! `tau(r) = tau_0 + tau_r r` at each point (batch, context): what the boundary costs, and what a loop costs.

use std::collections::BTreeMap;

use crate::cost::r_squared;
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Point, Timed};

/// The line through the times of one point over its loop counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthFit {
    /// Sequences, not padded.
    pub batch: u32,
    /// KV entries per row.
    pub context: u32,
    /// The intercept: prelude and coda.
    pub tau_0_ms: f64,
    /// The slope: one core application inside the fused step.
    pub tau_r_ms: f64,
    /// Coefficient of determination; 1 for two times, which a line always meets.
    pub r_squared: f64,
    /// Times that the line was fitted to.
    pub times: u32,
    /// The line at the most loops that were timed.
    pub deepest_ms: f64,
    /// The most loops that were timed.
    pub deepest: u32,
}

/// Fits every point's line by plain least squares, in order of context and batch; a loop count has one time, see
/// [`medians`](crate::measurements::medians).
///
/// # Errors
/// No fused steps; a point with a single loop count, or whose slope is not positive.
pub fn by_point(measurements: &[Measurement]) -> Result<Vec<DepthFit>, CalibrateError> {
    let mut points: BTreeMap<(u32, u32), Vec<&Measurement>> = BTreeMap::new();
    for step in measurements.iter().filter(|measurement| measurement.point.timed == Timed::Step) {
        points.entry((step.point.context, step.point.batch)).or_default().push(step);
    }
    if points.is_empty() {
        return Err(CalibrateError::NoSteps);
    }
    points.into_values().map(|steps| line(&steps)).collect()
}

fn line(steps: &[&Measurement]) -> Result<DepthFit, CalibrateError> {
    let &Measurement { line, point, .. } = steps[0];
    let Point { batch, context, loops, .. } = point;
    if steps.iter().all(|step| step.point.loops == loops) {
        return Err(CalibrateError::OneLoopCount { line, point });
    }
    let mean = |value: fn(&Measurement) -> f64| steps.iter().map(|step| value(step)).sum::<f64>() / steps.len() as f64;
    let (mean_loops, mean_ms) = (mean(|step| f64::from(step.point.loops)), mean(|step| step.times.time_ms));
    let moment = |of: &dyn Fn(&Measurement) -> f64| {
        steps.iter().map(|step| (f64::from(step.point.loops) - mean_loops) * of(step)).sum::<f64>()
    };
    let per_loop_ms = moment(&|step| step.times.time_ms) / moment(&|step| f64::from(step.point.loops));
    if per_loop_ms <= 0.0 {
        return Err(CalibrateError::NoSlope { line, point, per_loop_ms });
    }
    let tau_0_ms = mean_ms - per_loop_ms * mean_loops;
    let at = |loops: u32| tau_0_ms + per_loop_ms * f64::from(loops);
    let times: Vec<_> = steps.iter().map(|step| (step.times.time_ms, at(step.point.loops))).collect();
    let deepest = steps.iter().map(|step| step.point.loops).max().unwrap_or(loops);
    Ok(DepthFit {
        batch,
        context,
        tau_0_ms,
        tau_r_ms: per_loop_ms,
        r_squared: r_squared(&times),
        times: steps.len() as u32,
        deepest_ms: at(deepest),
        deepest,
    })
}
