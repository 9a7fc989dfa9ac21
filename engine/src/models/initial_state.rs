//! The initial state s_0 of loops that start from one of their own: zero, or noise keyed by position.
//!
//! A loop starts from s_0, so a scheduler that drew it in the order of execution would change the tokens.
//! Here it is a function of (seed, position, channel) alone: chunks, shared prefixes and schedules cannot move it.

use serde::{Deserialize, Serialize};

use super::counter::{Stream, centred, draw};
use crate::whole;

/// Where a loop starts that does not start from the embedding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialState {
    /// Zeros.
    #[default]
    Zero,
    /// A truncated normal keyed by position.
    Noise {
        /// Another seed, other noise.
        #[serde(deserialize_with = "whole::read")]
        seed: u64,
    },
}

impl InitialState {
    /// The seed of its noise.
    pub fn seed(self) -> Option<u64> {
        match self {
            Self::Zero => None,
            Self::Noise { seed } => Some(seed),
        }
    }

    /// One channel of s_0 at a position, before rounding to the storage type; `std` is the model's
    /// ([`crate::architecture::Architecture::noise_std`]).
    pub fn value(self, position: u32, channel: u32, std: f32) -> f32 {
        match self {
            Self::Zero => 0.0,
            Self::Noise { seed } => std * truncated_normal(seed, position, channel),
        }
    }
}

/// Huginn draws with std sqrt(2 / (5 * width)) and multiplies by sqrt(width): sqrt(2/5) for every width.
pub const HUGINN_STD: f32 = 0.632_455_5;

/// The normal mass within three standard deviations.
const MASS: f32 = 0.997_300_2;

/// A standard normal cut at three standard deviations, by inversion.
///
/// The quantile is `q P(u) / Q(u)` with `u = 1/4 - q^2` for the centred probability `q`: our own minimax fit, off by
/// 4.6e-4 at most, a small fraction of a bf16 ulp almost everywhere. All coefficients are positive, so nothing cancels.
/// It uses `+ - * /` in f32 and in this order only; a GPU without contraction to FMA gives the same bits.
pub fn truncated_normal(seed: u64, position: u32, channel: u32) -> f32 {
    let q = MASS * centred(draw(seed, Stream::InitialState, u64::from(position), u64::from(channel)));
    let u = (0.5 - q) * (0.5 + q);
    let p = ((1.494_521_5 * u + 0.734_965_3) * u + 0.018_001_003) * u + 2.958_522_8e-5;
    let d = ((u + 0.206_390_53) * u + 0.003_418_918_7) * u + 4.188_604e-6;
    q * (p / d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_a_normal_cut_at_three() {
        let n = 200_000u32;
        let draws: Vec<f64> = (0..n).map(|i| f64::from(truncated_normal(5, i / 64, i % 64))).collect();
        let moment = |k| draws.iter().map(|x| x.powi(k)).sum::<f64>() / f64::from(n);
        let within = |z: f64| draws.iter().filter(|x| x.abs() < z).count() as f64 / f64::from(n);
        assert!(draws.iter().all(|x| x.abs() < 3.0));
        assert!(moment(1).abs() < 0.01);
        // The variance of a normal cut at 3 is 0.97334.
        assert!((moment(2) - 0.97334).abs() < 0.01, "{}", moment(2));
        assert!((within(1.0) - 0.682_689 / 0.997_300).abs() < 0.004);
        assert!((within(2.0) - 0.954_500 / 0.997_300).abs() < 0.002);
    }

    #[test]
    fn noise_is_pinned_for_every_backend() {
        let bits: Vec<u32> =
            [(0, 0), (0, 1), (1, 0), (4095, 5279)].map(|(p, c)| truncated_normal(1, p, c).to_bits()).to_vec();
        assert_eq!(bits, PINNED, "another backend that disagrees here disagrees everywhere");
    }

    /// Computed once; any device must give these.
    const PINNED: [u32; 4] = [1_053_150_404, 3_209_865_509, 1_066_237_409, 3_209_330_638];
}
