//! A workload: a stream of requests that can be restarted, and their true exits.

use std::sync::Arc;

use engine::closed_loop::Clients;
use engine::content::Piece;
use engine::request::{Arrival, Request, RequestId};
use engine::submission::Submission;
use engine::units::Nanos;

use crate::arrivals::{ArrivalTimes, MAX_ARRIVAL_S};
use crate::config::{ArrivalsConfig, ExitsConfig, WorkloadConfig};
use crate::error::TracesError;
use crate::exits::{AllowedExits, Exits};
use crate::file::{Rows, Wanted};
use crate::lengths::{LengthSource, Lengths};
use crate::numbers::MAX_REQUESTS;
use crate::prefixes::Prefixes;

/// The requests of a scenario. Generated ones are drawn anew by every iterator and never stored. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workload {
    lengths: Source,
    arrivals: ArrivalsConfig,
    exits: Exits,
    requests: u32,
    seed: u64,
    max_output_tokens: Option<u32>,
    prefixes: Option<Prefixes>,
}

#[derive(Clone, Debug)]
enum Source {
    Generated(LengthSource),
    File(Arc<Rows>),
}

impl Workload {
    /// Reads the file, if one is named, and counts the requests.
    ///
    /// The same seed gives the same workload, and a longer workload begins with the shorter one.
    pub fn new(
        config: &WorkloadConfig,
        exits: &ExitsConfig,
        allowed: AllowedExits,
        seed: u64,
    ) -> Result<Self, TracesError> {
        let limit = config.requests.map(|requests| requests.get());
        let mut recorded = None;
        if config.scheduler.is_some() && config.file.is_none() {
            return Err(TracesError::NeedsFile { what: "workload.scheduler" });
        }
        let lengths = match (&config.file, &config.lengths) {
            (Some(path), _) => {
                let wanted = Wanted {
                    arrivals: config.arrivals == ArrivalsConfig::Trace,
                    exits: (*exits == ExitsConfig::Replay).then_some(allowed),
                    requests: limit,
                    scheduler: config.scheduler.as_deref(),
                };
                let mut rows = Rows::read(path, wanted)?;
                if rows.has_pieces() && config.shared_prefixes.is_some() {
                    return Err(TracesError::PrefixesTwice { path: path.clone() });
                }
                recorded = rows.take_exits();
                Source::File(Arc::new(rows))
            }
            (None, Some(lengths)) => Source::Generated(LengthSource::new(lengths, config.max_total_tokens.get())?),
            (None, None) => return Err(TracesError::NoLengths),
        };
        let exits = Exits::new(exits, allowed, recorded, seed)?;
        let prefixes = config.shared_prefixes.map(|prefixes| Prefixes::new(prefixes, seed));
        let mut workload =
            Self { lengths, arrivals: config.arrivals, exits, requests: 0, seed, max_output_tokens: None, prefixes };
        workload.requests = workload.count(limit)?;
        Ok(workload)
    }

    /// Lets the scheduler see a limit in place of the true output lengths, which it cuts off where they exceed it.
    ///
    /// With `None` (the default) every request's limit is its true length.
    pub fn with_max_output_tokens(self, max_output_tokens: Option<u32>) -> Self {
        Self { max_output_tokens, ..self }
    }

    /// How many requests it has, at least 1.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// The requests in order of arrival, numbered from 0; each call starts again.
    pub fn arrivals(&self) -> Requests<'_> {
        let lengths = match &self.lengths {
            Source::Generated(lengths) => lengths.stream(self.seed),
            Source::File(rows) => Lengths::File(rows, 0),
        };
        let times = self.times().expect("a workload that reads arrivals from a file has one");
        let (rows, max_output_tokens) = (self.rows(), self.max_output_tokens);
        Requests { times, lengths, rows, max_output_tokens, prefixes: self.prefixes, next: 0, end: self.requests }
    }

    /// The same requests, with what their prompts begin with.
    pub fn submissions(&self) -> impl Iterator<Item = Submission> {
        self.arrivals().map(|arrival| {
            let pieces = self.pieces(arrival.request.id);
            Submission { pieces: (!pieces.is_empty()).then(|| pieces.into()), ..arrival.into() }
        })
    }

    /// What a request's prompt begins with; what lies behind is its own.
    pub fn pieces(&self, request: RequestId) -> Vec<Piece> {
        match (&self.prefixes, self.rows()) {
            (Some(prefixes), _) => prefixes.of(request).into_iter().collect(),
            (None, Some(rows)) => rows.pieces(request.0 as usize).to_vec(),
            (None, None) => Vec::new(),
        }
    }

    /// Whether prompts say what they have in common.
    pub fn has_pieces(&self) -> bool {
        self.prefixes.is_some() || self.rows().is_some_and(Rows::has_pieces)
    }

    /// The clients of a closed loop, before they have sent anything; `None` if arrivals depend on no answer.
    pub fn clients(&self) -> Option<Clients> {
        match self.arrivals {
            ArrivalsConfig::Closed { concurrency, think_s } => {
                Some(Clients::new(concurrency.get(), Nanos::from_secs(think_s.get())))
            }
            _ => None,
        }
    }

    /// The true exit depths.
    pub fn exits(&self) -> &Exits {
        &self.exits
    }

    /// Counts the requests that `limit`, the file and the arrivals' duration leave.
    fn count(&self, limit: Option<u32>) -> Result<u32, TracesError> {
        let rows = self.rows().map(|rows| rows.len() as u32);
        let most = limit.into_iter().chain(rows).min();
        let (rate, duration) = match self.arrivals {
            ArrivalsConfig::Poisson { rate_per_s, duration_s } => (rate_per_s, duration_s),
            ArrivalsConfig::Gamma { rate_per_s, duration_s, .. } => (rate_per_s, duration_s),
            ArrivalsConfig::Trace if rows.is_none() => return Err(TracesError::NeedsFile { what: "arrivals: trace" }),
            ArrivalsConfig::Offline | ArrivalsConfig::Trace | ArrivalsConfig::Closed { .. } => {
                return most.ok_or(TracesError::Endless);
            }
        };
        let expected = match (most, duration) {
            (None, None) => return Err(TracesError::Endless),
            (None, Some(duration)) => rate.get() * duration.get(),
            (Some(most), _) => f64::from(most),
        };
        if expected > f64::from(MAX_REQUESTS) {
            return Err(TracesError::TooMany { expected, max: MAX_REQUESTS });
        }
        let mut requests = 0;
        for time in self.times().into_iter().flatten().take(most.unwrap_or(u32::MAX) as usize) {
            if time.as_secs() > MAX_ARRIVAL_S {
                return Err(TracesError::TooLate { last_s: time.as_secs(), max_s: MAX_ARRIVAL_S });
            }
            requests += 1;
        }
        if requests == 0 { Err(TracesError::NoRequests) } else { Ok(requests) }
    }

    fn times(&self) -> Option<ArrivalTimes<'_>> {
        ArrivalTimes::new(&self.arrivals, self.rows(), self.seed)
    }

    fn rows(&self) -> Option<&Rows> {
        match &self.lengths {
            Source::Generated(_) => None,
            Source::File(rows) => Some(rows),
        }
    }
}

/// The requests of a workload, drawn as they are pulled.
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    times: ArrivalTimes<'a>,
    lengths: Lengths<'a>,
    rows: Option<&'a Rows>,
    max_output_tokens: Option<u32>,
    prefixes: Option<Prefixes>,
    next: u32,
    end: u32,
}

impl Iterator for Requests<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if self.next == self.end {
            return None;
        }
        let arrival = self.times.next()?;
        let (prompt_tokens, output_tokens) = self.lengths.next()?;
        let cancel_after = self.rows.and_then(|rows| rows.cancel_after(self.next as usize));
        let id = RequestId(self.next);
        let prompt_tokens = prompt_tokens + self.prefixes.and_then(|of| of.of(id)).map_or(0, |prefix| prefix.count);
        self.next += 1;
        let max_output_tokens = self.max_output_tokens.unwrap_or(output_tokens);
        Some(Arrival {
            request: Request { id, arrival, prompt_tokens, max_output_tokens },
            output_tokens: output_tokens.min(max_output_tokens),
            cancel_after,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Requests<'_> {}
