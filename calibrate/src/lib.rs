//! Times an executor, and turns step times into a profile that the simulator reads.
//!
//! The method is the paper's Appendix B: full decode steps with r loops, `tau(r) = tau_0 + tau_r r` at each batch size and
//! context, then `t = delta + gamma N_b + alpha N_c` over the grid. A second form with a floor under the batch's term is
//! fitted beside it, and for a device with graphs a table for each; cross-validation decides what the profile gets.
//!
//! ```text
//! measure -> measurements -> depth (tau_0, tau_r per point) -> validation (cost, both forms) -> calibration -> profile, tables
//! ```

pub mod adjust;
pub mod bootstrap;
pub mod boundary;
pub mod calibration;
pub mod check;
pub mod contexts;
pub mod cost;
pub mod depth;
pub mod error;
pub mod figures;
mod host_cost;
mod least_squares;
pub mod measure;
pub mod measurements;
pub mod outside;
pub mod overhead;
pub mod padding;
pub mod per_graph;
pub mod plausible;
pub mod prefill;
pub mod rounds;
pub mod tables;
pub mod validation;
