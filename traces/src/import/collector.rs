//! Records in, rows out: one filter, one limit and one order for all formats.

use std::path::Path;

use engine::units::{Depth, Nanos};

use crate::arrivals::MAX_ARRIVAL_S;
use crate::error::{Place, TracesError};
use crate::exits::replay::RecordedExits;
use crate::file::Rows;
use crate::import::fields::Miss;
use crate::import::tally::{Problem, Tally};
use crate::import::{Imported, Options, Source};
use crate::lengths::Pair;
use crate::numbers::{MAX_REQUESTS, MAX_TOKENS};

/// A well-formed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    /// Nanoseconds since any origin; 0 in a format without timestamps.
    pub(super) time_ns: i64,
}

/// Collects what is kept and counts the rest.
pub(super) struct Collector {
    options: Options,
    limit: usize,
    lengths: Vec<Pair>,
    times_ns: Option<Vec<i64>>,
    exits: Option<RecordedExits>,
    pub(super) tally: Tally,
}

impl Collector {
    pub(super) fn new(options: Options, source: Source<'_>) -> Self {
        let timed = matches!(source, Source::Azure | Source::Mooncake);
        Self {
            options,
            limit: options.limit.map_or(MAX_REQUESTS, |limit| limit.get()) as usize,
            lengths: Vec::new(),
            times_ns: timed.then(Vec::new),
            exits: matches!(source, Source::Bundle(_)).then(RecordedExits::default),
            tally: Tally::default(),
        }
    }

    /// As many are kept as are wanted.
    pub(super) fn is_full(&self) -> bool {
        self.lengths.len() >= self.limit
    }

    /// Counts a record, and keeps it if it passes the filter.
    pub(super) fn take(&mut self, place: Place, record: Result<Record, Miss>) {
        if let Some(record) = self.sift(place, record) {
            self.keep(record);
        }
    }

    /// The same for a record with exit depths, one per output token after the first.
    pub(super) fn take_with_exits(&mut self, place: Place, record: Result<Record, Miss>, depths: &[Depth]) {
        let Some(record) = self.sift(place, record) else { return };
        self.keep(record);
        if let Some(exits) = &mut self.exits {
            depths.iter().for_each(|depth| exits.push(*depth));
            exits.end_request();
        }
    }

    fn sift(&mut self, place: Place, record: Result<Record, Miss>) -> Option<Record> {
        let Record { prompt_tokens, output_tokens, .. } = match &record {
            Ok(record) => record,
            Err(Miss::LeftOut(reason)) => {
                self.tally.leave_out(reason);
                return None;
            }
            Err(Miss::Malformed(fault)) => {
                let (field, must, got) = (fault.field, fault.must, fault.got.clone());
                self.tally.malform(Problem { place, field, must, got });
                return None;
            }
        };
        let least = u64::from(self.options.min_tokens.get());
        let most = self.options.max_total_tokens.map_or(u64::MAX, |most| most.get().into());
        if *prompt_tokens < least || *output_tokens < least {
            self.tally.leave_out("the prompt or the output is shorter than --min-tokens");
            return None;
        }
        if prompt_tokens + output_tokens > most {
            self.tally.leave_out("prompt and output together are longer than --max-total-tokens");
            return None;
        }
        record.ok()
    }

    fn keep(&mut self, record: Record) {
        let tokens = |count: u64| u32::try_from(count).unwrap_or(MAX_TOKENS).min(MAX_TOKENS);
        self.lengths.push((tokens(record.prompt_tokens), tokens(record.output_tokens)));
        if let Some(times_ns) = &mut self.times_ns {
            times_ns.push(record.time_ns);
        }
        self.tally.keep();
    }

    /// The rows, sorted by arrival and counted from the first.
    pub(super) fn finish(mut self, path: &Path) -> Result<Imported, TracesError> {
        let Some(times_ns) = self.times_ns else {
            let rows = Rows { lengths: self.lengths, arrivals: None, exits: self.exits };
            return Ok(Imported { rows, tally: self.tally });
        };
        assert!(self.exits.is_none(), "no format has both arrivals and exits, and only lengths are sorted here");
        let mut order: Vec<usize> = (0..times_ns.len()).collect();
        // Stable, so that requests of the same instant keep the file's order.
        order.sort_by_key(|&row| times_ns[row]);
        let origin = order.first().map_or(0, |&row| times_ns[row]);
        let arrivals: Vec<Nanos> = order.iter().map(|&row| Nanos(times_ns[row].abs_diff(origin))).collect();
        if let Some(last) = arrivals.last().filter(|last| last.as_secs() > MAX_ARRIVAL_S) {
            let problem = format!(
                "its timestamps span {:.3e} s, more than {MAX_ARRIVAL_S:.0e} s: one of them must be wrong",
                last.as_secs()
            );
            return Err(TracesError::Import { path: path.into(), problem });
        }
        self.lengths = order.iter().map(|&row| self.lengths[row]).collect();
        let rows = Rows { lengths: self.lengths, arrivals: Some(arrivals), exits: None };
        Ok(Imported { rows, tally: self.tally })
    }
}
