//! From the rounds to a profile of a step that nobody saw inside.

use engine::architecture::Architecture;
use engine::profile::{Buckets, DeviceSpec, HostCost, KvTile, Profile, StageCost, Transfer};

use super::Rounds;
use crate::calibration::quality;
use crate::cost::{COEFFICIENTS, Sample, significant};
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Timed, medians};
use crate::prefill::Prefill;
use crate::validation::{Judged, judge};

/// What times from outside do not say.
pub const CANNOT_TELL: &str = "from outside these cannot be told apart: prelude, loops and coda, which are one step here (the \
                               profile has all of it in the core, so it says nothing of early exits); the device's time, the \
                               host's, the server's own and the way to it, which are all in delta and gamma; what a launch \
                               adds; moving KV";

/// The fits to what was seen.
#[derive(Clone, Debug)]
pub struct Outside {
    /// A whole decode step at full depth.
    pub step: Judged,
    /// A prompt's first token, where enough lengths were timed.
    pub prefill: Prefill,
    loops: f64,
}

impl Outside {
    /// Fits whole steps and first tokens; repeats of a point count as their median.
    ///
    /// # Errors
    /// Times that cannot tell the coefficients apart, or too few to judge the fit.
    pub fn new(rounds: &Rounds, model: &Architecture, buckets: Buckets) -> Result<Self, CalibrateError> {
        let rows = medians(&rounds.rows, true);
        let of = |timed| rows.iter().filter(move |row| row.point.timed == timed).copied().collect::<Vec<_>>();
        let sample = |row: &Measurement| Sample {
            batch: row.point.batch,
            context: row.point.context,
            rows: buckets.pad(row.point.batch).into(),
            entries: f64::from(row.point.batch) * f64::from(row.point.context),
            time_ms: row.times.time_ms,
            scale_ms: row.times.time_ms,
        };
        let step = judge(Timed::Step, of(Timed::Step).iter().map(sample).collect(), true)?;
        let prefill = Prefill::new(&of(Timed::Prefill), false)?;
        Ok(Self { step, prefill, loops: f64::from(model.r_max.0) })
    }

    /// A whole step's coefficients with half their 95% intervals, where they were estimated.
    pub fn coefficients(&self) -> impl Iterator<Item = (&'static str, f64, Option<f64>)> {
        let fit = &self.step.chosen().fit;
        COEFFICIENTS.into_iter().enumerate().map(|(i, name)| (name, fit.coefficients[i], fit.half_width(i)))
    }

    /// The profile: everything of a step is in the core, and each loop has its share.
    ///
    /// # Errors
    /// Costs that no simulation can use.
    pub fn profile(
        &self,
        model: &Architecture,
        device: &DeviceSpec,
        buckets: Buckets,
        (name, source): (&str, &str),
    ) -> Result<Profile, CalibrateError> {
        let StageCost { delta_ms, floor_ms, gamma_us, alpha_ns } = self.step.chosen().fit.stage_cost();
        let share = |value: f64| significant(value / self.loops);
        let mut fit = quality(&self.step);
        fit.half_width.values_mut().for_each(|half| *half = share(*half));
        if let Some(covariance) = &mut fit.covariance {
            let squared = |entry: f64| significant(entry / self.loops.powi(2));
            covariance.matrix = covariance.matrix.map(|row| row.map(squared));
        }
        let nothing = StageCost { delta_ms: 0.0, floor_ms: 0.0, gamma_us: 0.0, alpha_ns: 0.0 };
        let profile = Profile {
            name: name.into(),
            model: model.name.clone(),
            device: device.clone(),
            source: format!("{source}; {CANNOT_TELL}"),
            core: StageCost {
                delta_ms: share(delta_ms),
                floor_ms: share(floor_ms),
                gamma_us: share(gamma_us),
                alpha_ns: share(alpha_ns),
            },
            prelude: nothing,
            coda: nothing,
            graphs: Default::default(),
            prefill: self.prefill.cost(),
            kv_tile: KvTile::default(),
            stage_overhead_us: 0.0,
            host: HostCost::default(),
            buckets,
            transfer: Transfer::default(),
            variants: Default::default(),
            fit: Some(fit),
        };
        profile.check().map_err(|source| CalibrateError::Profile { name: name.into(), source })?;
        Ok(profile)
    }
}
