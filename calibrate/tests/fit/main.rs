//! Fits of measurements whose truth is known.

mod recovery;
mod synthetic;
