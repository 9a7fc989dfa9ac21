//! Whether times are possible at all: no device takes less than it needs to read the weights and the KV, or to multiply them.

use std::fmt;

use engine::architecture::Architecture;
use engine::profile::{DeviceSpec, Profile};

use crate::check::predicted_ms;
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Point, Timed, Times, median};

/// Weights beyond this are in no cache: every launch reads them from memory.
const CACHE_BYTES: u64 = 1 << 30;

/// Below this share of the least time, no error of a datasheet explains a table.
const IMPOSSIBLE: f64 = 0.5;

/// Below this share there is a warning.
const DOUBTFUL: f64 = 0.95;

/// What is judged: the stages that read most of the weights.
const STAGES: [Timed; 3] = [Timed::Step, Timed::Core, Timed::Prefill];

/// A stage against what the device needs at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The median over points of measured time over least time.
    pub share: f64,
    /// One of the points.
    pub example: Measurement,
    /// The least time there.
    pub least_ms: f64,
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share, example: Measurement { line, point, times, .. }, least_ms } = self;
        let (Point { timed, batch, context, .. }, Times { time_ms, .. }) = (point, times);
        write!(
            f,
            "rows of stage `{timed}` take {share:.2e} of the time in which the device can read the weights and multiply (line {line}: \
             batch {batch} at context {context} takes {time_ms:.4} ms, and needs {least_ms:.4} ms at least)"
        )
    }
}

impl Pace {
    /// The stage that beats the device's limits by most; `None` if no stage does to speak of. Repeats count as often as they are
    /// there.
    pub fn doubtful(rows: &[Measurement], model: &Architecture, device: &DeviceSpec) -> Option<Self> {
        let roofline = Profile::roofline(device, model);
        let pace = |timed| {
            let least = |row: &Measurement| predicted_ms(&roofline, row.point).filter(|&ms| ms > 0.0);
            let of_stage = || rows.iter().filter(|row| row.point.timed == timed);
            let (example, least_ms) = of_stage().find_map(|row| Some((*row, least(row)?)))?;
            let share = median(of_stage().filter_map(|row| Some(row.times.time_ms / least(row)?)));
            Some(Self { share, example, least_ms })
        };
        let fastest = STAGES.into_iter().filter_map(pace).min_by(|a, b| a.share.total_cmp(&b.share));
        fastest.filter(|pace| pace.share < DOUBTFUL)
    }

    /// An error where the weights fit into no cache and the times are far too short.
    ///
    /// # Errors
    /// [`CalibrateError::TooFast`].
    pub fn check(&self, model: &Architecture, device: &DeviceSpec) -> Result<(), CalibrateError> {
        if self.share >= IMPOSSIBLE || 2 * model.core_params() <= CACHE_BYTES {
            return Ok(());
        }
        Err(CalibrateError::TooFast { pace: *self, device: device.name.clone() })
    }
}
