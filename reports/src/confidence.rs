//! How sure a report is: repeats over seeds, and the uncertainty of the profile's fit.

use engine::interval::Interval;
use serde::{Serialize, Serializer};

use crate::measures::Measures;
use crate::report::Report;

/// The same comparison again: with other seeds, and with other coefficients that the profile's measurements allow.
#[derive(Clone, Debug)]
pub struct Confidence {
    /// The seeds, the scenario's own first.
    pub seeds: Vec<u64>,
    /// What each seed gave, by scheduler in the report's order; a seed's requests are the same for all schedulers.
    pub repeats: Vec<Vec<Measures>>,
    /// Half the 95% interval that the fit of the profile alone gives each figure (in the order of [`Measures::ALL`]), by
    /// scheduler; `None` if the profile has no covariance.
    pub profile: Option<Vec<Vec<Option<f64>>>>,
}

/// Values by figure, in the order of the tables; what is missing is left out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ByMeasure<T>(pub(crate) Vec<(&'static str, T)>);

/// How much more one scheduler gives than another on the same requests.
#[derive(Debug, Serialize)]
pub(crate) struct PairedDifference<'a> {
    of: &'a str,
    minus: &'a str,
    difference: ByMeasure<Interval>,
}

impl<T> ByMeasure<T> {
    pub(crate) fn new(values: Vec<Option<T>>) -> Self {
        let named = Measures::ALL.iter().zip(values);
        Self(named.filter_map(|(measure, value)| Some((measure.column, value?))).collect())
    }
}

impl<T: Serialize> Serialize for ByMeasure<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Confidence {
    /// The intervals of a scheduler's figures over the seeds.
    pub(crate) fn intervals(&self, scheduler: usize) -> Vec<Option<Interval>> {
        Measures::intervals(&self.repeats[scheduler])
    }

    /// The intervals of the differences between two schedulers' figures, seed by seed.
    fn differences(&self, of: usize, minus: usize) -> Vec<Option<Interval>> {
        let pairs: Vec<_> = self.repeats[of]
            .iter()
            .zip(&self.repeats[minus])
            .map(|(of, minus)| {
                let values = of.values().into_iter().zip(minus.values());
                values.map(|(of, minus)| Some(of? - minus?)).collect::<Vec<_>>()
            })
            .collect();
        let column = |index: usize| -> Option<Vec<f64>> { pairs.iter().map(|pair| pair[index]).collect() };
        (0..Measures::ALL.len()).map(|index| Interval::of(&column(index)?)).collect()
    }
}

/// Every scheduler against every one before it.
pub(crate) fn paired_differences(report: &Report) -> Vec<PairedDifference<'_>> {
    let Some(confidence) = &report.confidence else { return Vec::new() };
    let name = |index: usize| report.schedulers[index].name.as_str();
    let pairs = (0..report.schedulers.len()).flat_map(|of| (0..of).map(move |minus| (of, minus)));
    pairs
        .map(|(of, minus)| PairedDifference {
            of: name(of),
            minus: name(minus),
            difference: ByMeasure::new(confidence.differences(of, minus)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_seeds_share_cancels_in_a_paired_difference() {
        let runs = |add: f64| {
            let run = |seed: f64| Measures { throughput_tokens_per_s: Some(100.0 * seed + add), ..Measures::default() };
            [1.0, 2.0, 3.0].map(run).to_vec()
        };
        let confidence = Confidence { seeds: vec![1, 2, 3], repeats: vec![runs(0.0), runs(7.0)], profile: None };
        let difference = ByMeasure::new(confidence.differences(1, 0));
        assert_eq!(
            difference.0,
            [("throughput_tokens_per_s", Interval { mean: 7.0, half_width: Some(0.0) })],
            "the seeds differ by hundreds, the pairs by nothing"
        );
    }
}
