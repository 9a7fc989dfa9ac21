//! The server over real connections: what clients need, what they do wrong, and what they do to it.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod answers;
mod client;
mod engine_ends;
mod faults;
mod program;
mod refusals;
mod server;
