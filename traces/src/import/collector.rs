//! Records in, rows out: one filter, one limit and one order for all formats.

use std::path::{Path, PathBuf};

use engine::units::{Depth, Nanos};

use crate::arrivals::MAX_ARRIVAL_S;
use crate::error::{Place, TracesError};
use crate::exits::replay::RecordedExits;
use crate::file::Rows;
use crate::import::fields::Miss;
use crate::import::hash_blocks::{self, BlockTokens};
use crate::import::tally::{Problem, Tally};
use crate::import::time_unit::{TimeUnit, Timestamp};
use crate::import::{Imported, Options, Source};
use crate::lengths::Pair;
use crate::lists::Lists;
use crate::numbers::{MAX_REQUESTS, MAX_TOKENS};
use crate::pieces::RecordedPieces;

/// A well-formed record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    /// Since any origin; 0 in a format without timestamps.
    pub(super) time: Timestamp,
}

/// Collects what is kept and counts the rest.
pub(super) struct Collector {
    options: Options,
    limit: usize,
    lengths: Vec<Pair>,
    times: Option<Vec<Timestamp>>,
    /// What the timestamps count.
    pub(super) time_unit: TimeUnit,
    exits: Option<RecordedExits>,
    blocks: Blocks,
    pub(super) tally: Tally,
    pub(super) remarks: Vec<String>,
    /// What was read.
    pub(super) files: Vec<PathBuf>,
}

/// The `hash_ids` of the kept records.
#[derive(Default)]
struct Blocks {
    ids: Lists<u64>,
    tokens: BlockTokens,
}

impl Collector {
    pub(super) fn new(path: &Path, options: Options, source: Source<'_>) -> Self {
        let timed = matches!(source, Source::Azure | Source::Mooncake);
        Self {
            options,
            limit: options.limit.map_or(MAX_REQUESTS, |limit| limit.get()) as usize,
            lengths: Vec::new(),
            times: timed.then(Vec::new),
            time_unit: TimeUnit::Nanoseconds,
            exits: matches!(source, Source::Bundle(_)).then(RecordedExits::default),
            blocks: Blocks::default(),
            tally: Tally::default(),
            remarks: Vec::new(),
            files: vec![path.into()],
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
            exits.push_list(depths.iter().copied());
        }
    }

    /// The same for a record with one number for each block of its prompt.
    pub(super) fn take_with_blocks(&mut self, place: Place, record: Result<Record, Miss>, ids: &[u64]) {
        let Some(record) = self.sift(place, record) else { return };
        self.keep(record);
        self.blocks.tokens.see(record.prompt_tokens, ids.len() as u64);
        self.blocks.ids.push_list(ids.iter().copied());
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
        if let Some(times) = &mut self.times {
            times.push(record.time);
        }
        self.tally.keep();
    }

    /// The rows, sorted by arrival and counted from the first.
    pub(super) fn finish(self, path: &Path) -> Result<Imported, TracesError> {
        let Self { mut lengths, times, time_unit, exits, blocks, mut tally, mut remarks, files, .. } = self;
        let mut pieces = None;
        let arrivals = match times {
            None => None,
            Some(times) => {
                assert!(exits.is_none(), "no format has both arrivals and exits, and only lengths are sorted here");
                let times: Vec<i128> = times.into_iter().map(|time| time.in_ns(time_unit)).collect();
                let mut order: Vec<usize> = (0..times.len()).collect();
                // Stable, so that requests of the same instant keep the file's order.
                order.sort_by_key(|&row| times[row]);
                match blocks.tokens.told() {
                    _ if blocks.ids.items().is_empty() => {}
                    Some(size) => {
                        remarks.push(format!("hash_ids are of blocks of {size} tokens, told by the lengths"));
                        let rows: &mut RecordedPieces = pieces.insert(RecordedPieces::default());
                        order.iter().for_each(|&row| {
                            rows.push_list(hash_blocks::pieces(blocks.ids.of(row), lengths[row].0, size));
                        });
                    }
                    None => {
                        tally.ignore("hash_ids", blocks.ids.items().len() as u64);
                        remarks.push("hash_ids are not used: their numbers fit no size of a block".into());
                    }
                }
                lengths = order.iter().map(|&row| lengths[row]).collect();
                Some(from_the_first(path, order.iter().map(|&row| times[row]).collect())?)
            }
        };
        Ok(Imported { rows: Rows { lengths, arrivals, cancels: None, pieces, exits }, tally, remarks, files })
    }
}

/// Sorted times in nanoseconds, counted from the first.
fn from_the_first(path: &Path, times: Vec<i128>) -> Result<Vec<Nanos>, TracesError> {
    let origin = times.first().copied().unwrap_or(0);
    let span_s = times.last().map_or(0.0, |last| last.abs_diff(origin) as f64 * 1e-9);
    if span_s > MAX_ARRIVAL_S {
        let problem =
            format!("its timestamps span {span_s:.3e} s, more than {MAX_ARRIVAL_S:.0e} s: one of them must be wrong");
        return Err(TracesError::Import { path: path.into(), problem });
    }
    Ok(times.iter().map(|time| Nanos(time.abs_diff(origin) as u64)).collect())
}
