//! The CUDA executor against the CPU executor, on tiny models. Without a GPU every test shows as ignored.
#![cfg(feature = "cuda")]

mod conformance;
mod serving;
