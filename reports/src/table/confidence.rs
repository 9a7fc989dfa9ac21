//! What repeats say: mean and 95% interval, a section for the seeds and one for the profile's fit.

use super::{MISSING, Section, TableRow};
use crate::confidence::Confidence;
use crate::definitions::{self as d};
use crate::format::{number, scale};
use crate::measures::{Measure, Measures};
use crate::report::Report;

/// The figures that have a row; `summary.json` has all of them.
const SHOWN: [&str; 16] = [
    "throughput_tokens_per_s",
    "speedup",
    "s_e2e",
    "s_roof",
    "realised_share",
    "capacity_requests_per_s",
    "goodput_requests_per_s",
    "mean_core_batch",
    "mean_coda_batch",
    "prefill_share",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_p50_s",
    "tpot_p99_s",
    "e2e_p99_s",
    "normalized_mean_s",
];

pub(super) fn sections(report: &Report) -> Vec<Section> {
    let Some(confidence) = &report.confidence else { return Vec::new() };
    let mut sections = vec![Section {
        heading: format!("Over {} seeds", confidence.seeds.len()),
        definition: Some(d::INTERVAL),
        rows: rows(over_seeds(confidence)),
    }];
    if let Some(profile) = &confidence.profile {
        // The report's own seed is the prediction that the fit's uncertainty is about.
        let cells = profile.iter().zip(&confidence.repeats).map(|(half_widths, repeats)| {
            let values = repeats.first().map(Measures::values).unwrap_or_default();
            values.into_iter().zip(half_widths).map(|(value, half)| Some((value?, (*half)?))).collect()
        });
        sections.push(Section {
            heading: "By the profile's fit".into(),
            definition: Some(d::PROFILE_INTERVAL),
            rows: rows(cells.collect()),
        });
    }
    sections
}

/// Value and half-width by scheduler and figure.
fn over_seeds(confidence: &Confidence) -> Vec<Vec<Option<(f64, f64)>>> {
    let schedulers = 0..confidence.repeats.len();
    let pair = |interval: Option<engine::interval::Interval>| interval.and_then(|i| Some((i.mean, i.half_width?)));
    schedulers.map(|scheduler| confidence.intervals(scheduler).into_iter().map(pair).collect()).collect()
}

fn rows(values: Vec<Vec<Option<(f64, f64)>>>) -> Vec<TableRow> {
    let shown = Measures::ALL.iter().enumerate().filter(|(_, measure)| SHOWN.contains(&measure.column));
    shown
        .filter_map(|(index, measure)| {
            let cells: Vec<_> = values.iter().map(|figures| figures[index]).collect();
            cells.iter().any(Option::is_some).then(|| row(measure, &cells))
        })
        .collect()
}

fn row(measure: &Measure, cells: &[Option<(f64, f64)>]) -> TableRow {
    let unit = measure.definition.unit;
    let (factor, prefix) = match unit {
        "%" => (100.0, ""),
        "s" | "s/token" => scale(cells.iter().flatten().map(|(value, _)| *value)),
        _ => (1.0, ""),
    };
    let cell = |&(value, half): &(f64, f64)| format!("{} ± {}", number(factor * value), number(factor * half));
    TableRow {
        name: measure.name(),
        unit: format!("{prefix}{unit}"),
        definition: Some(measure.definition),
        cells: cells.iter().map(|pair| pair.as_ref().map_or_else(|| MISSING.into(), cell)).collect(),
    }
}
