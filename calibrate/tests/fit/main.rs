//! Fits of measurements whose truth is known.

mod cases;
mod command;
mod errors;
mod machine;
mod pipeline;
mod recovery;
mod synthetic;
