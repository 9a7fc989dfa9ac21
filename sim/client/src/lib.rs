//! Requests over HTTP to any OpenAI-compatible server, and what came back: when each token was there, how many the server
//! counted, and how requests failed.
//!
//! The client is honest. An open load is sent at its intended times whatever the server does, and latencies count from
//! them. What the client was late with is in [`Health`].

mod answer;
mod connection;
mod dialect;
mod endpoint;
mod events;
mod feed;
mod probe;
mod run;
mod transport;

pub use answer::{Answer, Failure, FailureKind, Seen};
pub use dialect::{Dialect, Exits, Path};
pub use endpoint::{Endpoint, EndpointError};
pub use probe::{ProbeError, Wishes, probe};
pub use run::{Health, LATE, Load, Run, run};
