//! A line for every graph: `delta_b + alpha_b N_c` for each batch size b that a device has a graph for.

use engine::profile::{GraphCost, Graphs};

use crate::cost::{Sample, r_squared, significant};

/// Points that a graph's own slope needs; with fewer it has a neighbour's.
const SLOPE_POINTS: usize = 3;

/// The lines of a stage's graphs.
#[derive(Clone, Debug, PartialEq)]
pub struct PerGraph {
    /// By rising batch size.
    pub costs: Vec<GraphCost>,
    /// `(prediction - time) / scale` of each sample, predicted from the others; `None` for a graph's only one, of which the
    /// others say nothing.
    pub left_out: Vec<Option<f64>>,
}

impl PerGraph {
    /// Fits samples of which most can be predicted from the others; `None` if there are too few.
    pub fn new(samples: &[Sample], reads_kv: bool) -> Option<Self> {
        let alone = |sample: &Sample| samples.iter().filter(|other| other.rows == sample.rows).count() == 1;
        if samples.iter().filter(|sample| alone(sample)).count() * 2 > samples.len() {
            return None;
        }
        let left_out = |(left, sample): (usize, &Sample)| {
            let others: Vec<Sample> =
                samples.iter().enumerate().filter(|&(i, _)| i != left).map(|(_, other)| *other).collect();
            (!alone(sample)).then(|| (time_ms(&costs(&others, reads_kv), sample) - sample.time_ms) / sample.scale_ms)
        };
        let left_out = samples.iter().enumerate().map(left_out).collect();
        Some(Self { costs: costs(samples, reads_kv), left_out })
    }

    /// What the lines say for a sample.
    pub fn time_ms(&self, sample: &Sample) -> f64 {
        time_ms(&self.costs, sample)
    }

    /// Coefficient of determination of the times.
    pub fn r_squared(&self, samples: &[Sample]) -> f64 {
        let times: Vec<_> = samples.iter().map(|sample| (sample.time_ms, self.time_ms(sample))).collect();
        r_squared(&times)
    }

    /// Mean absolute relative error of left-out samples.
    pub fn error_mean(&self) -> f64 {
        let errors = self.left_out.iter().flatten();
        errors.clone().map(|error| error.abs()).sum::<f64>() / errors.count() as f64
    }

    /// Worst absolute relative error of a left-out sample.
    pub fn error_max(&self) -> f64 {
        self.left_out.iter().flatten().map(|error| error.abs()).fold(0.0, f64::max)
    }
}

fn time_ms(costs: &[GraphCost], sample: &Sample) -> f64 {
    Graphs::time_ms(costs, sample.rows as u32, sample.entries as u64).unwrap_or(f64::NAN)
}

fn costs(samples: &[Sample], reads_kv: bool) -> Vec<GraphCost> {
    let mut rows: Vec<u32> = samples.iter().map(|sample| sample.rows as u32).collect();
    rows.sort_unstable();
    rows.dedup();
    let of = |rows: u32| samples.iter().filter(move |sample| sample.rows as u32 == rows);
    let slopes: Vec<(u32, f64)> = match reads_kv {
        true => rows.iter().filter_map(|&rows| Some((rows, slope(of(rows).copied().collect())?))).collect(),
        false => Vec::new(),
    };
    let cost = |&rows: &u32| {
        let nearest = slopes.iter().min_by_key(|(other, _)| other.abs_diff(rows));
        let alpha_ns = nearest.map_or(0.0, |&(_, alpha_ns)| alpha_ns);
        let (mut weight, mut sum) = (0.0, 0.0);
        for sample in of(rows) {
            weight += sample.scale_ms.powi(-2);
            sum += (sample.time_ms - alpha_ns * sample.entries / 1e6) * sample.scale_ms.powi(-2);
        }
        GraphCost { rows, delta_ms: significant((sum / weight).max(0.0)), alpha_ns: significant(alpha_ns) }
    };
    rows.iter().map(cost).collect()
}

/// A graph's `alpha` in ns by least squares of relative errors; `None` if it has too few points.
fn slope(samples: Vec<Sample>) -> Option<f64> {
    if samples.len() < SLOPE_POINTS {
        return None;
    }
    let weighted = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(|s| value(s) * s.scale_ms.powi(-2)).sum::<f64>();
    let weight = weighted(&|_| 1.0);
    let (entries, time_ms) = (weighted(&|s| s.entries) / weight, weighted(&|s| s.time_ms) / weight);
    let spread = weighted(&|s| (s.entries - entries).powi(2));
    let together = weighted(&|s| (s.entries - entries) * (s.time_ms - time_ms));
    (spread > 0.0).then(|| (together / spread * 1e6).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rows: u32, context: u32, time_ms: f64) -> Sample {
        let entries = f64::from(rows * context);
        Sample { batch: rows, context, rows: rows.into(), entries, time_ms, scale_ms: time_ms }
    }

    /// Steps in the batch size that no line could follow.
    fn truth(rows: u32, context: u32) -> f64 {
        let (delta_ms, alpha_ns) = match rows {
            1 => (1.0, 80.0),
            8 => (0.9, 50.0),
            _ => (1.5, 45.0),
        };
        delta_ms + alpha_ns * f64::from(rows * context) / 1e6
    }

    #[test]
    fn every_graph_has_its_own_line() {
        let grid = [1, 8, 64].into_iter().flat_map(|rows| [128, 512, 2048, 4096].map(|context| (rows, context)));
        let samples: Vec<_> = grid.map(|(rows, context)| sample(rows, context, truth(rows, context))).collect();
        let fit = PerGraph::new(&samples, true).expect("enough points");
        assert!(fit.error_max() < 1e-5, "{fit:?}");
        let other = sample(8, 1000, truth(8, 1000));
        assert!((fit.time_ms(&other) / other.time_ms - 1.0).abs() < 1e-5, "{fit:?}");
    }

    #[test]
    fn a_graph_with_one_context_has_its_neighbours_slope_and_is_not_judged() {
        let mut samples: Vec<_> = [128, 512, 2048].map(|context| sample(64, context, truth(64, context))).into();
        samples.push(sample(128, 128, truth(128, 128)));
        let fit = PerGraph::new(&samples, true).expect("enough points");
        assert_eq!(fit.left_out[3], None);
        assert!((fit.costs[1].alpha_ns - 45.0).abs() < 1e-3, "{fit:?}");
        assert_eq!(PerGraph::new(&samples[2..], true), None);
    }
}
