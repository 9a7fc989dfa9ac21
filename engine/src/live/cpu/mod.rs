//! The CPU executor: looped models for real, over the scheduler's block tables. Also the reference for the CUDA kernels.
//!
//! Invariant: a row's bits depend on its own sequence alone, never on what shares its batch, its place in it, or the
//! number of threads. GEMMs run in shapes whose summation order does not depend on the number of rows (`linear.rs`);
//! everything else is computed row by row in a fixed order.
//!
//! Invariant: arithmetic is f32; what is stored (weights, KV, and every activation between two operations) is rounded
//! to the element type, at the places at which the released bf16 models round.

mod attention;
mod element;
mod executor;
mod exp;
mod kv;
mod lanes;
mod layer;
mod linear;
mod matrix;
mod mlp;
mod model;
mod norm;
mod parallel;
mod places;
pub(crate) mod readout;
mod rope;
mod stages;
mod tile;
mod transfer;

pub use element::Element;
pub use executor::{CpuBackend, CpuError, CpuExecutor, CpuFailure, CpuOptions};
pub use half::bf16;
pub use tile::multiply;
