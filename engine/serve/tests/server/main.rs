//! The server as its clients see it, with a small model of random weights behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod answers;
mod broken_engine;
mod client;
mod disconnects;
mod golden;
mod limits;
mod logprobs;
mod observe;
mod outside;
mod program;
mod refusals;
mod server;
mod tiny_loop;
