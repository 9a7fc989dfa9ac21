//! A protocol without a device: what would be run, what the model expects, and how long it would take.

use reports::{Cell, Grid};

use super::predict::Predicted;
use super::runs::Run;
use crate::compare;

/// The table of all runs, and the live time of each tier.
pub fn outline(runs: &[Run], predicted: &Predicted) -> String {
    let mut grid = Grid::new([
        "run",
        "tier",
        "scheduler",
        "requests",
        "requests/s",
        "tokens/s",
        "speed-up",
        "S_e2e",
        "TTFT, ms",
        "TPOT, ms",
        "carried",
        "live runs",
        "live, s",
    ]);
    let mut tiers: Vec<(u32, f64)> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let seconds = push(run, index, predicted, &mut grid);
        match tiers.iter_mut().find(|(tier, _)| *tier == run.entry.tier.0) {
            Some((_, sum)) => *sum += seconds,
            None => tiers.push((run.entry.tier.0, seconds)),
        }
    }
    let tiers = tiers.iter().map(|(tier, seconds)| format!("tier {tier}: {seconds:.0} s of live runs, by the model\n"));
    grid.text() + "\n" + &tiers.collect::<String>()
}

/// A row per scheduler; returns the seconds of all live runs.
fn push(run: &Run, index: usize, predicted: &Predicted, grid: &mut Grid) -> f64 {
    let repeats = f64::from(run.entry.repeats.0);
    let mut sum = 0.0;
    for (at, part) in run.parts.iter().enumerate() {
        let served = predicted.part(index, at);
        let metrics: Vec<_> = served.iter().map(|run| run.metrics.clone()).collect();
        let bounds = if run.online() { Vec::new() } else { compare::bounds(&part.plan, &metrics) };
        for (scheduler, planned) in part.plan.schedulers.iter().enumerate() {
            let seconds = repeats * predicted.seconds(index, at, scheduler);
            let (metrics, bounds) = (&metrics[scheduler], bounds.get(scheduler));
            let carried = part.plan.slo().filter(|_| run.online()).map(|slo| slo.carried(metrics));
            sum += seconds;
            grid.push(vec![
                Cell::text(&run.entry.name),
                f64::from(run.entry.tier.0).into(),
                Cell::text(&planned.name),
                f64::from(part.plan.workload.requests()).into(),
                part.load.map(|load| load.rate_per_s).into(),
                metrics.throughput_tokens_per_s.into(),
                bounds.map(|bounds| bounds.speedup).into(),
                bounds.map(|bounds| bounds.s_e2e).into(),
                (1e3 * metrics.ttft.mean).into(),
                (1e3 * metrics.tpot.mean).into(),
                carried.map_or(Cell::Missing, |carried| Cell::text(if carried { "yes" } else { "no" })),
                repeats.into(),
                seconds.into(),
            ]);
        }
    }
    sum
}
