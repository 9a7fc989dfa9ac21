//! How to run on the GPU.

use serde::{Deserialize, Serialize};

use super::device::CudaDevice;
use super::error::CudaError;
use crate::architecture::Architecture;
use crate::layout::Layout;
use crate::live::weights::Weights;
use crate::units::Depth;

/// Settings of the CUDA executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CudaOptions {
    /// A row's bits do not depend on what shares its batch. Slower for more than 64 rows and in prefill.
    pub batch_invariant: bool,
    /// Record the decode stages as graphs at start. Without, every step is launched kernel by kernel.
    pub graphs: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self { batch_invariant: false, graphs: true }
    }
}

/// Where the weights come from.
#[derive(Clone, Copy, Debug)]
pub enum WeightSource<'a> {
    /// The host's tensors.
    Loaded(&'a Weights),
    /// The numbers of [`Weights::random`], made on the device: a full-size model starts in seconds.
    Random {
        /// Another seed, other weights.
        seed: u64,
    },
}

impl WeightSource<'_> {
    pub(super) fn has_lookahead_gate(&self) -> bool {
        match self {
            Self::Loaded(weights) => weights.has_lookahead_gate(),
            Self::Random { .. } => false,
        }
    }
}

/// How much memory the KV pools may take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvBudget {
    /// So many bytes.
    Bytes(u64),
    /// So much of what is free behind the weights; activations need some of the rest.
    Fraction(f64),
}

impl KvBudget {
    /// Core blocks, all planes together, that fit in the budget; the weights are placed already, and of what is free
    /// `kept_bytes` go to what a run keeps for its exit criterion.
    ///
    /// # Errors
    /// Not one block of every plane fits.
    pub fn blocks(
        self,
        device: &CudaDevice,
        architecture: &Architecture,
        (layout, r_max, block_tokens): (Layout, Depth, u32),
        kept_bytes: u64,
    ) -> Result<u32, CudaError> {
        let (free, total) = device.memory()?;
        let free = free.saturating_sub(kept_bytes);
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Fraction(share) => (free as f64 * share) as u64,
        };
        let planes = u64::from(layout.planes(r_max));
        let per_token = planes * architecture.core_kv_bytes() + architecture.boundary_kv_bytes();
        let needed = per_token * u64::from(block_tokens);
        match bytes / needed {
            0 => Err(CudaError::OutOfMemory {
                what: format!("one KV block of each of {planes} planes"),
                needed,
                free: bytes.min(free),
                total,
                advice: "raise the KV budget, or take a layout with fewer planes",
            }),
            blocks => Ok((blocks * planes).min(u64::from(u32::MAX)) as u32),
        }
    }
}
