//! What can go wrong on the device, and what to change.

use thiserror::Error;

use crate::live::LiveError;

/// Why a live run on the GPU could not start or go on.
pub type CudaRunError = LiveError<CudaError>;

/// Why the device could not be opened, or work not run.
#[derive(Debug, Error)]
pub enum CudaError {
    /// A library is not installed.
    #[error("{library} is not on this machine ({needed_for}): install it, or run on the CPU")]
    Missing {
        /// The library.
        library: &'static str,
        /// What it is for.
        needed_for: &'static str,
    },
    /// The driver refused a call.
    #[error("{call}: {message}")]
    Driver {
        /// The call.
        call: &'static str,
        /// What the driver says.
        message: String,
    },
    /// A kernel does not compile.
    #[error("{file} does not compile for {arch}:\n{log}")]
    Compile {
        /// The kernel's file.
        file: &'static str,
        /// The device's architecture.
        arch: String,
        /// The compiler's words.
        log: String,
    },
    /// cuBLASLt has nothing for a matrix product.
    #[error("cuBLASLt cannot multiply {rows} rows by weights [{outputs}, {inputs}]: {message}")]
    Product {
        /// Rows of activations.
        rows: usize,
        /// Outputs of the layer.
        outputs: usize,
        /// Inputs of the layer.
        inputs: usize,
        /// What it says.
        message: String,
    },
    /// Something does not fit.
    #[error("{what} takes {needed} bytes, the device has {free} of {total} free: {advice}")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Bytes it takes.
        needed: u64,
        /// Bytes there are.
        free: u64,
        /// Bytes of the device.
        total: u64,
        /// What to change.
        advice: &'static str,
    },
    /// A model whose sizes no kernel handles.
    #[error("{model}: {reason}")]
    Shape {
        /// The model.
        model: String,
        /// What does not fit.
        reason: &'static str,
    },
}
