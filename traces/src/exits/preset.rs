//! Exit-depth shapes for the thresholds that the Continuous Depth Batching paper sweeps. **They are assumed.**
//!
//! The paper shows its exit distributions as a picture and prints no table of them. What its text pins down:
//!
//! - Ouro exits after 2, 3 or 4 of its four loops, Huginn over four to seven of its sixteen depths.
//! - Accuracy holds down to a mean depth of about 2.5 (Ouro) and 8 (Huginn): taken as the most aggressive thresholds.
//! - A higher Ouro threshold exits deeper; a lower Huginn threshold exits deeper; q = 1.0 and 0.0 never exit early.
//! - Refill on Ouro reaches 1.53x at 96 to 99% of S_e2e, so the most generous S_e2e lies between 1.545 and 1.594. With the
//!   least prefill that it reports (3.7% of GPU time), a mean depth of 2.5 gives S_dec = 1.581 and S_e2e = 1.548.
//! - Its stage traces list exits at 2/3/4 of 64 sequences' first three decoded tokens: 1/29/34, 13/39/12, 17/39/8. Depth 3
//!   is the commonest, and the first tokens leave later than the rest, which a stationary table cannot show.
//!   Huginn's first tokens: 7 of 64 leave at 7, 22 of the next 57 at 8, 18 of the next 35 at 9: a peak at 8, a right tail.
//!
//! What is assumed beyond that, once, before any result was seen:
//!
//! - Ouro: mean 2.5 at q = 0.2; from there mass moves steadily from 2 to 4 through a mode at 3 (q = 0.4, 0.5) to a mean of
//!   3.35 at q = 0.7, the threshold with "few exits that leave little room for speedup".
//! - Huginn: a right-skewed peak around the mean. The distance between successive states shrinks geometrically; at a factor
//!   of about 0.8 a loop, going from 0.28 to 0.16 takes ln(0.16 / 0.28) / ln(0.8) = 2.5 loops more and to 0.1 another 2.1,
//!   so the means are 8, 10.5 and 12.6. The spread grows with depth, from five to seven depths.
//!
//! The same shapes serve all workloads ("similar at a given threshold, with only modest shifts"). For anything but a rough
//! picture replay a recorded file instead.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use engine::architecture::Family;
use engine::units::Depth;

use crate::error::TracesError;
use crate::exits::table::DepthTable;
use crate::numbers::Probability;

/// A named shape of exit depths.
#[derive(Debug, PartialEq)]
pub struct Preset {
    /// The model's family and the threshold.
    pub name: &'static str,
    /// The family it is a shape for.
    pub family: Family,
    /// The shape is an assumption, not a measurement: true of all presets so far.
    pub assumed: bool,
    shape: &'static [(u8, f64)],
}

/// All presets, from the most aggressive to full depth.
pub static PRESETS: [Preset; 9] = [
    ouro("ouro-q0.2", &[(2, 0.58), (3, 0.34), (4, 0.08)]),
    ouro("ouro-q0.4", &[(2, 0.34), (3, 0.50), (4, 0.16)]),
    ouro("ouro-q0.5", &[(2, 0.25), (3, 0.53), (4, 0.22)]),
    ouro("ouro-q0.7", &[(2, 0.10), (3, 0.45), (4, 0.45)]),
    ouro("ouro-q1.0", &[(4, 1.0)]),
    huginn("huginn-0.28", &[(6, 0.08), (7, 0.27), (8, 0.33), (9, 0.21), (10, 0.11)]),
    huginn("huginn-0.16", &[(8, 0.06), (9, 0.17), (10, 0.28), (11, 0.25), (12, 0.15), (13, 0.09)]),
    huginn("huginn-0.1", &[(10, 0.09), (11, 0.17), (12, 0.23), (13, 0.21), (14, 0.15), (15, 0.10), (16, 0.05)]),
    huginn("huginn-0.0", &[(16, 1.0)]),
];

const fn ouro(name: &'static str, shape: &'static [(u8, f64)]) -> Preset {
    Preset { name, family: Family::OURO, assumed: true, shape }
}

const fn huginn(name: &'static str, shape: &'static [(u8, f64)]) -> Preset {
    Preset { name, family: Family::HUGINN, assumed: true, shape }
}

impl Preset {
    /// The preset of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The probability of each depth.
    pub fn table(&self) -> DepthTable {
        let entry = |&(depth, p): &(u8, f64)| Ok((Depth(depth), Probability::try_from(p)?));
        let entries: Result<BTreeMap<_, _>, TracesError> = self.shape.iter().map(entry).collect();
        entries.and_then(DepthTable::try_from).expect("a preset's probabilities sum to one")
    }

    /// The mean depth in loops.
    pub fn mean_depth(&self) -> f64 {
        self.table().mean_depth()
    }
}

/// A preset as a scenario names it.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PresetName(&'static Preset);

impl PresetName {
    /// The preset.
    pub fn preset(self) -> &'static Preset {
        self.0
    }
}

impl fmt::Debug for PresetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.name.fmt(f)
    }
}

impl TryFrom<String> for PresetName {
    type Error = TracesError;

    fn try_from(name: String) -> Result<Self, TracesError> {
        Preset::named(&name).map(Self).ok_or_else(|| {
            let known = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
            TracesError::UnknownPreset { name, known }
        })
    }
}

impl From<PresetName> for String {
    fn from(name: PresetName) -> Self {
        name.0.name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_depths_are_those_of_the_readme() {
        let check = |name, mean: f64| {
            let preset = Preset::named(name).expect(name);
            assert!((preset.mean_depth() - mean).abs() < 0.005, "{name}: {}", preset.mean_depth());
            assert!(preset.assumed);
        };
        check("ouro-q0.2", 2.50);
        check("ouro-q0.4", 2.82);
        check("ouro-q0.5", 2.97);
        check("ouro-q0.7", 3.35);
        check("ouro-q1.0", 4.0);
        check("huginn-0.28", 8.0);
        check("huginn-0.16", 10.53);
        check("huginn-0.1", 12.66);
        check("huginn-0.0", 16.0);
    }

    #[test]
    fn presets_keep_what_the_paper_says_of_the_shapes() {
        for preset in &PRESETS[..8] {
            let depths: Vec<u8> = preset.table().depths().map(|depth| depth.0).collect();
            match preset.name {
                "ouro-q1.0" => assert_eq!(depths, [4]),
                _ if preset.family == Family::OURO => assert_eq!(depths, [2, 3, 4]),
                name => assert!(
                    (4..=7).contains(&depths.len()) && depths[0] >= 3 && depths[depths.len() - 1] <= 16,
                    "{name}"
                ),
            }
        }
        for family in [&PRESETS[..5], &PRESETS[5..]] {
            assert!(family.windows(2).all(|pair| pair[0].mean_depth() < pair[1].mean_depth()));
        }
    }
}
