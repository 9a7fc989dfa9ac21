//! The CUDA executor against the CPU executor, on tiny models. Without a GPU every test shows as ignored.
#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod conformance;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../families/made_up.rs"]
mod made_up;
mod prefix_cache;
#[path = "../prefixes/mod.rs"]
mod prefixes;
mod serving;
