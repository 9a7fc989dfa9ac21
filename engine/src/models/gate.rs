//! Who leaves the loop when: Ouro's hazard gate and Huginn's convergence criterion, as rules on one number per loop.
//!
//! An executor computes the number (a gate's sigmoid, a normalised distance); the rule turns it into an exit depth.

use serde::{Deserialize, Serialize};

use super::family::ExitSignal;
use crate::architecture::Architecture;
use crate::units::Depth;

/// A live exit gate as a scenario asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    /// Ouro: leave once the cumulative exit probability reaches it; 1 never leaves early.
    /// Huginn: leave once the normalised distance falls below it; 0 never leaves early.
    pub threshold: f32,
    /// The shallowest loop at which the criterion may fire, before any delay; the model's own by default.
    #[serde(default)]
    pub min_depth: Option<Depth>,
    /// Decide one loop early, as the lookahead overlap needs it.
    #[serde(default)]
    pub lookahead: bool,
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
}

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
    /// The probability of not having left, Ouro only.
    pub survival: f32,
    /// The depth after which the row leaves, once that is decided.
    pub leaves_after: Option<Depth>,
}

impl Default for GateMemory {
    fn default() -> Self {
        Self { survival: 1.0, leaves_after: None }
    }
}

impl Gate {
    /// The gate of a model that runs up to `r_max` loops. `trained_lookahead`: the weights hold `lookahead_gate.*`.
    pub fn new(spec: GateSpec, architecture: &Architecture, r_max: Depth, trained_lookahead: bool) -> Self {
        let (signal, delay) = match (architecture.form().exit, spec.lookahead) {
            (ExitSignal::Hazard, false) => (Signal::Hazard, 0),
            (ExitSignal::Hazard, true) if trained_lookahead => (Signal::NextHazard, 0),
            (ExitSignal::Hazard, true) => (Signal::Hazard, 1),
            (ExitSignal::Distance, lookahead) => (Signal::Distance, u8::from(lookahead)),
        };
        // r_min counts the lookahead's loop; the criterion itself may fire one loop before. A trained lookahead
        // gate speaks of the next loop, so the depth that it speaks of starts at r_min.
        let first = match signal {
            Signal::NextHazard => architecture.r_min,
            Signal::Hazard | Signal::Distance => Depth(architecture.r_min.0.max(2) - 1),
        };
        Self {
            signal,
            threshold: spec.threshold,
            first: spec.min_depth.map_or(first, |min| min.max(first)),
            delay,
            r_max,
        }
    }

    /// How reports must name the gate: a delayed stand-in is not the paper's trained one.
    pub fn label(&self) -> &'static str {
        match (self.signal, self.delay) {
            (Signal::Hazard, 0) => "released gate",
            (Signal::Hazard, _) => "released gate, delayed by one loop (stand-in for a trained lookahead gate)",
            (Signal::NextHazard, _) => "trained lookahead gate",
            (Signal::Distance, 0) => "normalized L2",
            (Signal::Distance, _) => "normalized L2, delayed by one loop",
        }
    }

    /// True if no signal lets a token leave early: its threshold is at the end of the range.
    pub fn never_fires(&self) -> bool {
        match self.signal {
            Signal::Hazard | Signal::NextHazard => self.threshold >= 1.0,
            Signal::Distance => self.threshold <= 0.0,
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
    /// the released gate's first hazard through [`Self::survive`], since nothing predicts that one.
    pub fn observe(&self, memory: &mut GateMemory, depth: Depth, signal: f32) {
        if memory.leaves_after.is_some() {
            return;
        }
        let (at, fires) = match self.signal {
            Signal::Hazard | Signal::NextHazard => {
                self.survive(memory, signal);
                let at = if self.signal == Signal::NextHazard { depth.next() } else { depth };
                // In f32 the CDF can round to 1 before r_max, but a threshold of 1 means full depth.
                (at, self.threshold < 1.0 && 1.0 - memory.survival >= self.threshold)
            }
            Signal::Distance => (depth, signal < self.threshold),
        };
        // A gate that looks ahead has said its last word one loop before full depth.
        let last_word = Depth(self.r_max.0 - u8::from(self.looks_ahead()));
        if at >= self.first && fires {
            memory.leaves_after = Some(Depth(at.0.saturating_add(self.delay)).min(self.r_max));
        } else if depth >= last_word {
            memory.leaves_after = Some(self.r_max);
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
        Gate::new(GateSpec { threshold, min_depth: None, lookahead }, &architecture, architecture.r_max, trained)
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
        let spec = GateSpec { threshold: 0.5, min_depth: Some(Depth(3)), lookahead: false };
        assert_eq!(exit(Gate::new(spec, &architecture, architecture.r_max, false), &[0.9, 0.0, 0.0]), (3, 3));
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
}
