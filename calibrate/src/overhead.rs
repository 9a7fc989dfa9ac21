//! What a stage's own launch adds over running inside one fused step.

use engine::interval::student_t_95;

use crate::depth::DepthFit;
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Point, Timed};

/// The staged core against the slope of the fused step, over the points where both were timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageOverhead {
    /// Points at which both were timed.
    pub points: usize,
    /// The weighted mean difference; negative if staging is faster.
    pub mean_us: f64,
    /// Half the width of its 95% interval; infinite for one point.
    pub half_width_us: f64,
}

impl StageOverhead {
    /// `None` without staged cores. Both times have errors in proportion to the step, so a point weighs one over its square.
    ///
    /// # Errors
    /// A staged core at a point without fused steps.
    pub(crate) fn new(measurements: &[Measurement], points: &[DepthFit]) -> Result<Option<Self>, CalibrateError> {
        let mut weighted_us = Vec::new();
        let cores = measurements.iter().filter(|row| row.point.timed == Timed::Core);
        for &Measurement { line, point, times, .. } in cores {
            let Point { batch, context, .. } = point;
            let fused = points.iter().find(|point| (point.batch, point.context) == (batch, context));
            let fused = fused.ok_or(CalibrateError::NoFusedStep { line, point })?;
            weighted_us.push((fused.deepest_ms.powi(-2), (times.time_ms - fused.tau_r_ms) * 1e3));
        }
        let points = weighted_us.len();
        if points == 0 {
            return Ok(None);
        }
        let weight: f64 = weighted_us.iter().map(|(weight, _)| weight).sum();
        let mean_us = weighted_us.iter().map(|(weight, value)| weight * value).sum::<f64>() / weight;
        let squares: f64 = weighted_us.iter().map(|(weight, value)| weight * (value - mean_us).powi(2)).sum();
        let half_width_us = match points - 1 {
            0 => f64::INFINITY,
            degrees => student_t_95(degrees) * (squares / degrees as f64 / weight).sqrt(),
        };
        Ok(Some(Self { points, mean_us, half_width_us }))
    }
}
