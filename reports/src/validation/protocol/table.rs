//! All pairs as CSV, and what people read of them.

use super::capacity::{measured_share, measured_speedup};
use super::{CapacityPair, Protocol, ProtocolRun};
use crate::format::{number, percent, ratio};
use crate::grid::{Cell, Grid};
use crate::table::{MISSING, Section, Table, TableRow};
use crate::validation::{MetricPair, SchedulerValidation, Validation, Verdict};

/// Every metric of every run on both sides, in the units of its name; the capacities behind them.
pub(super) fn pairs(protocol: &Protocol) -> Grid {
    let mut grid = Grid::new([
        "run",
        "group",
        "tier",
        "scheduler",
        "rate_per_s",
        "metric",
        "predicted",
        "measured",
        "error",
        "live_spread",
        "off",
        "allowed",
        "verdict",
    ]);
    for (run, validation) in protocol.measured() {
        for scheduler in &validation.schedulers {
            let verdicts = scheduler.verdicts(validation.online);
            for pair in &scheduler.metrics {
                let verdict = verdicts.iter().find(|verdict| verdict.metric == pair.name);
                grid.push(pair_row(run, scheduler, pair, verdict));
            }
        }
    }
    for pair in &protocol.capacities {
        let verdict = pair.verdict();
        let mut push = |metric: &str, predicted: Option<f64>, measured: Option<f64>, verdict: Option<&Verdict>| {
            let error = predicted.zip(measured).map(|(predicted, measured)| predicted / measured - 1.0);
            let names = [Cell::text(""), Cell::text(&pair.group), Cell::Missing, Cell::text(&pair.scheduler)];
            let numbers = [Cell::Missing, Cell::text(metric), predicted.into(), measured.into(), error.into()];
            grid.push([&names[..], &numbers, &[Cell::Missing], &judged(verdict)].concat());
        };
        push("capacity_requests_per_s", pair.predicted.requests_per_s, pair.carried_per_s(), verdict.as_ref());
        push("capacity_speedup", pair.predicted.speedup, measured_speedup(pair, &protocol.capacities), None);
    }
    grid
}

fn pair_row(
    run: &ProtocolRun,
    scheduler: &SchedulerValidation,
    pair: &MetricPair,
    verdict: Option<&Verdict>,
) -> Vec<Cell> {
    let names =
        [Cell::text(&run.name), Cell::text(&run.group), f64::from(run.tier).into(), Cell::text(&scheduler.name)];
    let numbers = [
        scheduler.load.map(|load| load.rate_per_s).into(),
        Cell::text(&pair.name),
        pair.predicted.into(),
        pair.measured.into(),
        pair.error.into(),
        pair.live_spread.into(),
    ];
    [&names[..], &numbers, &judged(verdict)].concat()
}

fn judged(verdict: Option<&Verdict>) -> [Cell; 3] {
    let word = |verdict: &Verdict| {
        Cell::text(match verdict.met() {
            Some(true) => "pass",
            Some(false) => "miss",
            None => "not judged",
        })
    };
    [
        verdict.map(|verdict| verdict.off).into(),
        verdict.map(|verdict| verdict.allowed).into(),
        verdict.map_or(Cell::Missing, word),
    ]
}

/// Every prediction that has a tolerance, a section per run and scheduler.
pub(super) fn verdicts(protocol: &Protocol) -> Table {
    let of_run = |(run, validation): (&ProtocolRun, &Validation)| {
        let section = |scheduler: &SchedulerValidation| Section {
            heading: format!("{}, {}", run.name, scheduler.name),
            definition: None,
            rows: scheduler.verdicts(validation.online).iter().map(|verdict| row(scheduler, verdict)).collect(),
        };
        validation.schedulers.iter().map(section).collect::<Vec<_>>()
    };
    Table {
        columns: ["predicted", "measured", "off", "allowed", ""].map(String::from).into(),
        sections: protocol.measured().flat_map(of_run).collect(),
    }
}

fn row(scheduler: &SchedulerValidation, verdict: &Verdict) -> TableRow {
    // Seconds read better as milliseconds, whatever their size: one unit in all runs.
    let (name, scale, unit) = match verdict.metric.split_once("_s.") {
        Some((name, statistic)) => (format!("{name} {statistic}"), 1e3, "ms"),
        None => (verdict.metric.replace('_', " "), 1.0, ""),
    };
    let side = |value: fn(&MetricPair) -> f64| {
        scheduler.metric(&verdict.metric).map_or(MISSING.into(), |pair| number(scale * value(pair)))
    };
    TableRow {
        name,
        unit: unit.into(),
        definition: None,
        cells: vec![
            side(|pair| pair.predicted),
            side(|pair| pair.measured),
            format!("{}%", percent(verdict.off)),
            format!("{}%", percent(verdict.allowed)),
            shown(verdict),
        ],
    }
}

/// A verdict as people read it.
fn shown(verdict: &Verdict) -> String {
    match verdict.reason() {
        Some(reason) => format!("not judged: {reason}"),
        None if verdict.met() == Some(true) => "pass".into(),
        None => "MISS".into(),
    }
}

/// Capacities and their ratios, a section per group.
pub(super) fn capacities(protocol: &Protocol) -> Table {
    let mut sections: Vec<Section> = Vec::new();
    for pair in &protocol.capacities {
        if sections.last().is_none_or(|section| section.heading != pair.group) {
            sections.push(Section { heading: pair.group.clone(), definition: None, rows: Vec::new() });
        }
        let section = sections.last_mut().expect("one was pushed");
        section.rows.push(capacity_row(pair, &protocol.capacities));
    }
    let columns = [
        "capacity, predicted",
        "carried, measured",
        "not carried",
        "",
        "rates tested",
        "speed-up, predicted",
        "measured",
        "S_e2e",
        "realised, predicted",
        "measured",
        "at the floor",
    ];
    Table { columns: columns.map(String::from).into(), sections }
}

fn capacity_row(pair: &CapacityPair, all: &[CapacityPair]) -> TableRow {
    let rate = |rate: Option<f64>| rate.map_or(MISSING.into(), number);
    let times = |value: Option<f64>| value.map_or(MISSING.into(), |value| format!("{}×", ratio(value)));
    let share = |value: Option<f64>| value.map_or(MISSING.into(), |value| format!("{}%", percent(value)));
    let speedup = measured_speedup(pair, all);
    let tested: Vec<_> = pair.tested.iter().map(|tested| number(tested.rate_per_s)).collect();
    TableRow {
        name: pair.scheduler.clone(),
        unit: "requests/s".into(),
        definition: None,
        cells: vec![
            pair.predicted.rates.cell().unwrap_or_else(|| MISSING.into()),
            rate(pair.carried_per_s()),
            rate(pair.refused_per_s()),
            pair.verdict().as_ref().map_or(MISSING.into(), shown),
            tested.join(", "),
            times(pair.predicted.speedup),
            times(speedup),
            times(pair.s_e2e()),
            share(pair.predicted.realised_share),
            share(measured_share(pair, all)),
            share(pair.floor.as_ref().and_then(|floor| floor.realised_share)),
        ],
    }
}
