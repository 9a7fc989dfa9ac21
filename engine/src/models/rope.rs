//! Rotary positions as numbers: frequencies, what longer contexts make of them, and cosines and sines by position.
//!
//! Powers, frequencies and angles are f32, as the released models compute them. Every backend reads these numbers.

use std::f64::consts::TAU;

use half::bf16;
use serde::{Deserialize, Serialize};

use crate::architecture::Architecture;

/// Which channels of a head are turned together, and in which precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeForm {
    /// (i, i + dim / 2), by factors rounded to the storage type (`rotate_half` of Llama's descendants).
    Halves,
    /// (2 i, 2 i + 1), in f32.
    Neighbours,
}

/// How frequencies are changed for contexts longer than those of the first training; names and formulas are those of
/// `rope_scaling` in Hugging Face configs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// Positions divided by a factor.
    Linear {
        /// Longer by so much.
        factor: f64,
    },
    /// Low frequencies divided, high ones kept, those between blended.
    Llama3 {
        /// Longer by so much.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are stretched in full.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// The context of the first training, in tokens.
        original_max_position_embeddings: f64,
    },
    /// The same with a ramp over the pairs, and attention sharpened.
    Yarn {
        /// Longer by so much.
        factor: f64,
        /// Pairs that turn more often than this over the original context are kept.
        beta_fast: f64,
        /// Pairs that turn less often are stretched in full.
        beta_slow: f64,
        /// What cosines and sines are multiplied by.
        attention_factor: f64,
        /// The context of the first training, in tokens.
        original_max_position_embeddings: f64,
    },
}

impl RopeScaling {
    /// Whether its numbers make sense.
    ///
    /// # Errors
    /// What must be different.
    pub fn check(&self) -> Result<(), String> {
        let at_least_one = |name: &str, value: f64| match value >= 1.0 && value.is_finite() {
            true => Ok(()),
            false => Err(format!("{name} must be a number of at least 1, got {value}")),
        };
        let ordered = |low: (&str, f64), high: (&str, f64)| match low.1 > 0.0 && low.1 < high.1 && high.1.is_finite() {
            true => Ok(()),
            false => Err(format!("{} must be above 0 and below {}, got {} and {}", low.0, high.0, low.1, high.1)),
        };
        match *self {
            Self::Linear { factor } => at_least_one("factor", factor),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                at_least_one("factor", factor)?;
                at_least_one("original_max_position_embeddings", original_max_position_embeddings)?;
                ordered(("low_freq_factor", low_freq_factor), ("high_freq_factor", high_freq_factor))
            }
            Self::Yarn { factor, beta_fast, beta_slow, attention_factor, original_max_position_embeddings } => {
                at_least_one("factor", factor)?;
                at_least_one("original_max_position_embeddings", original_max_position_embeddings)?;
                ordered(("beta_slow", beta_slow), ("beta_fast", beta_fast))?;
                ordered(("attention_factor", attention_factor), ("100", 100.0))
            }
        }
    }
}

/// The turning of a model's heads, position by position.
#[derive(Clone, Debug)]
pub struct Rope {
    form: RopeForm,
    /// By pair.
    frequencies: Vec<f32>,
    attention_factor: f32,
}

impl Rope {
    /// Of a model.
    pub fn new(architecture: &Architecture) -> Self {
        let dim = architecture.head_dim as f32;
        let theta = architecture.rope_theta();
        let power = |pair: u64| libm::pow(theta, f64::from((2 * pair) as f32 / dim)) as f32;
        let frequencies: Vec<f32> = (0..architecture.head_dim / 2).map(|pair| 1.0 / power(pair)).collect();
        let (frequencies, attention_factor) = match architecture.rope_scaling {
            None => (frequencies, 1.0),
            Some(scaling) => scaled(&frequencies, scaling, (theta, f64::from(dim))),
        };
        Self { form: architecture.form().rope, frequencies, attention_factor }
    }

    /// Which channels turn together.
    pub fn form(&self) -> RopeForm {
        self.form
    }

    /// Pairs of channels a head.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// (cos, sin) of every pair at a position, before any rounding to a storage type.
    pub fn factors(&self, position: u32) -> impl Iterator<Item = (f32, f32)> {
        self.frequencies.iter().map(move |frequency| {
            let angle = f64::from(position as f32 * frequency);
            (libm::cos(angle) as f32 * self.attention_factor, libm::sin(angle) as f32 * self.attention_factor)
        })
    }

    /// The factors [cos, sin] of a bf16 model for positions below `positions`: by position, then pair.
    pub fn table(&self, positions: u32) -> Vec<[f32; 2]> {
        let stored = |x: f32| match self.form {
            RopeForm::Halves => bf16::from_f32(x).to_f32(),
            RopeForm::Neighbours => x,
        };
        (0..positions).flat_map(|p| self.factors(p).map(move |(cos, sin)| [stored(cos), stored(sin)])).collect()
    }
}

/// Frequencies under a scaling, and the factor of cosines and sines.
fn scaled(frequencies: &[f32], scaling: RopeScaling, (theta, dim): (f64, f64)) -> (Vec<f32>, f32) {
    match scaling {
        RopeScaling::Linear { factor } => (frequencies.iter().map(|f| f / factor as f32).collect(), 1.0),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
            let stretch = |frequency: &f32| {
                let f = f64::from(*frequency);
                let turns = original_max_position_embeddings * f / TAU;
                let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                ((1.0 - kept) * f / factor + kept * f) as f32
            };
            (frequencies.iter().map(stretch).collect(), 1.0)
        }
        RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, original_max_position_embeddings } => {
            // The pair that turns so often over the original context.
            let pair = |turns: f64| dim * (original_max_position_embeddings / (turns * TAU)).ln() / (2.0 * theta.ln());
            let low = pair(beta_fast).floor().max(0.0);
            let high = pair(beta_slow).ceil().min(dim - 1.0);
            let high = if high > low { high } else { low + 0.001 };
            let blend = |(i, frequency): (usize, &f32)| {
                let f = f64::from(*frequency);
                let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                (stretched * f / factor + (1.0 - stretched) * f) as f32
            };
            (frequencies.iter().enumerate().map(blend).collect(), attention_factor as f32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: Option<RopeScaling>) -> Rope {
        let model = Architecture::builtin("ouro-1.4b").expect("a built-in model");
        Rope::new(&Architecture { rope_theta: Some(500_000.0), rope_scaling: scaling, ..model })
    }

    #[test]
    fn powers_are_those_of_single_precision() {
        // 500000^(-126/128), computed from exponent and base in f32.
        let last = *rope(None).frequencies.last().expect("pairs");
        assert!((f64::from(last) * 500_000f64.powf(126.0 / 128.0) - 1.0).abs() < 2e-7, "{last}");
        assert_eq!(rope(None).factors(0).next(), Some((1.0, 0.0)));
    }

    #[test]
    fn scalings_keep_high_frequencies_and_divide_low_ones() {
        let plain = rope(None);
        let (factor, original_max_position_embeddings) = (8.0, 8192.0);
        let llama3 = RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings,
        };
        let yarn = RopeScaling::Yarn {
            factor,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.2,
            original_max_position_embeddings,
        };
        for scaling in [llama3, yarn] {
            let rope = rope(Some(scaling));
            let ratio = |pair: usize| f64::from(plain.frequencies[pair]) / f64::from(rope.frequencies[pair]);
            assert!((ratio(0) - 1.0).abs() < 1e-6 && (ratio(63) - factor).abs() < 1e-5, "{scaling:?}");
            assert!((1..64).all(|pair| ratio(pair) >= ratio(pair - 1) - 1e-6), "{scaling:?}");
            assert_eq!(scaling.check(), Ok(()));
        }
        assert!(rope(Some(yarn)).factors(0).all(|(cos, sin)| (cos, sin) == (1.2, 0.0)));
        let linear = rope(Some(RopeScaling::Linear { factor: 4.0 }));
        assert_eq!(linear.factors(400).collect::<Vec<_>>(), plain.factors(100).collect::<Vec<_>>());
        let wrong = RopeScaling::Linear { factor: 0.0 }.check();
        assert_eq!(wrong, Err("factor must be a number of at least 1, got 0".into()));
    }
}
