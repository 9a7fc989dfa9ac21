//! What became of a request, as its client saw it.

use engine::metrics::RequestRecord;
use engine::request::Arrival;
use engine::units::{Depth, Nanos};

/// A request that was sent.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What was asked.
    pub arrival: Arrival,
    /// When it was to be sent; latencies count from here.
    pub due: Nanos,
    /// When the client turned to it.
    pub sent: Nanos,
    /// What came back.
    pub result: Result<Answer, Failure>,
}

/// A stream that came to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Output tokens, by the server's count; the stream's events where it does not count.
    pub output_tokens: u32,
    /// Prompt tokens, by the server's count.
    pub prompt_tokens: Option<u32>,
    /// When each token was there; empty if the stream does not tell them apart.
    pub tokens: Vec<Nanos>,
    /// When the first event with a token was there.
    pub first: Nanos,
    /// When the last one was.
    pub last: Nanos,
    /// The exit depth of every token, from servers that tell it.
    pub depths: Vec<Depth>,
    /// The server counted.
    pub counted: bool,
}

/// A request that got no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub kind: FailureKind,
    /// What was said.
    pub said: String,
    /// Events with tokens that had come until then.
    pub tokens: u32,
    /// When it was known.
    pub at: Nanos,
}

/// Failures that a report counts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// No connection could be made.
    Connect,
    /// The server answered with this status.
    Status(u16),
    /// The connection ended before the answer did.
    Broken,
    /// The server said in the stream that it failed.
    Told,
    /// The answer is no stream of completions.
    Malformed,
    /// The answer has no token.
    Empty,
    /// It took too long.
    Timeout,
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect => f.write_str("no connection"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Broken => f.write_str("connection broken off"),
            Self::Told => f.write_str("error in the stream"),
            Self::Malformed => f.write_str("not a stream of completions"),
            Self::Empty => f.write_str("no token"),
            Self::Timeout => f.write_str("timed out"),
        }
    }
}

impl Seen {
    /// The record of a request that was answered. A client does not see when it was admitted: that is when it was sent.
    pub fn record(&self) -> Option<RequestRecord> {
        let answer = self.result.as_ref().ok()?;
        let decoded = answer.depths.get(1..).unwrap_or_default();
        Some(RequestRecord {
            request: self.arrival.request.id,
            arrival: self.due,
            sent: self.sent,
            admitted: self.sent,
            first_token: answer.first,
            finish: answer.last,
            prompt_tokens: answer.prompt_tokens.unwrap_or(self.arrival.request.prompt_tokens),
            output_tokens: answer.output_tokens,
            depth_sum: decoded.iter().map(|depth| u64::from(depth.0)).sum(),
            prefilled_tokens: 0,
            preemptions: 0,
        })
    }
}
