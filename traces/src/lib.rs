//! Workloads: which requests arrive, when, how long they are, and after how many loops each token exits.
//!
//! A [`config::WorkloadConfig`] and a [`config::ExitsConfig`] (parts of a scenario) become a [`workload::Workload`]:
//! a restartable stream of [`engine::request::Arrival`] and the [`exits::Exits`] that an executor replays.
//! Lengths come from a generator ([`lengths`]) or a file ([`mod@file`]), arrival times from [`arrivals`]; [`pieces`] say what
//! prompts have in common.
//! Files come from [`mod@import`], which reads other people's formats, or from a run; [`statistics`] describes them.
//!
//! Invariants: nothing here knows a scheduler; a seed decides every number; a longer workload begins with the shorter
//! one, since every purpose has a random stream of its own ([`streams`]).

pub mod arrivals;
pub mod config;
pub mod error;
pub mod exits;
pub mod file;
pub mod import;
pub mod lengths;
pub mod lists;
pub mod numbers;
pub mod pieces;
mod prefixes;
pub mod statistics;
pub mod streams;
pub mod workload;

pub use config::{ArrivalsConfig, ExitsConfig, LengthsConfig, SharedPrefixes, WorkloadConfig};
pub use error::TracesError;
pub use exits::{AllowedExits, Exits};
pub use workload::{Requests, Workload};
