//! What a launch costs, as scheduler and latency model both count it.

mod buckets;

use serde::{Deserialize, Serialize};

pub use buckets::{BucketSizes, Buckets};

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
