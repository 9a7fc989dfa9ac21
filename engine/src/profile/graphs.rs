//! Times by recorded graph. A GPU runs another kernel, or the same in another shape, for every batch size that it has a graph
//! for, so its times are steps and no line through all of them is close to each.

use serde::{Deserialize, Serialize};

use super::{COST_MAX, is_cost};

/// What a graph needs, by the KV entries that its rows read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphTimes {
    /// The batch size that it was recorded for.
    pub rows: u32,
    /// Pairs of `N_c` and milliseconds, rising in `N_c`; one alone holds for every `N_c`.
    pub at: Vec<(u64, f64)>,
}

/// What prompt chunks of so many tokens need: `delta + alpha max(P, rho L)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptCost {
    /// Tokens of the batch.
    pub tokens: u32,
    /// Without attention.
    pub delta_ms: f64,
    /// Per (token, KV entry) pair of causal attention.
    pub alpha_ns: f64,
}

/// Each stage's measured graphs and prompts, by rising size; none where a stage's line is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Graphs {
    /// One application of the core.
    pub core: Vec<GraphTimes>,
    /// Everything before the loop.
    pub prelude: Vec<GraphTimes>,
    /// Everything behind the loop.
    pub coda: Vec<GraphTimes>,
    /// Prompt chunks, which are no graphs.
    pub prefill: Vec<PromptCost>,
}

impl GraphTimes {
    /// Milliseconds for the graph with `context` KV entries: on the line between two measured points, beyond the last on the line
    /// through the last two. Below the first the slope is the whole graph's: that of its first points has attention's
    /// switch from one tile to several in it.
    pub fn time_ms(&self, context: u64) -> f64 {
        let (Some(&first), Some(&last)) = (self.at.first(), self.at.last()) else { return f64::NAN };
        let above = self.at.partition_point(|&(entries, _)| entries < context).min(self.at.len() - 1);
        let (low, high) = if above == 0 { (first, last) } else { (self.at[above - 1], self.at[above]) };
        if low.0 == high.0 {
            return low.1;
        }
        let slope = (high.1 - low.1) / (high.0 - low.0) as f64;
        (low.1 + slope * (context as f64 - low.0 as f64)).max(0.0)
    }
}

impl Graphs {
    /// Milliseconds for `rows` rows that read `context` KV entries; `None` without graphs.
    ///
    /// Rows are padded to a graph. Where that one was not measured it takes as long as the next larger one; beyond the last, rows
    /// cost what they do in the last.
    pub fn time_ms(graphs: &[GraphTimes], rows: u32, context: u64) -> Option<f64> {
        let above = graphs.partition_point(|graph| graph.rows < rows);
        if let Some(graph) = graphs.get(above) {
            return Some(graph.time_ms(context));
        }
        let last = graphs.last()?;
        let times = f64::from(rows) / f64::from(last.rows);
        Some(times * last.time_ms((context as f64 / times) as u64))
    }

    /// Milliseconds for prompt chunks of `tokens` tokens that attend to `attended` pairs; `None` if none were measured.
    ///
    /// Matrix products take another shape beyond each power of two, and the engine chooses one for all sizes up to it. So a
    /// size lies between the two measured ones around it if these have its shape, and takes as long as the next larger one if
    /// only that has.
    pub fn prompt_ms(prompts: &[PromptCost], tokens: u32, attended: u64) -> Option<f64> {
        let time_ms = |prompt: &PromptCost| prompt.delta_ms + prompt.alpha_ns * attended as f64 / 1e6;
        let above = prompts.partition_point(|prompt| prompt.tokens < tokens);
        let Some(high) = prompts.get(above) else {
            return prompts.last().map(|last| f64::from(tokens) / f64::from(last.tokens) * time_ms(last));
        };
        let shape = |prompt: &PromptCost| prompt.tokens.next_power_of_two();
        let low = above.checked_sub(1).map(|below| &prompts[below]).filter(|low| shape(low) == shape(high));
        Some(low.map_or(time_ms(high), |low| {
            let share = f64::from(tokens - low.tokens) / f64::from(high.tokens - low.tokens);
            time_ms(low) + share * (time_ms(high) - time_ms(low))
        }))
    }

    /// No stage has graphs.
    pub fn is_empty(&self) -> bool {
        self.prefill.is_empty() && self.stages().iter().all(|(_, graphs)| graphs.is_empty())
    }

    /// The decode stages' names and graphs.
    pub fn stages(&self) -> [(&'static str, &[GraphTimes]); 3] {
        [("core", &self.core), ("prelude", &self.prelude), ("coda", &self.coda)]
    }

    /// The first fault, as its field and what to change.
    pub(super) fn fault(&self) -> Option<(String, String)> {
        let times = format!("must be pairs of rising N_c and of milliseconds from 0 to {COST_MAX:e}");
        for (stage, graphs) in self.stages() {
            let faulty = |graph: &GraphTimes| {
                let rising = graph.at.is_sorted_by(|a, b| a.0 < b.0);
                graph.at.is_empty() || !rising || graph.at.iter().any(|&(_, ms)| !is_cost(ms))
            };
            if let Some(index) = graphs.iter().position(faulty) {
                return Some((format!("graphs.{stage}.{index}.at"), times));
            }
            if !rises_from_one(graphs.iter().map(|graph| graph.rows)) {
                return Some((format!("graphs.{stage}"), "rows must rise from graph to graph, from 1".into()));
            }
        }
        if self.prefill.iter().any(|prompt| !(is_cost(prompt.delta_ms) && is_cost(prompt.alpha_ns))) {
            return Some(("graphs.prefill".into(), format!("costs must be from 0 to {COST_MAX:e}")));
        }
        let rising = rises_from_one(self.prefill.iter().map(|prompt| prompt.tokens));
        (!rising).then(|| ("graphs.prefill".into(), "tokens must rise, from 1".into()))
    }
}

fn rises_from_one(sizes: impl Iterator<Item = u32>) -> bool {
    std::iter::once(0).chain(sizes).is_sorted_by(|a, b| a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_lies_between_what_was_measured() {
        let graph = GraphTimes { rows: 8, at: vec![(1000, 1.0), (2000, 2.0), (4000, 3.0)] };
        let slope = 2.0 / 3000.0;
        for (entries, ms) in
            [(1000, 1.0), (1500, 1.5), (3000, 2.5), (4000, 3.0), (6000, 4.0), (100, 1.0 - 900.0 * slope)]
        {
            assert!((graph.time_ms(entries) - ms).abs() < 1e-9, "{entries}");
        }
        assert_eq!(GraphTimes { rows: 8, at: vec![(10, 1.0)] }.time_ms(99), 1.0);
    }

    #[test]
    fn batch_sizes_are_padded_to_graphs() {
        let graph = |rows, ms| GraphTimes { rows, at: vec![(0, ms)] };
        let graphs = [graph(2, 1.0), graph(4, 2.0), graph(8, 3.0)];
        let at = |rows| Graphs::time_ms(&graphs, rows, 0).expect("graphs");
        assert_eq!([1, 2, 3, 4, 6, 8, 16].map(at), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 6.0]);
        assert_eq!(Graphs::time_ms(&[], 1, 0), None);
    }

    #[test]
    fn prompts_step_beyond_powers_of_two() {
        let prompt = |tokens, delta_ms| PromptCost { tokens, delta_ms, alpha_ns: 1.0 };
        let prompts = [prompt(256, 4.0), prompt(320, 7.0), prompt(512, 8.0), prompt(1024, 14.0)];
        let at = |tokens| Graphs::prompt_ms(&prompts, tokens, 0).expect("prompts");
        assert_eq!(
            [10, 256, 257, 320, 416, 512, 513, 1024, 2048].map(at),
            [4.0, 4.0, 7.0, 7.0, 7.5, 8.0, 14.0, 14.0, 28.0]
        );
        assert_eq!(Graphs::prompt_ms(&prompts, 256, 1_000_000), Some(5.0));
        assert_eq!(Graphs::prompt_ms(&[], 1, 0), None);
    }
}
