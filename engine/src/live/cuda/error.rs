//! What can go wrong on the device, and what to change.

use thiserror::Error;

use crate::live::LiveError;

/// Why a live run on the GPU could not start or go on.
pub type CudaRunError = LiveError<CudaError>;

/// Why the device could not be opened, or work not run.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum CudaError {
    /// A library is not installed.
    #[error("{library} is not on this machine ({needed_for}): install it, or run on the CPU")]
    Missing { library: &'static str, needed_for: &'static str },
    /// The driver refused a call.
    #[error("{call}: {message}")]
    Driver { call: &'static str, message: String },
    /// A kernel does not compile.
    #[error("{file} does not compile for {arch}:\n{log}")]
    Compile { file: &'static str, arch: String, log: String },
    /// cuBLASLt has nothing for a matrix product.
    #[error("cuBLASLt cannot multiply {rows} rows by weights [{outputs}, {inputs}]: {message}")]
    Product { rows: usize, outputs: usize, inputs: usize, message: String },
    /// Something does not fit.
    #[error("{what} takes {needed} bytes, the device has {free} of {total} free: {advice}")]
    OutOfMemory { what: String, needed: u64, free: u64, total: u64, advice: &'static str },
    /// A model whose sizes no kernel handles.
    #[error("{model}: {reason}")]
    Shape { model: String, reason: &'static str },
}
