//! `validation.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{MetricPair, StageError, Validation};

#[derive(Serialize)]
struct Root<'a> {
    scenario: &'a str,
    device: &'a str,
    profile: &'a str,
    exits: &'a str,
    repeats: u32,
    schedulers: Vec<Scheduler<'a>>,
}

#[derive(Serialize)]
struct Scheduler<'a> {
    name: &'a str,
    batches_identical: Option<bool>,
    first_difference: Option<&'a str>,
    predicted: BTreeMap<&'a str, f64>,
    measured: BTreeMap<&'a str, f64>,
    error: BTreeMap<&'a str, f64>,
    live_spread: BTreeMap<&'a str, f64>,
    ks_distance: &'a BTreeMap<String, f64>,
    stages: &'a [StageError],
}

/// The text of `validation.json`: per scheduler a map from metric to number for each side.
pub(super) fn render(validation: &Validation) -> serde_json::Result<String> {
    let schedulers = validation.schedulers.iter().map(|scheduler| {
        let column = |value: fn(&MetricPair) -> f64| {
            scheduler.metrics.iter().map(|pair| (pair.name.as_str(), value(pair))).collect()
        };
        Scheduler {
            name: &scheduler.name,
            batches_identical: scheduler.batches_identical,
            first_difference: scheduler.first_difference.as_deref(),
            predicted: column(|pair| pair.predicted),
            measured: column(|pair| pair.measured),
            error: column(|pair| pair.error),
            live_spread: column(|pair| pair.live_spread),
            ks_distance: &scheduler.ks_distance,
            stages: &scheduler.stages,
        }
    });
    let root = Root {
        scenario: &validation.title,
        device: &validation.device,
        profile: &validation.profile,
        exits: &validation.exits,
        repeats: validation.repeats,
        schedulers: schedulers.collect(),
    };
    serde_json::to_string_pretty(&root).map(|text| text + "\n")
}
