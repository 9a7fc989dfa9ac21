//! What prefills cost on the device, and what every launch costs on the host.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

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

impl PrefillCost {
    /// Milliseconds for a batch of chunks, each (KV entries before it, new tokens).
    pub fn time_ms(&self, chunks: impl IntoIterator<Item = (u32, u32)>) -> f64 {
        let (tokens, attended) = self.load(chunks);
        self.delta_ms
            + self.floor_ms.max(self.gamma_us * f64::from(tokens) / 1e3)
            + self.alpha_ns * attended as f64 / 1e6
    }

    /// `T` and `max(P, rho L)` of a batch of chunks.
    pub(super) fn load(&self, chunks: impl IntoIterator<Item = (u32, u32)>) -> (u32, u64) {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
