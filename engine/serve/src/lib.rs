//! Serving looped language models: text in, text out.
//!
//! A request comes over HTTP ([`http`]), becomes a [`call`] to the engine on its own thread ([`engine_thread`]), and its
//! tokens come back through the [`router`] as [`text`].

pub mod call;
pub mod engine_thread;
pub mod expectation;
pub mod http;
pub mod metrics;
pub mod model;
pub mod router;
pub mod settings;
pub mod setup;

/// Text to token ids and back.
pub use text;
