//! Another device of the same kind: the same graphs in the same shapes, each faster or slower by a little. Two GPUs at their power
//! limits differ so; a calibration of one and a few times of the other make a profile of the other.

use std::collections::BTreeMap;

use engine::profile::{GraphTimes, Graphs, PrefillCost, Profile, PromptCost, StageCost};

use crate::check::predicted_ms;
use crate::cost::significant;
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Timed, median};

/// Scales a profile to another device's times. Each stage's graphs are scaled by the median of measured over predicted at their size,
/// between measured sizes by what lies between; prompts, and lines through all sizes, by the median of all. What the host
/// does stays; how well the fit described its own measurements does not.
///
/// # Errors
/// No times of the core.
pub fn adjust(profile: &Profile, rows: &[Measurement]) -> Result<Profile, CalibrateError> {
    let factors = |timed| Factors::new(profile, rows.iter().filter(|row| row.point.timed == timed));
    let core = factors(Timed::Core).ok_or(CalibrateError::NoCore)?;
    let [prelude, coda, prefill] =
        [Timed::Prelude, Timed::Coda, Timed::Prefill].map(|stage| factors(stage).unwrap_or_default());
    Ok(Profile {
        core: core.line(profile.core),
        prelude: prelude.line(profile.prelude),
        coda: coda.line(profile.coda),
        graphs: Graphs {
            core: core.graphs(&profile.graphs.core),
            prelude: prelude.graphs(&profile.graphs.prelude),
            coda: coda.graphs(&profile.graphs.coda),
            prefill: profile.graphs.prefill.iter().map(|prompt| prefill.prompt(*prompt)).collect(),
        },
        prefill: prefill.prefill(profile.prefill),
        fit: None,
        ..profile.clone()
    })
}

/// How much longer a stage takes.
#[derive(Clone, Debug, PartialEq)]
struct Factors {
    /// By rows of the graph.
    at: BTreeMap<u32, f64>,
    all: f64,
}

/// As long as before.
impl Default for Factors {
    fn default() -> Self {
        Self { at: BTreeMap::new(), all: 1.0 }
    }
}

impl Factors {
    fn new<'a>(profile: &Profile, rows: impl Iterator<Item = &'a Measurement>) -> Option<Self> {
        let mut by_size: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for row in rows {
            // A stage that takes no time by the profile cannot be scaled.
            if let Some(predicted_ms) = predicted_ms(profile, row.point).filter(|&ms| ms > 0.0) {
                by_size.entry(profile.buckets.pad(row.point.batch)).or_default().push(row.times.time_ms / predicted_ms);
            }
        }
        let middle = |ratios: &Vec<f64>| median(ratios.iter().copied());
        (!by_size.is_empty()).then(|| Self {
            at: by_size.iter().map(|(&size, ratios)| (size, middle(ratios))).collect(),
            all: median(by_size.values().flatten().copied()),
        })
    }

    /// The factor of a graph: on the line between the next smaller and the next larger measured one.
    fn of(&self, rows: u32) -> f64 {
        let below = self.at.range(..=rows).next_back();
        let above = self.at.range(rows..).next();
        match (below, above) {
            (Some((&low, &at_low)), Some((&high, &at_high))) if low < high => {
                at_low + (at_high - at_low) * f64::from(rows - low) / f64::from(high - low)
            }
            (Some((_, &factor)), _) | (None, Some((_, &factor))) => factor,
            (None, None) => self.all,
        }
    }

    fn graphs(&self, graphs: &[GraphTimes]) -> Vec<GraphTimes> {
        let scaled = |graph: &GraphTimes| {
            let factor = self.of(graph.rows);
            let at = graph.at.iter().map(|&(entries, ms)| (entries, significant(factor * ms)));
            GraphTimes { rows: graph.rows, at: at.collect() }
        };
        graphs.iter().map(scaled).collect()
    }

    fn line(&self, cost: StageCost) -> StageCost {
        let terms = self.scaled([cost.delta_ms, cost.floor_ms, cost.gamma_us, cost.alpha_ns]);
        let [delta_ms, floor_ms, gamma_us, alpha_ns] = terms;
        StageCost { delta_ms, floor_ms, gamma_us, alpha_ns }
    }

    fn prefill(&self, cost: PrefillCost) -> PrefillCost {
        let terms = self.scaled([cost.delta_ms, cost.floor_ms, cost.gamma_us, cost.alpha_ns]);
        let [delta_ms, floor_ms, gamma_us, alpha_ns] = terms;
        PrefillCost { delta_ms, floor_ms, gamma_us, alpha_ns, ..cost }
    }

    fn prompt(&self, prompt: PromptCost) -> PromptCost {
        let [delta_ms, alpha_ns] = self.scaled([prompt.delta_ms, prompt.alpha_ns]);
        PromptCost { delta_ms, alpha_ns, ..prompt }
    }

    fn scaled<const N: usize>(&self, terms: [f64; N]) -> [f64; N] {
        terms.map(|term| significant(self.all * term))
    }
}

#[cfg(test)]
mod tests {
    use engine::architecture::Architecture;
    use engine::profile::{Buckets, DeviceSpec};

    use super::*;
    use crate::measurements::Point;

    fn profile() -> Profile {
        let model = Architecture::builtin("huginn-3.5b").expect("built in");
        let device = DeviceSpec { name: "a".into(), bandwidth_gb_per_s: 1000.0, compute_tflops: 100.0 };
        let graph = |rows, ms| GraphTimes { rows, at: vec![(100, ms), (10_000, 2.0 * ms)] };
        let graphs = Graphs {
            core: vec![graph(1, 1.0), graph(8, 1.5), graph(32, 2.0), graph(64, 3.0)],
            coda: vec![graph(1, 0.5), graph(64, 1.0)],
            ..Graphs::default()
        };
        let buckets = Buckets::List(vec![1, 8, 32, 64].try_into().expect("rising"));
        Profile { graphs, buckets, stage_overhead_us: 10.0, ..Profile::roofline(&device, &model) }
    }

    fn measured(profile: &Profile, point: Point, factor: f64) -> Measurement {
        Measurement::once(point, factor * predicted_ms(profile, point).expect("a device's time"))
    }

    #[test]
    fn graphs_take_the_factor_of_their_size_and_of_what_lies_around() {
        let profile = profile();
        let row = |timed, batch, factor| measured(&profile, Point::new(timed, batch, 50), factor);
        let mut rows: Vec<Measurement> = [0.99, 1.0, 1.7].map(|factor| row(Timed::Core, 6, factor)).into();
        rows.extend([row(Timed::Core, 64, 0.9), row(Timed::Coda, 20, 1.1)]);
        rows.push(measured(&profile, Point::prefill(1, 0, 64), 0.8));
        let adjusted = adjust(&profile, &rows).expect("times of the core");
        adjusted.check().expect("a profile");
        let ratio = |at: fn(&Profile) -> f64| at(&adjusted) / at(&profile);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
        close(ratio(|profile| profile.core_ms(1, 500)), 1.0);
        close(ratio(|profile| profile.core_ms(8, 500)), 1.0);
        close(ratio(|profile| profile.core_ms(32, 500)), 1.0 - 0.1 * 24.0 / 56.0);
        close(ratio(|profile| profile.core_ms(64, 500)), 0.9);
        close(ratio(|profile| profile.coda_ms(1, 500)), 1.1);
        close(ratio(|profile| profile.prefill_ms([(0, 64)])), 0.8);
        // The prelude was not timed, and has no graphs here.
        close(ratio(|profile| profile.prelude_ms(64, 500)), 1.0);
        assert_eq!((adjusted.host, adjusted.fit), (profile.host, None));
    }

    #[test]
    fn without_the_core_there_is_nothing_to_adjust_to() {
        let profile = profile();
        let coda = measured(&profile, Point::new(Timed::Coda, 1, 50), 1.0);
        let said = adjust(&profile, &[coda]).expect_err("no core").to_string();
        assert_eq!(said, "there are no rows of stage `core`: time core steps, as `calibrate check` does");
    }
}
