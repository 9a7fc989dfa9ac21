//! The engine: one scheduler for looped language models, and the executors that it drives.
//!
//! The scheduler is pure: it knows no clock, no device, no file, no randomness and no true exit depth.
//! A [`batch::Batch`] is plain data; an [`executor::Executor`] runs it; the [`event_loop`] joins the two.

pub mod architecture;
pub mod batch;
pub mod bounds;
pub mod conformance;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod event_loop;
pub mod executor;
pub mod inbox;
pub mod inputs;
pub mod interval;
pub mod kv;
pub mod layout;
pub mod live;
pub mod metrics;
pub mod models;
pub mod profile;
pub mod request;
pub mod scheduler;
pub mod submission;
pub mod units;
pub mod wall_clock;
pub mod whole;
