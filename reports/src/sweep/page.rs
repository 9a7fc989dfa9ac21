//! The sweep's table as people read it.

use super::Sweep;
use crate::definitions as d;
use crate::format::{number, scale};
use crate::measures::{Measure, Measures};
use crate::table::{MISSING, Section, Table, TableRow};

/// The figures that have a column; the files have all of them.
const SHOWN: [&str; 12] = [
    "throughput_tokens_per_s",
    "speedup",
    "s_e2e",
    "s_roof",
    "realised_share",
    "goodput_requests_per_s",
    "mean_core_batch",
    "mean_coda_batch",
    "prefill_share",
    "ttft_p99_s",
    "tpot_p99_s",
    "saturated",
];

/// The first `most` points of each scheduler, a section each; figures that no row has are left out.
pub(super) fn table(sweep: &Sweep, most: usize) -> Table {
    let means: Vec<Vec<Option<f64>>> = sweep
        .rows
        .iter()
        .map(|row| Measures::intervals(&row.repeats).into_iter().map(|interval| interval.map(|i| i.mean)).collect())
        .collect();
    let has_value = |index: usize| means.iter().any(|figures| figures[index].is_some());
    let shown: Vec<_> = Measures::ALL
        .iter()
        .enumerate()
        .filter(|(index, measure)| SHOWN.contains(&measure.column) && has_value(*index))
        .collect();
    let scales: Vec<_> = shown
        .iter()
        .map(|(index, measure)| match measure.definition.unit {
            "s" => scale(means.iter().filter_map(|figures| figures[*index])),
            "%" => (100.0, ""),
            _ => (1.0, ""),
        })
        .collect();
    let section = |(entry, name): (usize, String)| {
        let rows = sweep.rows.iter().zip(&means).filter(|(row, _)| row.entry == entry).take(most);
        let rows = rows.map(|(row, figures)| TableRow {
            name: sweep.describe(&row.values, |_| true),
            unit: String::new(),
            definition: None,
            cells: shown.iter().zip(&scales).map(|((index, m), scale)| cell(m, figures[*index], scale.0)).collect(),
        });
        Section { heading: name, definition: None, rows: rows.collect() }
    };
    Table {
        columns: shown.iter().zip(&scales).map(|((_, measure), scale)| heading(measure, scale.1)).collect(),
        sections: sweep.schedulers().into_iter().map(section).collect(),
    }
}

fn heading(measure: &Measure, prefix: &str) -> String {
    match measure.definition.unit {
        "" | "×" => measure.name(),
        unit => format!("{}, {prefix}{unit}", measure.name()),
    }
}

fn cell(measure: &Measure, value: Option<f64>, factor: f64) -> String {
    let Some(value) = value else { return MISSING.into() };
    match measure.definition {
        d::SATURATED => match value {
            0.0 => "no".into(),
            1.0 => "yes".into(),
            share => format!("{}%", number(100.0 * share)),
        },
        _ => number(factor * value),
    }
}
