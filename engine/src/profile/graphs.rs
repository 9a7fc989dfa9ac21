//! Costs by recorded graph. A GPU runs another kernel, or the same in another shape, for every batch size that it has a graph
//! for, so its times are steps and no line through all of them is close to each.

use serde::{Deserialize, Serialize};

/// What a graph needs: `delta + alpha N_c`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphCost {
    /// The batch size that it was recorded for.
    pub rows: u32,
    /// Per launch: weights and rows.
    pub delta_ms: f64,
    /// Per KV entry read.
    #[serde(default)]
    pub alpha_ns: f64,
}

/// The measured graphs of each stage, by rising batch size; none where a stage's line is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Graphs {
    /// One application of the core.
    pub core: Vec<GraphCost>,
    /// Everything before the loop.
    pub prelude: Vec<GraphCost>,
    /// Everything behind the loop.
    pub coda: Vec<GraphCost>,
    /// Prompt chunks, which are no graphs, by their tokens in all: matrix products change shape with them.
    pub prefill: Vec<GraphCost>,
}

impl GraphCost {
    /// Milliseconds for the graph with `context` KV entries.
    fn time_ms(&self, context: u64) -> f64 {
        self.delta_ms + self.alpha_ns * context as f64 / 1e6
    }
}

impl Graphs {
    /// Milliseconds for `rows` rows that read `context` KV entries; `None` without graphs.
    ///
    /// Rows are padded to a graph. Where that one was not measured it takes as long as the next larger one, or lies on the line
    /// through the two largest.
    pub fn time_ms(graphs: &[GraphCost], rows: u32, context: u64) -> Option<f64> {
        let above = graphs.partition_point(|graph| graph.rows < rows);
        graphs.get(above).map(|graph| graph.time_ms(context)).or_else(|| Self::between_ms(graphs, rows, context))
    }

    /// The same for sizes that are not padded: between two that were measured lies the line through them.
    pub fn between_ms(graphs: &[GraphCost], rows: u32, context: u64) -> Option<f64> {
        let (first, last) = (graphs.first()?, graphs.len() - 1);
        let above = graphs.partition_point(|graph| graph.rows < rows);
        if last == 0 || above == 0 {
            return Some(first.time_ms(context));
        }
        let above = above.min(last);
        let (low, high) = (&graphs[above - 1], &graphs[above]);
        let share = f64::from(rows - low.rows) / f64::from(high.rows - low.rows);
        let (low, high) = (low.time_ms(context), high.time_ms(context));
        Some(low + share * (high - low))
    }

    /// No stage has graphs.
    pub fn is_empty(&self) -> bool {
        self.stages().iter().all(|(_, graphs)| graphs.is_empty())
    }

    /// The stages' names and graphs.
    pub fn stages(&self) -> [(&'static str, &[GraphCost]); 4] {
        [("core", &self.core), ("prelude", &self.prelude), ("coda", &self.coda), ("prefill", &self.prefill)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_are_padded_to_graphs_and_prompts_are_not() {
        let graph = |rows, delta_ms, alpha_ns| GraphCost { rows, delta_ms, alpha_ns };
        let graphs = [graph(2, 1.0, 0.0), graph(4, 2.0, 10.0), graph(8, 3.0, 10.0)];
        let padded = |rows| Graphs::time_ms(&graphs, rows, 100_000).expect("graphs");
        assert_eq!([1, 2, 3, 4, 6, 8, 16].map(padded), [1.0, 1.0, 3.0, 3.0, 4.0, 4.0, 6.0]);
        let between = |rows| Graphs::between_ms(&graphs, rows, 100_000).expect("graphs");
        assert_eq!([1, 2, 3, 4, 6, 8, 16].map(between), [1.0, 1.0, 2.0, 3.0, 3.5, 4.0, 6.0]);
        assert_eq!(Graphs::time_ms(&graphs[..1], 64, 0), Some(1.0));
        assert_eq!(Graphs::time_ms(&[], 1, 0), None);
    }
}
