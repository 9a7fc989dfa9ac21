//! A protocol without a device: what would be run, what the model expects, and how long it would take.

use std::collections::{BTreeMap, BTreeSet};

use engine::metrics::LatencySummary;
use reports::{ABOVE_S_E2E, Cell, Grid, is_above};

use super::jobs::{Job, jobs};
use super::predict::Predicted;
use super::runs::PlannedRun;
use crate::live::LiveDevice;
use crate::run::key::FileHashes;
use crate::run::speed;

/// The table of all runs, and the live time of each tier and repeat: of what runs have in common, such as a baseline, that of the first.
pub fn outline(runs: &[PlannedRun], predicted: &Predicted) -> String {
    let mut grid = Grid::new([
        "run",
        "tier",
        "scheduler",
        "requests",
        "requests/s",
        "tokens/s",
        "speed-up",
        "S_e2e",
        "S_roof",
        "TTFT, ms",
        "TPOT, ms",
        "carried",
        "live runs",
        "live, s",
    ]);
    // Any device: keys are only compared.
    let (device, hashes) = (LiveDevice::Cuda, FileHashes::default());
    let mut keys = BTreeSet::new();
    let mut new: Vec<Job> = jobs(runs);
    new.retain(|job| keys.insert(job.key(runs, device, &hashes)));
    let mut above = false;
    for (index, run) in runs.iter().enumerate() {
        above |= push(run, index, predicted, &new, &mut grid);
    }
    let above = if above { format!("\n{ABOVE_S_E2E}\n") } else { String::new() };
    let mut tiers: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for job in &new {
        let seconds = predicted.seconds(job.run, job.part, job.scheduler);
        *tiers.entry((runs[job.run].entry.tier.0, job.repeat + 1)).or_default() += seconds;
    }
    let tiers = tiers.iter().map(|((tier, repeat), seconds)| {
        format!("tier {tier}, repeat {repeat}: {seconds:.0} s of live runs, by the model\n")
    });
    grid.text() + &above + "\n" + &tiers.collect::<String>()
}

fn mean_ms(latency: &LatencySummary) -> Option<f64> {
    (latency.count > 0).then_some(1e3 * latency.mean)
}

/// A row per scheduler, with the live runs that are `new` here; returns whether a speed-up is above S_e2e.
fn push(run: &PlannedRun, index: usize, predicted: &Predicted, new: &[Job], grid: &mut Grid) -> bool {
    let mut above = false;
    for (at, part) in run.parts.iter().enumerate() {
        let metrics: Vec<_> = predicted.part(index, at).iter().map(|run| run.metrics.clone()).collect();
        let bounds = if run.online() { Vec::new() } else { speed::bounds(&part.plan, &metrics) };
        for (scheduler, planned) in part.plan.schedulers.iter().enumerate() {
            let here = |job: &&Job| (job.run, job.part, job.scheduler) == (index, at, scheduler);
            let live_runs = new.iter().filter(here).count() as f64;
            let seconds = live_runs * predicted.seconds(index, at, scheduler);
            let (metrics, bounds) = (&metrics[scheduler], bounds.get(scheduler));
            above |= bounds.is_some_and(|bounds| is_above(bounds.realised_share));
            let carried = part.plan.slo().filter(|_| run.online()).map(|slo| slo.carried(metrics));
            grid.push(vec![
                Cell::text(&run.entry.name),
                Cell::text(run.entry.tier.0.to_string()),
                Cell::text(&planned.name),
                Cell::text(part.plan.workload.requests().to_string()),
                part.load.map(|load| load.rate_per_s).into(),
                metrics.throughput_tokens_per_s.into(),
                bounds.map(|bounds| bounds.speedup).into(),
                bounds.map(|bounds| bounds.s_e2e).into(),
                bounds.and_then(|bounds| bounds.s_roof).into(),
                mean_ms(&metrics.ttft).into(),
                mean_ms(&metrics.tpot).into(),
                carried.map_or(Cell::Missing, |carried| Cell::text(if carried { "yes" } else { "no" })),
                Cell::text(live_runs.to_string()),
                seconds.into(),
            ]);
        }
    }
    above
}
