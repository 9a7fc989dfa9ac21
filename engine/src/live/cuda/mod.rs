//! The CUDA executor: Ouro and Huginn on one GPU, over the scheduler's block tables. Its reference is [`crate::live::cpu`].
//!
//! Weights, KV and activations between kernels are bf16, sums are f32. A decode step is one recorded graph of kernels
//! that start while their predecessor still runs and fetch weights meanwhile (`kernels/common.cuh`). Depths, lengths and
//! block tables are data on the device, so rows of any depth share a launch and one graph serves every depth.
//!
//! Invariant: the host never waits for the device between a batch's launch and `wait`, except to learn output tokens
//! that a recompute or a restore needs.
//!
//! Invariant: the same batches give the same bits. There are no float atomics; splits of K and of contexts are fixed, and
//! merged in order. With `batch_invariant` a row's bits do not depend on what shares its batch either.

mod arguments;
mod compile;
mod cublaslt;
mod device;
mod error;
mod executor;
mod flight;
mod graphs;
mod limits;
mod memory;
mod model;
mod ops;
mod options;
mod prefill;
mod products;
mod readout;
mod scores;
mod stages;
mod store;
mod stream;
mod transfer;
mod upload;

pub use compile::check_kernels;
pub use device::CudaDevice;
pub use error::{CudaError, CudaRunError};
pub use executor::{CudaBackend, CudaExecutor};
pub use flight::CudaStats;
pub use graphs::row_buckets;
pub use limits::Limits;
pub use model::CudaModel;
pub use options::{CudaOptions, KvBudget, WeightSource};
pub use upload::SPLIT as KV_TILE_TOKENS;
