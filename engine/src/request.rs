//! A request as the scheduler sees it, and what only the workload knows of it.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A request's number: its place in the workload, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u32);

/// What a server may know of a request when it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub id: RequestId,
    /// The intended arrival; latencies are measured from here.
    pub arrival: Nanos,
    /// Prompt length, at least 1.
    pub prompt_tokens: u32,
    /// The longest output it may have, at least 1; under `finish: length` exactly its output.
    pub max_output_tokens: u32,
}

impl Request {
    /// Tokens that the request holds at most: prompt and longest output.
    pub fn max_tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.max_output_tokens)
    }
}

/// A request on its way in: the scheduler gets `request`, the executor alone learns `output_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The part that a server sees.
    pub request: Request,
    /// The true output length, at least 1 and at most `request.max_output_tokens`.
    pub output_tokens: u32,
    /// How long after its arrival its client stops waiting, unless it is over by then.
    pub cancel_after: Option<Nanos>,
}
