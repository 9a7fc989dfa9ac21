//! Latency percentiles: a section per metric, a row per scheduler.

use engine::metrics::{LatencySummary, RunMetrics};

use super::{MISSING, Section, Table, TableRow};
use crate::definitions::{self as d, Definition};
use crate::format::{count, number, scale};
use crate::report::Report;

type Pick = fn(&RunMetrics) -> &LatencySummary;

const METRICS: [(Definition, Pick); 5] = [
    (d::TTFT, |metrics| &metrics.ttft),
    (d::TPOT, |metrics| &metrics.tpot),
    (d::ITL, |metrics| &metrics.itl),
    (d::E2E, |metrics| &metrics.e2e),
    (d::NORMALIZED, |metrics| &metrics.normalized),
];

pub(super) fn latencies(report: &Report) -> Table {
    Table {
        columns: ["mean", "p50", "p90", "p95", "p99", "max", "samples"].map(String::from).to_vec(),
        sections: METRICS.into_iter().map(|(definition, pick)| section(report, definition, pick)).collect(),
    }
}

fn section(report: &Report, definition: Definition, pick: Pick) -> Section {
    let summaries = || report.schedulers.iter().map(|run| pick(&run.metrics));
    let (factor, prefix) = scale(summaries().map(|summary| summary.p50));
    let unit = format!("{prefix}{}", definition.unit);
    let rows = report.schedulers.iter().map(|run| {
        let summary = pick(&run.metrics);
        TableRow { name: run.name.clone(), unit: unit.clone(), definition: None, cells: cells(summary, factor) }
    });
    Section { heading: definition.name.into(), definition: Some(definition), rows: rows.collect() }
}

fn cells(summary: &LatencySummary, factor: f64) -> Vec<String> {
    let LatencySummary { count: samples, mean, p50, p90, p95, p99, max } = *summary;
    let value = |value| if samples > 0 { number(factor * value) } else { MISSING.into() };
    let mut cells: Vec<String> = [mean, p50, p90, p95, p99, max].map(value).to_vec();
    cells.push(count(samples));
    cells
}
