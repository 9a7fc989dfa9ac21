//! The explorer's table and plot.

use engine::bounds;
use engine::layout::Layout;
use engine::scheduler::Mode;
use reports::chart::{Axis, BarGroup, Bars, Figure, Panel, Series, bars, lines};
use reports::{Cell, Grid, Study};
use serde::Serialize;

use super::Explored;
use crate::run::plan::Plan;

/// Context lengths for which B* is given.
const CONTEXTS: [u32; 3] = [128, 2048, 8192];

/// Shares of the loops for which S_dec is given, beside the scenario's own exits.
const DEPTH_SHARES: [f64; 2] = [0.5, 0.75];

/// One row an architecture and GPU.
pub fn study(plan: &Plan, explored: &[Explored]) -> Study<Vec<Row>> {
    let mut columns: Vec<String> = ["architecture", "GPU", "F_0, GFLOP", "F_r, GFLOP"].map(String::from).into();
    columns.extend(LAYOUTS.map(|layout| format!("{layout}, KiB/token")));
    columns.extend(CONTEXTS.map(|context| format!("B*({context})")));
    columns.extend(DEPTH_SHARES.map(|share| format!("S_dec at {}%", 100.0 * share)));
    columns.extend(["mean depth", "S_dec", "S_e2e", "S_roof"].map(String::from));
    let schedulers = explored.first().map(|one| one.speedups.as_slice()).unwrap_or_default();
    columns.extend(schedulers.iter().map(|(name, ..)| format!("{name}, x")));
    let mut grid = Grid::new(columns);
    let rows: Vec<Row> = explored.iter().map(Row::of).collect();
    rows.iter().for_each(|row| grid.push(row.cells()));
    Study {
        name: "explore",
        grid,
        summary: rows,
        scenario_yaml: plan.yaml(),
        figures: vec![("explore", figure(explored))],
    }
}

/// Layouts with footprints of their own; last_exited's is depth_indexed's.
const LAYOUTS: [Layout; 3] = [Layout::DepthIndexed, Layout::FirstThenShared, Layout::Shared];

/// An architecture on a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub architecture: String,
    /// The device.
    pub gpu: String,
    /// FLOPs outside the loop per decoded token, in billions.
    pub f_0_gflop: f64,
    /// FLOPs of one loop per token, in billions.
    pub f_r_gflop: f64,
    /// KV per token: depth-indexed, first-then-shared, shared.
    pub kv_kib_per_token: [f64; 3],
    /// Saturation batch sizes at contexts of 128, 2048 and 8192 tokens.
    pub saturation_batch: [f64; 3],
    /// S_dec at mean depths of 50% and 75% of the loops.
    pub s_dec_at_shares: [f64; 2],
    /// Mean exit depth of the scenario's exits.
    pub mean_depth: f64,
    /// S_dec there.
    pub s_dec: f64,
    /// S_e2e with the workload's prefill.
    pub s_e2e: f64,
    /// S_roof on the device.
    pub s_roof: Option<f64>,
    /// Simulated speed-up of each scheduler.
    pub speedups: Vec<(String, f64)>,
}

impl Row {
    fn of(explored: &Explored) -> Self {
        let Explored { model, profile, .. } = explored;
        let gflop = |params: u64| 2.0 * params as f64 / 1e9;
        let depth = |share: f64| share * f64::from(model.r_max.0);
        Self {
            architecture: model.name.clone(),
            gpu: profile.device.name.clone(),
            f_0_gflop: gflop(model.boundary_params()),
            f_r_gflop: gflop(model.core_params()),
            kv_kib_per_token: LAYOUTS.map(|layout| model.kv_bytes_per_token(layout) as f64 / 1024.0),
            saturation_batch: CONTEXTS.map(|context| profile.core.saturation_batch(context)),
            s_dec_at_shares: DEPTH_SHARES.map(|share| bounds::s_dec(model, depth(share))),
            mean_depth: explored.mean_depth,
            s_dec: explored.s_dec,
            s_e2e: explored.s_e2e,
            s_roof: explored.s_roof,
            speedups: explored.speedups.iter().map(|(name, _, speedup)| (name.clone(), *speedup)).collect(),
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let numbers = [self.f_0_gflop, self.f_r_gflop]
            .into_iter()
            .chain(self.kv_kib_per_token)
            .chain(self.saturation_batch)
            .chain(self.s_dec_at_shares)
            .chain([self.mean_depth, self.s_dec, self.s_e2e]);
        let names = [&self.architecture, &self.gpu].map(Cell::text);
        let speedups = self.speedups.iter().map(|(_, speedup)| Cell::from(*speedup));
        names.into_iter().chain(numbers.map(Cell::from)).chain([self.s_roof.into()]).chain(speedups).collect()
    }
}

/// Speed-up over K where the scenario compares several, else bars.
fn figure(explored: &[Explored]) -> Figure {
    let over_k: Vec<Series> = explored.iter().enumerate().map(|(index, one)| over_k(index, one)).collect();
    let panel = if over_k.iter().all(|series| series.points.len() > 1) { k_panel(over_k) } else { bar_panel(explored) };
    Figure::new("Speed-up over full-depth continuous batching", vec![panel])
}

fn over_k(style: usize, explored: &Explored) -> Series {
    let points = explored.speedups.iter().filter_map(|(_, mode, speedup)| match mode {
        Mode::Refill { min_coda_batch } => Some((f64::from(*min_coda_batch), *speedup)),
        _ => None,
    });
    Series::new(label(explored), style, points.collect())
}

fn k_panel(series: Vec<Series>) -> Panel {
    lines("", Axis::log2("K, minimum coda batch"), Axis::linear("speed-up, ×"), series)
}

fn bar_panel(explored: &[Explored]) -> Panel {
    let schedulers = explored.first().map(|one| one.speedups.as_slice()).unwrap_or_default();
    let group = |(index, (name, ..)): (usize, &(String, Mode, f64))| BarGroup {
        name: name.clone(),
        style: index,
        values: explored.iter().map(|one| one.speedups.get(index).map(|(.., speedup)| *speedup)).collect(),
    };
    let chart = Bars {
        categories: explored.iter().map(label).collect(),
        groups: schedulers.iter().enumerate().map(group).collect(),
        marks: Vec::new(),
        format: |value| format!("{value:.2}×"),
    };
    bars("", "", Axis::linear("speed-up, ×"), chart)
}

fn label(explored: &Explored) -> String {
    format!("{} on {}", explored.model.name, explored.profile.device.name)
}
