//! The latency model: what a device needs for each stage, as fitted by calibration or computed from a datasheet.
//!
//! Every stage costs `delta + max(floor, gamma N_b) + alpha N_c` (the paper's Section 5), with `N_b` the rows padded to the
//! graph bucket and `N_c` the KV entries that they read. `floor = 0` is the paper's linear form; a roofline has the time to
//! stream the weights as its floor. Where every graph was measured, each has a table of its own instead.

mod cost;
mod device;
mod graphs;
mod kv_tile;
mod roofline;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::cost::{BucketSizes, Buckets, StageCost};
use crate::scheduler::StageCosts;
pub use cost::{HostCost, PrefillCost};
pub use device::DeviceSpec;
pub use graphs::{GraphTimes, Graphs, PromptCost};
pub use kv_tile::KvTile;

/// A coefficient at most, in its own unit: eleven days for milliseconds.
const COST_MAX: f64 = 1e9;

/// A bandwidth in GB/s or a throughput in TFLOPS at least: a thousand bytes, or a million operations, per second.
const RATE_MIN: f64 = 1e-6;

/// Less would be no time on a clock that counts nanoseconds.
const CORE_MIN_MS: f64 = 1e-6;

/// A device's costs for one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name in reports.
    pub name: String,
    /// The model it is for, by its architecture's name.
    pub model: String,
    /// What ran it, and its physical limits.
    pub device: DeviceSpec,
    /// Where the numbers come from: the measurement's command, date and commit, or a derivation.
    pub source: String,
    /// One application of the core.
    pub core: StageCost,
    /// Everything before the loop.
    pub prelude: StageCost,
    /// Everything behind the loop.
    pub coda: StageCost,
    /// What each graph needs, where that was measured: in place of the stages' lines.
    #[serde(default, skip_serializing_if = "Graphs::is_empty")]
    pub graphs: Graphs,
    /// Packed prompt chunks.
    pub prefill: PrefillCost,
    /// How attention reads KV.
    #[serde(default, skip_serializing_if = "KvTile::is_exact")]
    pub kv_tile: KvTile,
    /// Device time that a stage's own launch adds over running inside one fused graph.
    #[serde(default)]
    pub stage_overhead_us: f64,
    /// The host's work per batch.
    #[serde(default)]
    pub host: HostCost,
    /// Batch sizes for which there are graphs.
    #[serde(default)]
    pub buckets: Buckets,
    /// Moving KV.
    #[serde(default)]
    pub transfer: Transfer,
    /// Other values that the sources allow, by name: what is concluded from the profile must hold for each.
    #[serde(default)]
    pub variants: BTreeMap<String, Variant>,
    /// How well the fit describes its measurements; `None` for derived profiles.
    #[serde(default)]
    pub fit: Option<Fit>,
}

/// Bandwidths for moving KV.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Copying planes on the device, bytes copied per second.
    pub plane_copy_gb_per_s: f64,
    /// Between device and host memory.
    pub offload_gb_per_s: f64,
}

impl Default for Transfer {
    fn default() -> Self {
        Self { plane_copy_gb_per_s: f64::INFINITY, offload_gb_per_s: f64::INFINITY }
    }
}

/// Parts of a profile that a variant replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// In place of the core's cost.
    #[serde(default)]
    pub core: Option<StageCost>,
    /// In place of the prelude's cost.
    #[serde(default)]
    pub prelude: Option<StageCost>,
    /// In place of the coda's cost.
    #[serde(default)]
    pub coda: Option<StageCost>,
    /// In place of the prefill's cost.
    #[serde(default)]
    pub prefill: Option<PrefillCost>,
    /// In place of the overhead per stage.
    #[serde(default)]
    pub stage_overhead_us: Option<f64>,
}

/// How well the core's cost describes what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Measured points.
    pub points: u32,
    /// Coefficient of determination.
    pub r_squared: f64,
    /// Mean absolute relative error of points left out of the fit (cross-validation).
    pub cross_validated_error: f64,
    /// Worst absolute relative error of a left-out point.
    #[serde(default)]
    pub cross_validated_error_max: f64,
    /// The mean error of the form that predicts left-out points worse, where it could be fitted; of the linear one if the graphs
    /// have tables of their own.
    #[serde(default)]
    pub rejected_form_error: Option<f64>,
    /// Which form predicts left-out points better: `linear`, `roofline` or `per_graph`.
    pub form: String,
    /// 95% confidence half-width of each coefficient, by name.
    pub half_width: BTreeMap<String, f64>,
    /// How the coefficients' errors go together, to carry them into predictions; none if the graphs have tables of their own.
    #[serde(default)]
    pub covariance: Option<Covariance>,
}

/// The covariance of the core's coefficients, in the order of [`StageCost`]'s fields and in the products of their units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Covariance {
    /// Measured points minus fitted coefficients, for Student's t.
    pub degrees: u32,
    /// Symmetric; rows of coefficients that were not fitted are zero.
    pub matrix: [[f64; 4]; 4],
}

/// A profile that cannot be simulated with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ProfileError {
    /// Which field.
    pub field: String,
    /// What is wrong and what to change.
    pub reason: String,
}

impl Profile {
    /// What the adaptive coda is told of the device.
    pub fn stage_costs(&self) -> StageCosts {
        StageCosts {
            core: self.core,
            prelude: self.prelude,
            coda: self.coda,
            stage_overhead_us: self.stage_overhead_us,
            buckets: self.buckets,
        }
    }

    /// The profile with a variant's values in place.
    pub fn with(&self, variant: &Variant) -> Self {
        let kept = |graphs: &[GraphTimes], replaced: Option<StageCost>| match replaced {
            Some(_) => Vec::new(),
            None => graphs.to_vec(),
        };
        Self {
            core: variant.core.unwrap_or(self.core),
            prelude: variant.prelude.unwrap_or(self.prelude),
            coda: variant.coda.unwrap_or(self.coda),
            graphs: Graphs {
                core: kept(&self.graphs.core, variant.core),
                prelude: kept(&self.graphs.prelude, variant.prelude),
                coda: kept(&self.graphs.coda, variant.coda),
                prefill: match variant.prefill {
                    Some(_) => Vec::new(),
                    None => self.graphs.prefill.clone(),
                },
            },
            prefill: variant.prefill.unwrap_or(self.prefill),
            stage_overhead_us: variant.stage_overhead_us.unwrap_or(self.stage_overhead_us),
            variants: BTreeMap::new(),
            // The fit is of the core that was replaced.
            fit: self.fit.clone().filter(|_| variant.core.is_none()),
            ..self.clone()
        }
    }

    /// Milliseconds of one core application to `rows` padded rows that read `context` KV entries.
    pub fn core_ms(&self, rows: u32, context: u64) -> f64 {
        Graphs::time_ms(&self.graphs.core, rows, context).unwrap_or_else(|| self.core.time_ms(rows, context))
    }

    /// The same for everything before the loop.
    pub fn prelude_ms(&self, rows: u32, context: u64) -> f64 {
        Graphs::time_ms(&self.graphs.prelude, rows, context).unwrap_or_else(|| self.prelude.time_ms(rows, context))
    }

    /// The same for everything behind the loop.
    pub fn coda_ms(&self, rows: u32, context: u64) -> f64 {
        Graphs::time_ms(&self.graphs.coda, rows, context).unwrap_or_else(|| self.coda.time_ms(rows, context))
    }

    /// Milliseconds for prompt chunks, each (KV entries before it, new tokens).
    pub fn prefill_ms(&self, chunks: impl IntoIterator<Item = (u32, u32)> + Clone) -> f64 {
        let (tokens, attended) = self.prefill.load(chunks.clone());
        Graphs::prompt_ms(&self.graphs.prefill, tokens, attended).unwrap_or_else(|| self.prefill.time_ms(chunks))
    }

    /// `N_c` of rows that each read so many KV entries.
    pub fn kv_entries(&self, contexts: impl IntoIterator<Item = u32>) -> u64 {
        self.kv_tile.entries(contexts)
    }

    /// Checks that every cost is a time that a run can count.
    ///
    /// # Errors
    /// The first field that is negative, too large or empty.
    pub fn check(&self) -> Result<(), ProfileError> {
        let times = |name: &str, values: [f64; 4]| {
            let fields = ["delta_ms", "floor_ms", "gamma_us", "alpha_ns"];
            values
                .into_iter()
                .zip(fields)
                .try_for_each(|(value, field)| at_least_zero(&format!("{name}.{field}"), value))
        };
        for (name, cost) in [("core", &self.core), ("prelude", &self.prelude), ("coda", &self.coda)] {
            times(name, [cost.delta_ms, cost.floor_ms, cost.gamma_us, cost.alpha_ns])?;
        }
        if let Some((field, reason)) = self.graphs.fault() {
            return Err(ProfileError { field, reason });
        }
        let PrefillCost { delta_ms, floor_ms, gamma_us, alpha_ns, tile_pairs } = self.prefill;
        times("prefill", [delta_ms, floor_ms, gamma_us, alpha_ns])?;
        at_least_zero("prefill.tile_pairs", tile_pairs)?;
        at_least_zero("kv_tile.share", self.kv_tile.share)?;
        at_least_zero("stage_overhead_us", self.stage_overhead_us)?;
        let HostCost { build_us, build_row_us, launch_us, read_us } = self.host;
        for (field, value) in
            [("build_us", build_us), ("build_row_us", build_row_us), ("launch_us", launch_us), ("read_us", read_us)]
        {
            at_least_zero(&format!("host.{field}"), value)?;
        }
        let rates = [
            ("device.bandwidth_gb_per_s", self.device.bandwidth_gb_per_s),
            ("device.compute_tflops", self.device.compute_tflops),
            ("transfer.plane_copy_gb_per_s", self.transfer.plane_copy_gb_per_s),
            ("transfer.offload_gb_per_s", self.transfer.offload_gb_per_s),
        ];
        if let Some((field, value)) = rates.into_iter().find(|(_, value)| value.is_nan() || *value < RATE_MIN) {
            return Err(ProfileError {
                field: field.into(),
                reason: format!("must be at least {RATE_MIN}, got {value:?}"),
            });
        }
        if let Some(fit) = &self.fit {
            fit.check()?;
        }
        let one_row_ms = self.core_ms(1, 1);
        if one_row_ms < CORE_MIN_MS {
            let reason = format!(
                "a core step must take some time, at least the nanosecond that a run counts in; one of a row takes {one_row_ms:e} ms"
            );
            return Err(ProfileError { field: "core".into(), reason });
        }
        self.variants.iter().try_for_each(|(name, variant)| {
            self.with(variant)
                .check()
                .map_err(|error| ProfileError { field: format!("variants.{name}.{}", error.field), ..error })
        })
    }
}

impl Fit {
    /// Checks what is carried into predictions and into verdicts on the profile.
    fn check(&self) -> Result<(), ProfileError> {
        at_least_zero("fit.cross_validated_error", self.cross_validated_error)?;
        at_least_zero("fit.cross_validated_error_max", self.cross_validated_error_max)?;
        let Some(Covariance { matrix, .. }) = self.covariance else { return Ok(()) };
        let small = |entry: &f64| entry.abs() <= COST_MAX * COST_MAX;
        if matrix.iter().flatten().all(small) && (0..4).all(|i| matrix[i][i] >= 0.0) {
            return Ok(());
        }
        let reason = format!("entries must be within {:e}, and none on the diagonal negative", COST_MAX * COST_MAX);
        Err(ProfileError { field: "fit.covariance.matrix".into(), reason })
    }
}

fn at_least_zero(field: &str, value: f64) -> Result<(), ProfileError> {
    if is_cost(value) {
        return Ok(());
    }
    Err(ProfileError { field: field.into(), reason: format!("must be from 0 to {COST_MAX:e}, got {value:?}") })
}

/// Whether a number can be a coefficient.
fn is_cost(value: f64) -> bool {
    (0.0..=COST_MAX).contains(&value)
}
