//! `validation.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::tolerance::Verdict;
use super::{Load, MetricPair, StageError, Validation};
use crate::report::Floor;

/// What the file holds of a validation.
#[derive(Serialize)]
pub(super) struct Root<'a> {
    scenario: &'a str,
    device: &'a str,
    profile: &'a str,
    exits: &'a str,
    online: bool,
    kv_blocks: u32,
    graph_rows: Option<&'a [u32]>,
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
    floor: Option<Floor>,
    load: Option<Load>,
    verdicts: Vec<Verdict>,
    ks_distance: &'a BTreeMap<String, f64>,
    stages: &'a [StageError],
}

/// Per scheduler a map from metric to number for each side.
pub(super) fn root(validation: &Validation) -> Root<'_> {
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
            floor: scheduler.floor,
            load: scheduler.load,
            verdicts: scheduler.verdicts(validation.online),
            ks_distance: &scheduler.ks_distance,
            stages: &scheduler.stages,
        }
    });
    Root {
        scenario: &validation.title,
        device: &validation.device,
        profile: &validation.profile,
        exits: &validation.exits,
        online: validation.online,
        kv_blocks: validation.kv_blocks,
        graph_rows: validation.graph_rows.as_deref(),
        repeats: validation.repeats,
        schedulers: schedulers.collect(),
    }
}

/// The text of a JSON file.
pub(super) fn render(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}
