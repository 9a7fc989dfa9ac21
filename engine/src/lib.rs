//! The engine: one scheduler for looped language models, and the executors that it drives.
//!
//! The scheduler is pure: it knows no clock, no device, no file, no randomness and no true exit depth.
//! A [`batch::Batch`] is plain data; an [`executor::Executor`] runs it; the [`event_loop`] joins the two.
//!
//! All but [`live`] is pure, and is all that is compiled without the feature `live`. The feature `cuda` adds its GPU.

// What passes between the parts.
pub mod batch;
pub mod content;
pub mod executor;
pub mod inbox;
pub mod request;
pub mod submission;
pub mod units;

// Who decides.
pub mod closed_loop;
pub mod cost;
pub mod event_loop;
pub mod kv;
pub mod layout;
pub mod prefix;
pub mod scheduler;

// What a looped model is.
pub mod architecture;
pub mod models;

// What a run costs and gains.
pub mod bounds;
pub mod metrics;
pub mod profile;

pub mod duration;
pub mod interval;
pub mod whole;

// Real runs.
#[cfg(feature = "live")]
pub mod live;
