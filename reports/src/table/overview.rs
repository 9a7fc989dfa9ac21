//! One column per scheduler: speed, batches, requests.

use engine::batch::Stage;

use super::{MISSING, Section, Table, TableRow};
use crate::definitions::{self as d, Definition};
use crate::format::{count, number, percent, ratio};
use crate::report::{Report, SchedulerReport};

pub(super) fn overview(report: &Report) -> Table {
    let sections = [("Speed", speed(report)), ("Batches and device", device(report)), ("Requests", requests(report))];
    Table {
        columns: report.schedulers.iter().map(|run| run.name.clone()).collect(),
        sections: sections
            .into_iter()
            .map(|(heading, rows)| Section {
                heading: heading.into(),
                definition: None,
                rows: rows.into_iter().flatten().collect(),
            })
            .chain(super::confidence::sections(report))
            .collect(),
    }
}

fn speed(report: &Report) -> Vec<Option<TableRow>> {
    let bounds = |run: &SchedulerReport| run.bounds;
    vec![
        row(report, d::THROUGHPUT, |run| Some(number(run.metrics.throughput_tokens_per_s))),
        row(report, d::STEADY_THROUGHPUT, |run| run.metrics.steady.map(|s| number(s.throughput_tokens_per_s))),
        row(report, d::SPEEDUP, |run| bounds(run).map(|b| ratio(b.speedup)).or_else(|| capacity_ratio(run))),
        row(report, d::STEADY_SPEEDUP, |run| bounds(run)?.steady_speedup.map(ratio)),
        row(report, d::S_DEC, |run| bounds(run).map(|b| ratio(b.s_dec))),
        row(report, d::S_E2E, |run| {
            let capacity =
                || run.capacity.as_ref().and_then(|capacity| Some(capacity.speedup? / capacity.realised_share?));
            bounds(run).map(|b| b.s_e2e).or_else(capacity).map(ratio)
        }),
        row(report, d::S_ROOF, |run| bounds(run)?.s_roof.map(ratio)),
        row(report, d::REALISED_SHARE, |run| {
            let capacity = || run.capacity.as_ref()?.realised_share;
            bounds(run).map(|b| b.realised_share).or_else(capacity).map(percent)
        }),
        row(report, d::FLOOR_SPEEDUP, |run| run.floor.map(|floor| ratio(floor.speedup))),
        row(report, d::FLOOR_SHARE, |run| run.floor.map(|floor| percent(floor.realised_share))),
        row(report, d::CAPACITY, |run| run.capacity.as_ref()?.rates.cell()),
        row(report, d::GOODPUT, |run| run.metrics.goodput.map(|goodput| number(goodput.requests_per_s))),
        row(report, d::WITHIN_SLO, |run| run.metrics.goodput.map(|goodput| percent(goodput.share))),
        row(report, d::SATURATED, |run| saturated(report, run)),
        row(report, d::QUEUE_GROWTH, |run| run.metrics.queue_growth_per_s().map(number)),
    ]
}

fn device(report: &Report) -> Vec<Option<TableRow>> {
    vec![
        row(report, d::MEAN_CORE_BATCH, |run| run.mean_core_batch().map(number)),
        row(report, d::MEAN_CODA_BATCH, |run| run.mean_batch(Stage::Coda).map(number)),
        row(report, d::MEAN_PRELUDE_BATCH, |run| run.mean_batch(Stage::Prelude).map(number)),
        row(report, d::MEAN_EXIT_DEPTH, |run| {
            Some(run.metrics.mean_exit_depth).filter(|&depth| depth > 0.0).map(number)
        }),
        row(report, d::GPU_BUSY, |run| inside(run, run.metrics.gpu_busy_share).map(percent)),
        row(report, d::IMBALANCE, |run| run.metrics.replicas.as_ref().map(|replicas| number(replicas.imbalance))),
        row(report, d::PREFILL_SHARE, |run| inside(run, run.metrics.prefill_share).map(percent)),
        row(report, d::KV_PEAK, |run| inside(run, run.kv_peak_share()).map(percent)),
        row(report, d::PREFIX_HIT_RATE, |run| run.metrics.prefix_cache.map(|cache| percent(cache.hit_rate))),
        row(report, d::EVICTED_PAGES, |run| run.metrics.prefix_cache.map(|cache| count(cache.evicted_pages))),
    ]
}

fn requests(report: &Report) -> Vec<Option<TableRow>> {
    vec![
        row(report, d::ARRIVED, |run| Some(count(run.metrics.requests.arrived))),
        row(report, d::FINISHED, |run| Some(count(run.metrics.requests.finished))),
        row(report, d::REFUSED, |run| inside(run, run.metrics.requests.refused).map(count)),
        row(report, d::FAILED, |run| Some(run.metrics.requests.failed).filter(|&failed| failed > 0).map(count)),
        row(report, d::PREEMPTIONS, |run| inside(run, run.metrics.requests.preemptions).map(count)),
    ]
}

/// What a client does not see.
fn inside<T>(run: &SchedulerReport, value: T) -> Option<T> {
    (!run.metrics.is_from_outside()).then_some(value)
}

/// Online; the headline and `summary.json` say why there is no verdict.
fn saturated(report: &Report, run: &SchedulerReport) -> Option<String> {
    let verdict = run.metrics.saturated().map_or("not judged", |yes| if yes { "yes" } else { "no" });
    report.online.then(|| verdict.into())
}

fn capacity_ratio(run: &SchedulerReport) -> Option<String> {
    run.capacity.as_ref()?.speedup.map(ratio)
}

/// A row, unless no scheduler has a value for it.
fn row(report: &Report, definition: Definition, cell: impl Fn(&SchedulerReport) -> Option<String>) -> Option<TableRow> {
    let cells: Vec<Option<String>> = report.schedulers.iter().map(cell).collect();
    cells.iter().any(Option::is_some).then(|| TableRow {
        name: definition.name.into(),
        unit: definition.unit.into(),
        definition: Some(definition),
        cells: cells.into_iter().map(|cell| cell.unwrap_or_else(|| MISSING.into())).collect(),
    })
}
