//! A table for every graph: its times by the KV entries read, for each batch size that a device has a graph for. For prompt
//! chunks, which are no graphs, a line for each number of tokens.

use engine::profile::{GraphTimes, Graphs, PromptCost};

use crate::cost::{Sample, significant};

/// The tables of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct PerGraph {
    /// What was measured.
    pub table: LookupTable,
    /// `(prediction - time) / scale` of each sample, predicted from the others; `None` for a size's only one, of which the
    /// others say nothing.
    pub left_out: Vec<Option<f64>>,
}

/// By what a stage's times are looked up.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupTable {
    /// A decode stage, by rising batch size.
    Graphs(Vec<GraphTimes>),
    /// Prefill, by rising number of tokens.
    Prompts(Vec<PromptCost>),
}

/// What a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A decode stage that reads no KV.
    Decode,
    /// A decode stage that does.
    DecodeOverKv,
    /// Prompt chunks.
    Prefill,
}

impl PerGraph {
    /// Takes samples of which most can be predicted from the others; `None` if there are too few.
    pub fn new(samples: &[Sample], kind: TableKind) -> Option<Self> {
        let alone = |sample: &Sample| samples.iter().filter(|other| other.rows == sample.rows).count() == 1;
        if samples.iter().filter(|sample| alone(sample)).count() * 2 > samples.len() {
            return None;
        }
        let left_out = |(left, sample): (usize, &Sample)| {
            let others: Vec<Sample> =
                samples.iter().enumerate().filter(|&(i, _)| i != left).map(|(_, other)| *other).collect();
            let predicted = || LookupTable::new(&others, kind).time_ms(sample);
            (!alone(sample)).then(|| (predicted() - sample.time_ms) / sample.scale_ms)
        };
        let left_out = samples.iter().enumerate().map(left_out).collect();
        Some(Self { table: LookupTable::new(samples, kind), left_out })
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

impl LookupTable {
    fn new(samples: &[Sample], kind: TableKind) -> Self {
        let mut sizes: Vec<u32> = samples.iter().map(|sample| sample.rows as u32).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let of = |size: u32| samples.iter().filter(|sample| sample.rows as u32 == size).copied().collect();
        let groups: Vec<(u32, Group)> = sizes.into_iter().map(|size| (size, Group(of(size)))).collect();
        match kind {
            TableKind::Prefill => Self::Prompts(prompts(&groups)),
            TableKind::Decode => Self::Graphs(
                groups
                    .iter()
                    .map(|(rows, group)| GraphTimes {
                        rows: *rows,
                        at: vec![(0, significant(group.mean(|s| s.time_ms).max(0.0)))],
                    })
                    .collect(),
            ),
            TableKind::DecodeOverKv => Self::Graphs(graphs(&groups)),
        }
    }

    /// What the table says for a sample.
    pub fn time_ms(&self, sample: &Sample) -> f64 {
        let (size, entries) = (sample.rows as u32, sample.entries as u64);
        let time_ms = match self {
            Self::Graphs(graphs) => Graphs::time_ms(graphs, size, entries),
            Self::Prompts(prompts) => Graphs::prompt_ms(prompts, size, entries),
        };
        time_ms.unwrap_or(f64::NAN)
    }
}

/// Points of each graph. One with a single point gets a second by the slope at the end of its nearest neighbour that has one.
fn graphs(groups: &[(u32, Group)]) -> Vec<GraphTimes> {
    let measured: Vec<GraphTimes> =
        groups.iter().map(|(rows, group)| GraphTimes { rows: *rows, at: group.points() }).collect();
    let sloped = |graph: &&GraphTimes| graph.at.len() > 1;
    let extended = |graph: &GraphTimes| {
        let nearest = measured.iter().filter(sloped).min_by_key(|other| other.rows.abs_diff(graph.rows));
        let mut graph = graph.clone();
        if let (&[(entries, ms)], Some(nearest)) = (&graph.at[..], nearest) {
            let last = nearest.at.len() - 1;
            let ((low, low_ms), (high, high_ms)) = (nearest.at[last - 1], nearest.at[last]);
            let slope = (high_ms - low_ms) / (high - low) as f64;
            graph.at.push((2 * entries, significant(ms + slope * entries as f64)));
        }
        graph
    };
    measured.iter().map(extended).collect()
}

/// A line for each number of tokens, with one slope for all.
fn prompts(groups: &[(u32, Group)]) -> Vec<PromptCost> {
    let (mut spread, mut together) = (0.0, 0.0);
    for (_, group) in groups {
        let (entries, time_ms) = (group.mean(|s| s.entries), group.mean(|s| s.time_ms));
        spread += group.sum(|s| (s.entries - entries).powi(2));
        together += group.sum(|s| (s.entries - entries) * (s.time_ms - time_ms));
    }
    let alpha_ns = if spread > 0.0 { (together / spread * 1e6).max(0.0) } else { 0.0 };
    let cost = |(tokens, group): &(u32, Group)| {
        let delta_ms = group.mean(|s| s.time_ms - alpha_ns * s.entries / 1e6).max(0.0);
        PromptCost { tokens: *tokens, delta_ms: significant(delta_ms), alpha_ns: significant(alpha_ns) }
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

    /// By rising entries; the mean of those with equally many.
    fn points(&self) -> Vec<(u64, f64)> {
        let mut samples: Vec<(u64, f64)> = self.0.iter().map(|s| (s.entries as u64, s.time_ms)).collect();
        samples.sort_by_key(|&(entries, _)| entries);
        let equal = samples.chunk_by(|a, b| a.0 == b.0);
        let mean = |equal: &[(u64, f64)]| equal.iter().map(|&(_, ms)| ms).sum::<f64>() / equal.len() as f64;
        equal.map(|equal| (equal[0].0, significant(mean(equal).max(0.0)))).collect()
    }
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
    fn every_graph_has_its_own_times() {
        let grid = [1, 8, 64].into_iter().flat_map(|rows| [128, 512, 2048, 4096].map(|context| (rows, context)));
        let samples: Vec<_> = grid.map(|(rows, context)| sample(rows, context, truth(rows, context))).collect();
        let fit = PerGraph::new(&samples, TableKind::DecodeOverKv).expect("enough points");
        assert!(fit.error_max() < 1e-5, "{fit:?}");
        let other = sample(8, 1000, truth(8, 1000));
        assert!((fit.table.time_ms(&other) / other.time_ms - 1.0).abs() < 1e-5, "{fit:?}");
    }

    #[test]
    fn a_graph_with_one_context_has_its_neighbours_slope_and_is_not_judged() {
        let mut samples: Vec<_> = [128, 512, 2048].map(|context| sample(64, context, truth(64, context))).into();
        samples.push(sample(128, 128, truth(128, 128)));
        let fit = PerGraph::new(&samples, TableKind::DecodeOverKv).expect("enough points");
        assert_eq!(fit.left_out[3], None);
        let other = sample(128, 1024, truth(128, 1024));
        assert!((fit.table.time_ms(&other) / other.time_ms - 1.0).abs() < 1e-5, "{fit:?}");
        assert_eq!(PerGraph::new(&samples[2..], TableKind::DecodeOverKv), None);
    }
}
