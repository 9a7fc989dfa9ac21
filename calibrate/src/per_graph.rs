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
    /// A size that was not measured is padded to the next larger one.
    padded: bool,
}

/// How the lines' slopes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slopes {
    /// The stage reads no KV.
    None,
    /// Each graph's own, and rows are padded to a graph.
    Own,
    /// One for all sizes, and between two sizes lies the line through them.
    Common,
}

impl PerGraph {
    /// Fits samples of which most can be predicted from the others; `None` if there are too few.
    pub fn new(samples: &[Sample], slopes: Slopes) -> Option<Self> {
        let alone = |sample: &Sample| samples.iter().filter(|other| other.rows == sample.rows).count() == 1;
        if samples.iter().filter(|sample| alone(sample)).count() * 2 > samples.len() {
            return None;
        }
        let left_out = |(left, sample): (usize, &Sample)| {
            let others: Vec<Sample> =
                samples.iter().enumerate().filter(|&(i, _)| i != left).map(|(_, other)| *other).collect();
            let predicted = || Self::fit(&others, slopes).time_ms(sample);
            (!alone(sample)).then(|| (predicted() - sample.time_ms) / sample.scale_ms)
        };
        let left_out = samples.iter().enumerate().map(left_out).collect();
        Some(Self { left_out, ..Self::fit(samples, slopes) })
    }

    fn fit(samples: &[Sample], slopes: Slopes) -> Self {
        Self { costs: costs(samples, slopes), padded: slopes != Slopes::Common, left_out: Vec::new() }
    }

    /// What the lines say for a sample.
    pub fn time_ms(&self, sample: &Sample) -> f64 {
        let time_ms = if self.padded { Graphs::time_ms } else { Graphs::between_ms };
        time_ms(&self.costs, sample.rows as u32, sample.entries as u64).unwrap_or(f64::NAN)
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

fn costs(samples: &[Sample], slopes: Slopes) -> Vec<GraphCost> {
    let mut rows: Vec<u32> = samples.iter().map(|sample| sample.rows as u32).collect();
    rows.sort_unstable();
    rows.dedup();
    let groups: Vec<(u32, Group)> = rows
        .into_iter()
        .map(|rows| (rows, Group(samples.iter().filter(|sample| sample.rows as u32 == rows).copied().collect())))
        .collect();
    let own = groups.iter().filter(|(_, group)| group.0.len() >= SLOPE_POINTS);
    let own: Vec<(u32, f64)> = own.filter_map(|(rows, group)| Some((*rows, slope([group])?))).collect();
    let common = slope(groups.iter().map(|(_, group)| group)).unwrap_or(0.0);
    let cost = |(rows, group): &(u32, Group)| {
        let alpha_ns = match slopes {
            Slopes::None => 0.0,
            Slopes::Own => {
                own.iter().min_by_key(|(other, _)| other.abs_diff(*rows)).map_or(common, |&(_, slope)| slope)
            }
            Slopes::Common => common,
        };
        let delta_ms = group.mean(|s| s.time_ms - alpha_ns * s.entries / 1e6);
        GraphCost { rows: *rows, delta_ms: significant(delta_ms.max(0.0)), alpha_ns: significant(alpha_ns) }
    };
    groups.iter().map(cost).collect()
}

/// The samples of one size.
struct Group(Vec<Sample>);

impl Group {
    /// Weighted as least squares of relative errors weigh.
    fn sum(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        self.0.iter().map(|sample| value(sample) * sample.scale_ms.powi(-2)).sum()
    }

    fn mean(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        self.sum(value) / self.sum(|_| 1.0)
    }
}

/// The `alpha` in ns that sizes have in common, each with a `delta` of its own; `None` if nothing tells.
fn slope<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Option<f64> {
    let (mut spread, mut together) = (0.0, 0.0);
    for group in groups {
        let (entries, time_ms) = (group.mean(|s| s.entries), group.mean(|s| s.time_ms));
        spread += group.sum(|s| (s.entries - entries).powi(2));
        together += group.sum(|s| (s.entries - entries) * (s.time_ms - time_ms));
    }
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
        let fit = PerGraph::new(&samples, Slopes::Own).expect("enough points");
        assert!(fit.error_max() < 1e-5, "{fit:?}");
        let other = sample(8, 1000, truth(8, 1000));
        assert!((fit.time_ms(&other) / other.time_ms - 1.0).abs() < 1e-5, "{fit:?}");
    }

    #[test]
    fn a_graph_with_one_context_has_its_neighbours_slope_and_is_not_judged() {
        let mut samples: Vec<_> = [128, 512, 2048].map(|context| sample(64, context, truth(64, context))).into();
        samples.push(sample(128, 128, truth(128, 128)));
        let fit = PerGraph::new(&samples, Slopes::Own).expect("enough points");
        assert_eq!(fit.left_out[3], None);
        assert!((fit.costs[1].alpha_ns - 45.0).abs() < 1e-3, "{fit:?}");
        assert_eq!(PerGraph::new(&samples[2..], Slopes::Own), None);
    }
}
