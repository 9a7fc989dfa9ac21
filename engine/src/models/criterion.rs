//! What a token is judged by after every loop: a trained gate, how far the state moved, or how much the logits changed that
//! it would give if it left now.
//!
//! All but the hazard are the criteria of the released recurrent-depth code, with the thresholds that its `auto` takes:
//! `generate_with_adaptive_compute` in `recpre/raven_modeling_minimal.py` of seal-rg/recurrent-pretraining at 0d9ed974.
//! Later copies of that file take 0.001 for KL. Its `minp-kl` is not here.

use serde::{Deserialize, Serialize};

use super::family::ExitSignal;
use crate::architecture::Architecture;

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The model's trained gate: the chance to have left by now reaches the threshold.
    Hazard,
    /// `|s_r - s_(r-1)| / |s_r|` falls below the threshold; the released code calls it `latent-diff`.
    LatentDifference,
    /// `|H_r - H_(r-1)|`, of the entropies of the logits' softmax in nats, falls below the threshold; `entropy-diff`. The
    /// entropy before the first loop counts as 100.
    EntropyDifference,
    /// `KL(p_(r-1) || p_r)`, of the logits' softmax in nats, falls below the threshold; `kl`. What stands before the first
    /// loop is the uniform distribution.
    Kl,
    /// The largest logit has been the same token's for as many loops in a row, beyond the first, as the threshold says;
    /// `argmax-stability`.
    ArgmaxStability,
}

impl Criterion {
    /// Every criterion, in the order in which texts list them.
    pub const ALL: [Self; 5] =
        [Self::Hazard, Self::LatentDifference, Self::EntropyDifference, Self::Kl, Self::ArgmaxStability];

    /// The model's own: its gate, else how far the state moved.
    pub fn of(architecture: &Architecture) -> Self {
        match architecture.form().exit {
            ExitSignal::Hazard => Self::Hazard,
            ExitSignal::Distance => Self::LatentDifference,
        }
    }

    /// In scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hazard => "hazard",
            Self::LatentDifference => "latent_difference",
            Self::EntropyDifference => "entropy_difference",
            Self::Kl => "kl",
            Self::ArgmaxStability => "argmax_stability",
        }
    }

    /// What the released code takes where nobody says.
    pub fn published_threshold(self) -> Option<f32> {
        match self {
            Self::Hazard => None,
            Self::LatentDifference => Some(0.03),
            Self::EntropyDifference => Some(1e-3),
            Self::Kl => Some(5e-4),
            Self::ArgmaxStability => Some(5.0),
        }
    }

    /// It needs logits after every loop: the layers behind the loop and the LM head run each time.
    pub fn reads_logits(self) -> bool {
        matches!(self, Self::EntropyDifference | Self::Kl | Self::ArgmaxStability)
    }

    /// Bytes of the logits that each position on its way keeps from one loop to the next, in f32. Of the entropy and the
    /// largest logit the host remembers one number.
    pub fn kept_bytes(self, architecture: &Architecture) -> u64 {
        if self == Self::Kl { 4 * architecture.vocab } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_and_names_are_the_published_ones() {
        let published = Criterion::ALL.map(|criterion| (criterion.name(), criterion.published_threshold()));
        let expected = [
            ("hazard", None),
            ("latent_difference", Some(0.03)),
            ("entropy_difference", Some(0.001)),
            ("kl", Some(0.0005)),
            ("argmax_stability", Some(5.0)),
        ];
        assert_eq!(published, expected);
        for criterion in Criterion::ALL {
            assert_eq!(serde_json::to_string(&criterion).unwrap(), format!("\"{}\"", criterion.name()));
        }
    }

    #[test]
    fn a_models_own_criterion_needs_no_logits() {
        for model in Architecture::BUILTIN {
            let architecture = Architecture::builtin(model).unwrap();
            let own = Criterion::of(&architecture);
            assert!(!own.reads_logits() && own.kept_bytes(&architecture) == 0, "{model}");
        }
        let huginn = Architecture::builtin("huginn-3.5b").unwrap();
        assert_eq!(Criterion::Kl.kept_bytes(&huginn), 4 * 65_536);
    }
}
