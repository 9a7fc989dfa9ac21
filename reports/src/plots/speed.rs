//! Throughput, against the bounds where there are any.

use engine::scheduler::Mode;

use super::Plot;
use crate::capacity::Capacity;
use crate::chart::{Axis, BarGroup, Bars, Figure, Mark, Panel, bars};
use crate::definitions as d;
use crate::format::number;
use crate::report::{Bounds, Report, SchedulerReport};

/// Styles beside those of the schedulers: these bars have colours by what they measure.
const MEASURED: usize = 0;
const TOKENS: usize = 5;
const OTHER: usize = 6;
const S_DEC: usize = 3;
const S_E2E: usize = 1;

pub(super) fn throughput(report: &Report) -> Option<Plot> {
    if report.schedulers.is_empty() {
        return None;
    }
    let (title, caption, panels) = if let Some(speedups) = speedups(report) {
        (
            "Speed-up over full-depth continuous batching",
            "S_dec bounds the speed-up of decode by FLOPs, S_e2e that of the whole run, prefill included.",
            vec![speedups],
        )
    } else if let Some(capacities) = capacities(report) {
        (
            "Capacity and throughput",
            "Below saturation throughput is the arrival rate, so capacities are what compares.",
            vec![capacities, throughputs(report, "Output tokens")],
        )
    } else {
        ("Throughput", "Below saturation throughput is the arrival rate.", vec![throughputs(report, "")])
    };
    Some(Plot { stem: "throughput", caption, figure: Figure::new(title, panels).panel_size(860, 320) })
}

fn speedups(report: &Report) -> Option<Panel> {
    let bounds = |pick: fn(&Bounds) -> Option<f64>| values(report, move |run| run.bounds.as_ref().and_then(pick));
    let marks =
        |name: &str, style, pick: fn(&Bounds) -> Option<f64>| Mark { name: name.into(), style, values: bounds(pick) };
    let chart = Bars {
        categories: names(report),
        groups: present([
            group("speed-up", MEASURED, bounds(|bounds| Some(bounds.speedup))),
            group("speed-up at the physical floor", OTHER, values(report, |run| run.floor.map(|floor| floor.speedup))),
        ]),
        marks: vec![
            marks(d::S_E2E.name, S_E2E, |bounds| (!bounds.baseline).then_some(bounds.s_e2e)),
            marks(d::S_DEC.name, S_DEC, |bounds| (!bounds.baseline).then_some(bounds.s_dec)),
        ],
        format: |value| format!("{value:.2}×"),
    };
    let any = report.schedulers.iter().any(|run| run.bounds.is_some());
    any.then(|| bars("", "", Axis::linear("speed-up, ×"), chart))
}

/// Capacities, and where the bound would put them.
fn capacities(report: &Report) -> Option<Panel> {
    let capacity = |pick: fn(&Capacity) -> Option<f64>| values(report, move |run| run.capacity.as_ref().and_then(pick));
    let bound = |run: &SchedulerReport| {
        let capacity = run.capacity.as_ref().filter(|_| run.mode != Mode::ContinuousBatching)?;
        Some(capacity.requests_per_s? / capacity.realised_share?)
    };
    let chart = Bars {
        categories: names(report),
        groups: present([group("capacity under the SLO", MEASURED, capacity(|capacity| capacity.requests_per_s))]),
        marks: vec![Mark { name: "S_e2e bound".into(), style: S_E2E, values: values(report, bound) }],
        format: number,
    };
    (!chart.groups.is_empty()).then(|| bars("Capacity", "", Axis::linear("requests/s"), chart))
}

fn throughputs(report: &Report, title: &str) -> Panel {
    let groups = present([
        group("whole run", TOKENS, values(report, |run| Some(run.metrics.throughput_tokens_per_s))),
        group("steady window", OTHER, values(report, |run| Some(run.metrics.steady?.throughput_tokens_per_s))),
    ]);
    let chart = Bars { categories: names(report), groups, marks: Vec::new(), format: number };
    bars(title, "", Axis::linear("tokens/s"), chart)
}

fn names(report: &Report) -> Vec<String> {
    report.schedulers.iter().map(|run| run.name.clone()).collect()
}

fn values(report: &Report, pick: impl Fn(&SchedulerReport) -> Option<f64>) -> Vec<Option<f64>> {
    report.schedulers.iter().map(pick).collect()
}

fn group(name: &str, style: usize, values: Vec<Option<f64>>) -> BarGroup {
    BarGroup { name: name.into(), style, values }
}

/// Groups that have a bar at all.
fn present<const N: usize>(groups: [BarGroup; N]) -> Vec<BarGroup> {
    groups.into_iter().filter(|group| group.values.iter().any(Option::is_some)).collect()
}
