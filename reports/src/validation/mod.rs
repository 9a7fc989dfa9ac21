//! Predicted against measured: what the model says of a live run, and how far it is off.

mod json;
mod plots;
pub mod protocol;
mod text;
mod tolerance;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::batch::Stage;
use serde::Serialize;

pub use text::validation_text;
pub use tolerance::Verdict;

use crate::error::{ReportError, Result};
use crate::file::write_whole;
use crate::report::Floor;

/// A scenario that was run on the model and for real.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The scenario's name.
    pub title: String,
    /// What ran it.
    pub device: String,
    /// The latency model's name.
    pub profile: String,
    /// Whose exits both runs took.
    pub exits: String,
    /// Core KV blocks on both sides.
    pub kv_blocks: u32,
    /// The row counts that decode steps are padded to, on both sides; `None` if the profile has no list of them.
    pub graph_rows: Option<Vec<u32>>,
    /// Requests arrive over time.
    pub online: bool,
    /// Live runs of each scheduler; measured values are their means.
    pub repeats: u32,
    /// In the order in which they are shown.
    pub schedulers: Vec<SchedulerValidation>,
}

/// One scheduler, predicted and measured.
#[derive(Clone, Debug)]
pub struct SchedulerValidation {
    /// Its name.
    pub name: String,
    /// Headline metrics.
    pub metrics: Vec<MetricPair>,
    /// What the model says where only physics costs time; offline only.
    pub floor: Option<Floor>,
    /// How the requests arrived, in a protocol's online run.
    pub load: Option<Load>,
    /// Every live run made the predicted batches, row for row; `None` online, where time decides.
    pub batches_identical: Option<bool>,
    /// The first step at which they differ, in words.
    pub first_difference: Option<String>,
    /// Kolmogorov-Smirnov distance of the distributions over requests, by metric: 0 is equal, 1 is disjoint.
    pub ks_distance: BTreeMap<String, f64>,
    /// Step times, stage by stage.
    pub stages: Vec<StageError>,
    /// Step times, pair by pair, for the plot.
    pub step_pairs: Vec<StepPair>,
}

/// One metric on both sides; latencies in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPair {
    /// Its name in `validation.json`.
    pub name: String,
    /// The model's.
    pub predicted: f64,
    /// The mean of the live runs.
    pub measured: f64,
    /// `(predicted - measured) / measured`.
    pub error: f64,
    /// `(largest - smallest) / mean` of the live runs.
    pub live_spread: f64,
}

/// A load of requests that arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Requests per second.
    pub rate_per_s: f64,
    /// How many arrive, on both sides.
    pub requests: u32,
    /// The scheduler's capacity by the model, in requests per second, or as it is given where the model finds none.
    pub capacity_per_s: Option<f64>,
    /// Whether the SLO was kept and the queue did not grow, by the model.
    pub predicted_carried: Option<bool>,
    /// The same in the live runs; `None` if they disagree.
    pub measured_carried: Option<bool>,
}

/// How far a stage's step times are off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageError {
    /// The stage.
    pub stage: Stage,
    /// Steps of the live run.
    pub steps: u64,
    /// Mean step by the model, in milliseconds.
    pub predicted_mean_ms: f64,
    /// Mean step of the live run, in milliseconds.
    pub measured_mean_ms: f64,
    /// Relative error of the mean.
    pub error: f64,
    /// Mean of the absolute errors of single steps, relative to the measured mean; `None` if the steps are not the same.
    pub mean_absolute_error: Option<f64>,
}

/// The same step on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPair {
    /// Its stage.
    pub stage: Stage,
    /// By the model, in milliseconds.
    pub predicted_ms: f64,
    /// In the live run, in milliseconds.
    pub measured_ms: f64,
}

impl SchedulerValidation {
    /// A metric by its name.
    pub fn metric(&self, name: &str) -> Option<&MetricPair> {
        self.metrics.iter().find(|pair| pair.name == name)
    }
}

impl Load {
    /// The rate as a share of the capacity.
    pub fn share(&self) -> Option<f64> {
        self.capacity_per_s.map(|capacity_per_s| self.rate_per_s / capacity_per_s)
    }
}

/// Writes `validation.json` and, if wanted, `step_times.svg` and `.png`; returns what was written.
///
/// # Errors
/// A file cannot be written or the plot cannot be drawn.
pub fn write_validation(validation: &Validation, folder: &Path, plots: bool) -> Result<Vec<PathBuf>> {
    let path = folder.join("validation.json");
    let json =
        json::render(&json::root(validation)).map_err(|source| ReportError::Json { path: path.clone(), source })?;
    let mut written = vec![write_whole(&path, json.as_bytes())?];
    if plots && let Some(figure) = plots::step_times(validation) {
        written.extend(figure.write(folder, "step_times", true)?);
    }
    Ok(written)
}
