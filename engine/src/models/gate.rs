//! Who leaves the loop when: every criterion ([`Criterion`]) as a rule on one number per loop.
//!
//! An executor computes the number (a gate's sigmoid, a distance, what the logits say); the rule turns it into an exit depth.

use serde::{Deserialize, Serialize};

use super::criterion::Criterion;
use crate::architecture::Architecture;
use crate::units::Depth;

/// A live exit gate as a scenario asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    /// What a token is judged by; the model's own criterion by default ([`Criterion::of`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criterion: Option<Criterion>,
    /// `hazard`: leave once the cumulative exit probability reaches it; 1 never leaves early. `argmax_stability`: leave
    /// once the largest logit has stayed the same for so many loops. Of all others: leave once the difference falls below
    /// it; 0 never leaves early. The published one by default ([`Criterion::published_threshold`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// The shallowest loop at which the criterion may fire, before any delay; the model's own by default.
    #[serde(default)]
    pub min_depth: Option<Depth>,
    /// Decide one loop early, as the lookahead overlap needs it.
    #[serde(default)]
    pub lookahead: bool,
}

impl GateSpec {
    /// The model's own criterion at a threshold, decided at once.
    pub fn at(threshold: f32) -> Self {
        Self { threshold: Some(threshold), ..Self::default() }
    }

    /// What a model's tokens are judged by.
    ///
    /// # Errors
    /// It is a hazard, and the model has no gate.
    pub fn criterion(&self, architecture: &Architecture) -> Result<Criterion, GateError> {
        let own = Criterion::of(architecture);
        match self.criterion {
            Some(Criterion::Hazard) if own != Criterion::Hazard => {
                Err(GateError::NoGate { model: architecture.name.clone() })
            }
            asked => Ok(asked.unwrap_or(own)),
        }
    }

    /// The threshold for a criterion: the one that is given, else the published one.
    ///
    /// # Errors
    /// There is none, or it is none for this criterion.
    pub fn threshold_of(&self, criterion: Criterion) -> Result<f32, GateError> {
        let threshold = self.threshold.or(criterion.published_threshold()).ok_or(GateError::NoThreshold)?;
        if !threshold.is_finite() {
            return Err(GateError::NotANumber(threshold));
        }
        if criterion == Criterion::ArgmaxStability && (threshold < 1.0 || threshold.fract() != 0.0) {
            return Err(GateError::NotLoops(threshold));
        }
        Ok(threshold)
    }
}

/// A gate that a model cannot have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GateError {
    /// Nothing gives a hazard.
    #[error(
        "{model} has no trained gate that gives a hazard: take latent_difference, entropy_difference, kl or \
         argmax_stability"
    )]
    NoGate {
        /// The model.
        model: String,
    },
    /// A hazard's threshold is a choice.
    #[error("none is published for `hazard`: give one, such as 0.5 (1 never leaves early)")]
    NoThreshold,
    /// Nothing can be compared with it.
    #[error("the threshold must be a number, got {0}")]
    NotANumber(f32),
    /// Loops are counted in whole numbers.
    #[error("argmax_stability counts loops: its threshold must be a whole number from 1, got {0}")]
    NotLoops(f32),
}

impl GateError {
    /// The field of [`GateSpec`] that it is about.
    pub fn field(&self) -> &'static str {
        match self {
            Self::NoGate { .. } => "criterion",
            Self::NoThreshold | Self::NotANumber(_) | Self::NotLoops(_) => "threshold",
        }
    }
}

/// Which number the criterion looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `sigmoid(w . h + b)` of the released gate: the hazard of leaving at this loop.
    Hazard,
    /// The same of `lookahead_gate.*`, trained to predict the next loop's hazard.
    NextHazard,
    /// `|s_r - s_(r-1)| / |s_r|`.
    Distance,
    /// Entropy of the softmax of the logits after this loop, in nats.
    Entropy,
    /// `KL(p_(r-1) || p_r)` of the softmax of the logits, in nats.
    Kl,
    /// The id of the largest logit after this loop, of equal ones the lowest; exact in f32 below 2^24.
    Argmax,
}

/// What the entropy before the first loop counts as: no distribution over tokens has so much, as in the released code.
const ENTROPY_BEFORE: f32 = 100.0;

/// A gate ready to run: what to compute, when it may fire, and how late it takes effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// What the executor computes after each loop.
    pub signal: Signal,
    /// See [`GateSpec::threshold`].
    pub threshold: f32,
    /// The first depth at which the criterion may fire.
    pub first: Depth,
    /// Loops from firing to leaving.
    pub delay: u8,
    /// Full depth: every row leaves there.
    pub r_max: Depth,
}

/// What a gate remembers of a row between loops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateMemory {
    /// The probability of not having left; hazards only.
    pub survival: f32,
    /// The last loop's entropy, or the id of its largest logit.
    pub last: Option<f32>,
    /// Loops in a row that kept the largest logit.
    pub stable: u8,
    /// The depth after which the row leaves, once that is decided.
    pub leaves_after: Option<Depth>,
}

impl Default for GateMemory {
    fn default() -> Self {
        Self { survival: 1.0, last: None, stable: 0, leaves_after: None }
    }
}

impl Gate {
    /// The gate of a model that runs up to `r_max` loops. `trained_lookahead`: the weights hold `lookahead_gate.*`.
    ///
    /// # Errors
    /// The model cannot have it.
    pub fn new(
        spec: GateSpec,
        architecture: &Architecture,
        r_max: Depth,
        trained_lookahead: bool,
    ) -> Result<Self, GateError> {
        let criterion = spec.criterion(architecture)?;
        let threshold = spec.threshold_of(criterion)?;
        let late = u8::from(spec.lookahead);
        let (signal, delay) = match criterion {
            Criterion::Hazard if spec.lookahead && trained_lookahead => (Signal::NextHazard, 0),
            Criterion::Hazard => (Signal::Hazard, late),
            Criterion::LatentDifference => (Signal::Distance, late),
            Criterion::EntropyDifference => (Signal::Entropy, late),
            Criterion::Kl => (Signal::Kl, late),
            Criterion::ArgmaxStability => (Signal::Argmax, late),
        };
        // r_min counts the lookahead's loop; the criterion itself may fire one loop before. A trained lookahead
        // gate speaks of the next loop, so the depth that it speaks of starts at r_min.
        let first = match signal {
            Signal::NextHazard => architecture.r_min,
            _ => Depth(architecture.r_min.0.max(2) - 1),
        };
        Ok(Self { signal, threshold, first: spec.min_depth.map_or(first, |min| min.max(first)), delay, r_max })
    }

    /// How reports must name the gate: a delayed stand-in is not the paper's trained one.
    pub fn label(&self) -> &'static str {
        match (self.signal, self.delay) {
            (Signal::Hazard, 0) => "released gate",
            (Signal::Hazard, _) => "released gate, delayed by one loop (stand-in for a trained lookahead gate)",
            (Signal::NextHazard, _) => "trained lookahead gate",
            (Signal::Distance, 0) => "normalized L2",
            (Signal::Distance, _) => "normalized L2, delayed by one loop",
            (Signal::Entropy, 0) => "entropy difference",
            (Signal::Entropy, _) => "entropy difference, delayed by one loop",
            (Signal::Kl, 0) => "KL divergence",
            (Signal::Kl, _) => "KL divergence, delayed by one loop",
            (Signal::Argmax, 0) => "argmax stability",
            (Signal::Argmax, _) => "argmax stability, delayed by one loop",
        }
    }

    /// True if no signal lets a token leave early: its threshold is at the end of the range.
    pub fn never_fires(&self) -> bool {
        match self.signal {
            Signal::Hazard | Signal::NextHazard => self.threshold >= 1.0,
            Signal::Distance | Signal::Entropy | Signal::Kl => self.threshold <= 0.0,
            // Nothing stands before the first loop to be kept.
            Signal::Argmax => self.threshold >= f32::from(self.r_max.0),
        }
    }

    /// True if the exit is decided one loop before it happens.
    pub fn looks_ahead(&self) -> bool {
        self.delay > 0 || self.signal == Signal::NextHazard
    }

    /// Takes in the signal of the loop at `depth`; afterwards `memory.leaves_after` holds the exit if it is decided.
    ///
    /// Ouro: leaves at the smallest t with CDF_t = 1 - prod_(i<=t) (1 - lambda_i) >= threshold and t >= `first`; a
    /// minimum depth keeps the earlier loops' hazard. With [`Signal::NextHazard`] the caller starts the product with
    /// the released gate's first hazard through [`Self::survive`], since nothing predicts that one. Likewise a minimum
    /// depth keeps the loops that argmax stability counted before.
    pub fn observe(&self, memory: &mut GateMemory, depth: Depth, signal: f32) {
        if memory.leaves_after.is_some() {
            return;
        }
        let at = if self.signal == Signal::NextHazard { depth.next() } else { depth };
        // In f32 a CDF can round to 1 before r_max and a divergence to less than 0, but the end of the range means
        // full depth.
        let fires = self.meets(memory, signal) && !self.never_fires();
        // A gate that looks ahead has said its last word one loop before full depth.
        let last_word = Depth(self.r_max.0 - u8::from(self.looks_ahead()));
        if at >= self.first && fires {
            memory.leaves_after = Some(Depth(at.0.saturating_add(self.delay)).min(self.r_max));
        } else if depth >= last_word {
            memory.leaves_after = Some(self.r_max);
        }
    }

    /// Takes a signal into the memory; true if it meets the criterion.
    fn meets(&self, memory: &mut GateMemory, signal: f32) -> bool {
        match self.signal {
            Signal::Hazard | Signal::NextHazard => {
                self.survive(memory, signal);
                1.0 - memory.survival >= self.threshold
            }
            Signal::Distance | Signal::Kl => signal < self.threshold,
            Signal::Entropy => {
                let last = memory.last.replace(signal).unwrap_or(ENTROPY_BEFORE);
                (signal - last).abs() < self.threshold
            }
            Signal::Argmax => {
                let kept = memory.last.replace(signal) == Some(signal);
                memory.stable = if kept { memory.stable.saturating_add(1) } else { 0 };
                f32::from(memory.stable) >= self.threshold
            }
        }
    }

    /// Takes a hazard into the survival probability.
    pub fn survive(&self, memory: &mut GateMemory, hazard: f32) {
        memory.survival *= 1.0 - hazard;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(model: &str, threshold: f32, lookahead: bool, trained: bool) -> Gate {
        let architecture = Architecture::builtin(model).unwrap();
        Gate::new(GateSpec { lookahead, ..GateSpec::at(threshold) }, &architecture, architecture.r_max, trained)
            .unwrap()
    }

    fn of(model: &str, criterion: Criterion, threshold: Option<f32>, lookahead: bool) -> Result<Gate, GateError> {
        let architecture = Architecture::builtin(model).unwrap();
        let spec = GateSpec { criterion: Some(criterion), threshold, min_depth: None, lookahead };
        Gate::new(spec, &architecture, architecture.r_max, false)
    }

    fn exit(gate: Gate, signals: &[f32]) -> (u8, u8) {
        let mut memory = GateMemory::default();
        for (i, &signal) in signals.iter().enumerate() {
            let depth = Depth(i as u8 + 1);
            gate.observe(&mut memory, depth, signal);
            if let Some(leaves) = memory.leaves_after {
                return (depth.0, leaves.0);
            }
        }
        panic!("nothing decided after {} loops", signals.len());
    }

    #[test]
    fn ouro_leaves_where_the_cdf_reaches_the_threshold() {
        // Hazards 0.1, 0.5, 0.5, 0.5: CDF 0.1, 0.55, 0.775, then 1 by definition.
        let check = |q, decided_and_left| {
            assert_eq!(exit(gate("tiny-ouro", q, false, false), &[0.1, 0.5, 0.5, 0.5]), decided_and_left, "q = {q}");
        };
        check(0.05, (1, 1));
        check(0.5, (2, 2));
        check(0.7, (3, 3));
        check(0.9, (4, 4));
        check(1.0, (4, 4));
    }

    #[test]
    fn a_threshold_of_one_is_full_depth_even_if_the_cdf_rounds_to_one() {
        assert_eq!(exit(gate("tiny-ouro", 1.0, false, false), &[1.0, 1.0, 1.0, 1.0]), (4, 4));
    }

    #[test]
    fn a_minimum_depth_keeps_the_earlier_hazard() {
        let architecture = Architecture::builtin("tiny-ouro").unwrap();
        let spec = GateSpec { min_depth: Some(Depth(3)), ..GateSpec::at(0.5) };
        assert_eq!(exit(Gate::new(spec, &architecture, architecture.r_max, false).unwrap(), &[0.9, 0.0, 0.0]), (3, 3));
    }

    #[test]
    fn a_delayed_gate_leaves_one_loop_later_but_not_beyond_full_depth() {
        assert_eq!(exit(gate("tiny-ouro", 0.5, true, false), &[0.6]), (1, 2));
        assert_eq!(exit(gate("tiny-ouro", 0.5, true, false), &[0.1, 0.5]), (2, 3));
        assert_eq!(exit(gate("tiny-ouro", 0.9, true, false), &[0.1, 0.5, 0.5]), (3, 4));
        assert_eq!(exit(gate("tiny-huginn", 0.1, true, false), &[0.0, 0.05]), (2, 3));
    }

    #[test]
    fn a_trained_lookahead_gate_speaks_of_the_next_loop() {
        let gate = gate("tiny-ouro", 0.5, true, true);
        assert_eq!(exit(gate, &[0.6]), (1, 2));
        assert_eq!(exit(gate, &[0.1, 0.6]), (2, 3));
        assert_eq!(exit(gate, &[0.0, 0.0, 0.0]), (3, 4));
    }

    #[test]
    fn huginn_leaves_when_the_state_settles_from_the_second_loop_on() {
        assert_eq!(exit(gate("tiny-huginn", 0.1, false, false), &[0.0, 0.5, 0.05]), (3, 3));
        assert_eq!(exit(gate("tiny-huginn", 0.0, false, false), &[0.0; 8]), (8, 8));
        assert_eq!(exit(gate("tiny-huginn", 0.0, true, false), &[0.0; 8]), (7, 8));
    }

    #[test]
    fn entropies_are_compared_with_the_last_loops_and_the_first_with_100() {
        let gate = |threshold, late| of("tiny-huginn", Criterion::EntropyDifference, Some(threshold), late).unwrap();
        assert_eq!(exit(gate(0.1, false), &[3.0, 2.5, 2.45]), (3, 3));
        assert_eq!(exit(gate(0.1, true), &[3.0, 2.5, 2.45]), (3, 4));
        assert_eq!(exit(gate(0.6, false), &[3.0, 2.5]), (2, 2));
        assert_eq!(exit(gate(0.0, false), &[3.0; 8]), (8, 8));
        let ouro = of("tiny-ouro", Criterion::EntropyDifference, Some(60.0), false).unwrap();
        assert_eq!(exit(ouro, &[41.0]), (1, 1));
        assert_eq!(exit(ouro, &[39.0, 39.5]), (2, 2));
    }

    #[test]
    fn a_divergence_leaves_below_the_threshold_and_never_at_none() {
        let gate = |threshold| of("tiny-huginn", Criterion::Kl, threshold, false).unwrap();
        assert_eq!(exit(gate(None), &[0.0, 1e-3, 5e-4, 4.9e-4]), (4, 4));
        assert_eq!(exit(gate(Some(0.0)), &[-1e-9; 8]), (8, 8));
        assert_eq!(exit(gate(Some(1e-3)), &[f32::NAN; 8]), (8, 8));
    }

    #[test]
    fn the_largest_logit_must_stay_for_so_many_loops_beyond_the_first() {
        let gate = |threshold, late| of("tiny-huginn", Criterion::ArgmaxStability, Some(threshold), late).unwrap();
        assert_eq!(exit(gate(1.0, false), &[7.0, 7.0]), (2, 2));
        assert_eq!(exit(gate(2.0, false), &[7.0, 7.0, 9.0, 9.0, 9.0]), (5, 5));
        assert_eq!(exit(gate(2.0, true), &[7.0, 7.0, 9.0, 9.0, 9.0]), (5, 6));
        assert_eq!(exit(gate(7.0, false), &[7.0; 8]), (8, 8));
        assert!(gate(8.0, false).never_fires() && !gate(7.0, false).never_fires());
        let published = of("huginn-3.5b", Criterion::ArgmaxStability, None, false).unwrap();
        assert_eq!(exit(published, &[1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]), (7, 7));
    }

    #[test]
    fn what_a_model_cannot_have_says_what_to_change() {
        let error = |model, criterion, threshold| {
            let error = of(model, criterion, threshold, false).unwrap_err();
            (error.field(), error.to_string())
        };
        let (field, said) = error("tiny-huginn", Criterion::Hazard, Some(0.5));
        assert!(field == "criterion" && said.contains("tiny-huginn has no trained gate"), "{said}");
        let (field, said) = error("tiny-ouro", Criterion::Hazard, None);
        assert!(field == "threshold" && said.contains("none is published for `hazard`"), "{said}");
        for threshold in [0.0, 2.5, -1.0] {
            let (field, said) = error("tiny-ouro", Criterion::ArgmaxStability, Some(threshold));
            assert!(field == "threshold" && said.contains("a whole number from 1"), "{said}");
        }
        let (field, said) = error("tiny-nanbeige", Criterion::Kl, Some(f32::NAN));
        assert!(field == "threshold" && said.contains("must be a number, got NaN"), "{said}");
        for criterion in Criterion::ALL {
            let threshold = criterion.published_threshold().or(Some(0.5));
            assert!(of("tiny-ouro", criterion, threshold, true).is_ok(), "a model with a gate can have {criterion:?}");
        }
    }
}
