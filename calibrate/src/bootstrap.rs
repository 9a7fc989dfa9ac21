//! Intervals without assumptions about the noise: the fit is repeated on points drawn with replacement.

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::cost::{COEFFICIENTS, Sample, Shape, fit};

/// Draws without a fit (all points at one batch size, say) per wanted fit, before giving up.
const DRAWS_PER_FIT_MAX: u32 = 10;

/// The random stream of resampled points; no other purpose shares it.
const STREAM: u128 = 0x6361_6c69_6272_6174;

/// The middle 95% of each coefficient over resampled fits, in the order of [`COEFFICIENTS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// The 2.5% quantiles.
    pub low: [f64; COEFFICIENTS.len()],
    /// The 97.5% quantiles.
    pub high: [f64; COEFFICIENTS.len()],
}

/// Refits a shape to `fits` resamplings of the points, or `None` if most resamplings have no fit.
pub fn resample(samples: &[Sample], shape: Shape, fits: u32, seed: u64) -> Option<Bootstrap> {
    let mut random = Pcg64::new(seed.into(), STREAM);
    let mut drawn = Vec::with_capacity(samples.len());
    let mut coefficients = Vec::with_capacity(fits as usize);
    for _ in 0..fits.saturating_mul(DRAWS_PER_FIT_MAX) {
        if coefficients.len() == fits as usize {
            break;
        }
        drawn.clear();
        drawn.extend((0..samples.len()).map(|_| samples[random.random_range(0..samples.len())]));
        coefficients.extend(fit(&drawn, shape).map(|fit| fit.coefficients));
    }
    if coefficients.len() < (fits as usize).max(1) {
        return None;
    }
    let quantile = |share: f64| {
        std::array::from_fn(|coefficient| {
            let mut values: Vec<f64> = coefficients.iter().map(|values| values[coefficient]).collect();
            values.sort_by(f64::total_cmp);
            values[((values.len() - 1) as f64 * share).round() as usize]
        })
    };
    Some(Bootstrap { low: quantile(0.025), high: quantile(0.975) })
}
