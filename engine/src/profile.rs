//! The latency model: what a device needs for each stage, as fitted by calibration or computed from a datasheet.
//!
//! Every stage costs `delta + max(floor, gamma N_b) + alpha N_c` (the paper's Section 5), with `N_b` the rows padded to the
//! graph bucket and `N_c` the KV entries that they read. `floor = 0` is the paper's linear form; a roofline has the time to
//! stream the weights as its floor. Where every graph was measured, each has a table of its own instead.

mod buckets;
mod graphs;
mod kv_tile;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use buckets::{BucketSizes, Buckets};
pub use graphs::{GraphTimes, Graphs, PromptCost};
pub use kv_tile::KvTile;

use crate::architecture::Architecture;
use crate::units::Nanos;

/// A device's costs for one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name in reports.
    pub name: String,
    /// The model it is for, by its architecture's name.
    pub model: String,
    /// What ran it, and its physical limits.
    pub device: Device,
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

/// A device and the limits of its datasheet (or measured ones).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Memory bandwidth.
    pub bandwidth_gb_per_s: f64,
    /// Dense bf16 matrix throughput.
    pub compute_tflops: f64,
}

/// `delta + max(floor, gamma N_b) + alpha N_c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageCost {
    /// Per launch; in the linear form this is the reload of the weights.
    pub delta_ms: f64,
    /// Least time for the rows: streaming the weights, in a roofline.
    #[serde(default)]
    pub floor_ms: f64,
    /// Per padded row.
    pub gamma_us: f64,
    /// Per KV entry read.
    #[serde(default)]
    pub alpha_ns: f64,
}

/// `delta + max(floor, gamma T) + alpha max(P, rho L)`, with T the prompt tokens of the batch, P its (token, KV entry) pairs and L
/// the KV entries of its longest sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefillCost {
    /// Per batch.
    #[serde(default)]
    pub delta_ms: f64,
    /// Least time for the tokens: streaming the weights once per loop.
    #[serde(default)]
    pub floor_ms: f64,
    /// Per prompt token.
    pub gamma_us: f64,
    /// Per (token, KV entry) pair of causal attention.
    #[serde(default)]
    pub alpha_ns: f64,
    /// rho: pairs that the whole device gets through while one tile of queries goes on by one KV entry. A tile takes one entry
    /// after the other, so few tiles behind a long context leave most of a GPU without work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tile_pairs: f64,
}

/// Host time per batch; hidden behind the device as far as the overlap mode allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCost {
    /// Forming a batch.
    pub build_us: f64,
    /// Forming a batch, per row.
    #[serde(default)]
    pub build_row_us: f64,
    /// Uploading and launching it.
    pub launch_us: f64,
    /// Reading its result back and routing its rows.
    pub read_us: f64,
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

impl StageCost {
    /// Milliseconds for `rows` padded rows that read `context` KV entries.
    pub fn time_ms(&self, rows: u32, context: u64) -> f64 {
        self.delta_ms + self.floor_ms.max(self.gamma_us * f64::from(rows) / 1e3) + self.alpha_ns * context as f64 / 1e6
    }

    /// The saturation batch size at context length `context`, `(delta + floor) / (gamma + alpha L)`: above it a step's time
    /// is mostly proportional to its rows.
    pub fn saturation_batch(&self, context: u32) -> f64 {
        (self.delta_ms + self.floor_ms) * 1e3 / (self.gamma_us + self.alpha_ns * f64::from(context) / 1e3)
    }
}

impl PrefillCost {
    /// Milliseconds for a batch of chunks, each (KV entries before it, new tokens).
    pub fn time_ms(&self, chunks: impl IntoIterator<Item = (u32, u32)>) -> f64 {
        let (tokens, attended) = self.load(chunks);
        self.delta_ms
            + self.floor_ms.max(self.gamma_us * f64::from(tokens) / 1e3)
            + self.alpha_ns * attended as f64 / 1e6
    }

    /// `T` and `max(P, rho L)` of a batch of chunks.
    fn load(&self, chunks: impl IntoIterator<Item = (u32, u32)>) -> (u32, u64) {
        let (mut tokens, mut pairs, mut longest) = (0, 0, 0);
        for (before, new) in chunks {
            let (before, n) = (u64::from(before), u64::from(new));
            tokens += new;
            // Its tokens attend to before + 1, .., before + n entries.
            pairs += n * before + n * (n + 1) / 2;
            longest = longest.max(before + n);
        }
        (tokens, pairs.max((self.tile_pairs * longest as f64) as u64))
    }
}

impl HostCost {
    /// Forming and launching a batch of `rows` rows.
    pub fn launch_time(&self, rows: usize) -> Nanos {
        Nanos::from_micros(self.build_us + self.build_row_us * rows as f64 + self.launch_us)
    }

    /// Reading a result back.
    pub fn read_time(&self) -> Nanos {
        Nanos::from_micros(self.read_us)
    }
}

impl Device {
    /// Devices whose datasheets are built in (bandwidth; dense bf16 throughput without sparsity).
    const DATASHEETS: [(&'static str, f64, f64); 6] = [
        ("a100-80gb", 2039.0, 312.0),
        ("h100-80gb", 3350.0, 989.0),
        ("h200", 4800.0, 989.0),
        ("b200", 8000.0, 2250.0),
        ("l40s", 864.0, 362.0),
        ("mi300x", 5300.0, 1307.0),
    ];

    /// A device by its datasheet.
    pub fn datasheet(name: &str) -> Option<Self> {
        let (name, bandwidth_gb_per_s, compute_tflops) =
            Self::DATASHEETS.into_iter().find(|(known, ..)| *known == name)?;
        Some(Self { name: name.into(), bandwidth_gb_per_s, compute_tflops })
    }

    /// The names that [`Self::datasheet`] knows.
    pub fn datasheets() -> impl Iterator<Item = &'static str> {
        Self::DATASHEETS.into_iter().map(|(name, ..)| name)
    }
}

impl Profile {
    /// What the device's physical limits allow for a model, in bf16: weights streamed once per launch, or two FLOPs per
    /// parameter and row, whichever takes longer, plus the KV streamed. No overheads, no padding.
    pub fn roofline(device: &Device, model: &Architecture) -> Self {
        let bytes_per_ms = device.bandwidth_gb_per_s * 1e6;
        let flops_per_us = device.compute_tflops * 1e6;
        let stage = |params: u64, kv_bytes: u64| StageCost {
            delta_ms: 0.0,
            floor_ms: 2.0 * params as f64 / bytes_per_ms,
            gamma_us: 2.0 * params as f64 / flops_per_us,
            alpha_ns: kv_bytes as f64 / device.bandwidth_gb_per_s,
        };
        let layer_kv = model.layer_kv_bytes();
        let core = stage(model.core_params(), model.core_kv_bytes());
        let prelude = stage(model.prelude_params(), model.prelude_layers * layer_kv);
        let coda = stage(model.boundary_params() - model.prelude_params(), model.coda_layers * layer_kv);
        let loops = f64::from(model.r_max.0);
        // Logits are needed only where a prompt ends: the LM head's compute is left out, its weights are streamed.
        let head = model.vocab * model.hidden;
        let per_token = 2.0 * (model.core_params() as f64 * loops + (model.boundary_params() - head) as f64);
        let layers = model.core_layers as f64 * loops + (model.prelude_layers + model.coda_layers) as f64;
        Self {
            name: format!("roofline of {} on {}", model.name, device.name),
            model: model.name.clone(),
            device: device.clone(),
            source: "computed: weights and KV over bandwidth, 2 FLOPs per parameter over throughput, no overheads"
                .into(),
            prefill: PrefillCost {
                delta_ms: 0.0,
                floor_ms: prelude.floor_ms + loops * core.floor_ms + coda.floor_ms,
                gamma_us: per_token / flops_per_us,
                // Scores and values: 2 FLOPs each per head dimension.
                alpha_ns: layers * 4.0 * (model.heads * model.head_dim) as f64 / flops_per_us * 1e3,
                tile_pairs: 0.0,
            },
            core,
            prelude,
            coda,
            graphs: Graphs::default(),
            kv_tile: KvTile::default(),
            stage_overhead_us: 0.0,
            host: HostCost::default(),
            buckets: Buckets::Exact,
            transfer: Transfer {
                plane_copy_gb_per_s: device.bandwidth_gb_per_s / 2.0,
                offload_gb_per_s: f64::INFINITY,
            },
            variants: BTreeMap::new(),
            fit: None,
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

    /// Checks that every cost is a time.
    ///
    /// # Errors
    /// The first field that is negative, not finite or empty.
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
            return Err(ProfileError { field, reason: reason.into() });
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
        if let Some((field, value)) = rates.into_iter().find(|(_, value)| value.is_nan() || *value <= 0.0) {
            return Err(ProfileError {
                field: field.into(),
                reason: format!("must be greater than zero, got {value}"),
            });
        }
        if let Some(Covariance { matrix, .. }) = self.fit.as_ref().and_then(|fit| fit.covariance)
            && !(matrix.iter().flatten().all(|entry| entry.is_finite()) && (0..4).all(|i| matrix[i][i] >= 0.0))
        {
            let reason = "entries must be finite, and none on the diagonal negative".into();
            return Err(ProfileError { field: "fit.covariance.matrix".into(), reason });
        }
        if self.core_ms(1, 1) <= 0.0 {
            return Err(ProfileError { field: "core".into(), reason: "a core step must take some time".into() });
        }
        self.variants.iter().try_for_each(|(name, variant)| {
            self.with(variant)
                .check()
                .map_err(|error| ProfileError { field: format!("variants.{name}.{}", error.field), ..error })
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn at_least_zero(field: &str, value: f64) -> Result<(), ProfileError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(ProfileError { field: field.into(), reason: format!("must be finite and not negative, got {value}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roofline_streams_the_weights_once_per_loop() {
        let device = Device { name: "measured".into(), bandwidth_gb_per_s: 4290.0, compute_tflops: 989.0 };
        let floor_ms = |model: &str, rows: u32| {
            let model = Architecture::builtin(model).expect("built in");
            Profile::roofline(&device, &model).core.time_ms(rows, u64::from(rows) * 512)
        };
        // The floors measured for an H200 at this bandwidth, in ms per loop at context 512.
        for (model, rows, floor) in [
            ("ouro-1.4b", 1, 0.597),
            ("ouro-1.4b", 8, 0.761),
            ("ouro-1.4b", 64, 2.07),
            ("huginn-3.5b", 1, 0.772),
            ("huginn-3.5b", 8, 0.842),
            ("huginn-3.5b", 64, 1.41),
        ] {
            let computed = floor_ms(model, rows);
            assert!((computed / floor - 1.0).abs() < 0.01, "{model} at {rows} rows: {computed}, not {floor}");
        }
    }
}
