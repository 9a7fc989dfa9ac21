//! The CPU executor against a dense reference, itself under other schedules, and the models' gates.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod conformance;
mod criteria;
mod dense_reference;
mod ends;
mod eos;
mod epochs;
mod exactness;
mod failure;
mod gates;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../families/made_up.rs"]
mod made_up;
mod per_request;
mod prefix_cache;
#[path = "../prefixes/mod.rs"]
mod prefixes;
mod refusals;
mod scores;
mod serve;
mod stream;
