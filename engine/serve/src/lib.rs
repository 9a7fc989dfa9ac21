//! An OpenAI-compatible server for looped language models.

pub mod call;
pub mod engine_thread;
pub mod metrics;
pub mod router;
