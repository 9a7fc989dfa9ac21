//! What a row must satisfy, whatever the file's format.

use std::path::Path;

use engine::units::{Depth, Nanos};

use crate::arrivals::MAX_ARRIVAL_S;
use crate::error::{Place, TracesError};
use crate::exits::replay::RecordedExits;
use crate::file::{
    ARRIVAL_S, CANCEL_AFTER_S, COLUMNS, EXIT_DEPTHS, OUTPUT_TOKENS, PIECES, PROMPT_TOKENS, REQUEST, Rows, SCHEDULER,
    Wanted,
};
use crate::numbers::{MAX_REQUESTS, MAX_TOKENS, parse_whole};
use crate::pieces::{self, RecordedPieces};

/// Collects rows and checks them.
pub(super) struct Intake<'a> {
    pub(super) path: &'a Path,
    pub(super) wanted: Wanted<'a>,
    /// The scheduler whose rows are taken, if rows have one.
    scheduler: Option<String>,
    /// The place of each row in the workload, if rows say.
    order: Option<Vec<i64>>,
    rows: Rows,
    last_arrival_s: f64,
}

/// Where the wanted columns are in a file.
pub(super) struct Columns {
    pub(super) prompt_tokens: usize,
    pub(super) output_tokens: usize,
    pub(super) arrival_s: Option<usize>,
    pub(super) cancel_after_s: Option<usize>,
    pub(super) pieces: Option<usize>,
    pub(super) exit_depths: Option<usize>,
    pub(super) scheduler: Option<usize>,
    pub(super) request: Option<usize>,
}

impl<'a> Intake<'a> {
    pub(super) fn new(path: &'a Path, wanted: Wanted<'a>, scheduler: Option<String>) -> Self {
        let rows = Rows {
            lengths: Vec::new(),
            arrivals: wanted.arrivals.then(Vec::new),
            cancels: None,
            pieces: None,
            exits: wanted.exits.map(|_| RecordedExits::default()),
        };
        Self { path, wanted, scheduler, order: None, rows, last_arrival_s: 0.0 }
    }

    /// Finds the wanted columns among the file's.
    pub(super) fn columns(&mut self, names: &[String]) -> Result<Columns, TracesError> {
        if names.is_empty() {
            return Err(TracesError::EmptyFile { path: self.path.into() });
        }
        for column in COLUMNS.into_iter().chain([SCHEDULER]) {
            if names.iter().filter(|name| *name == column).count() > 1 {
                return Err(TracesError::TwiceColumn { path: self.path.into(), column });
            }
        }
        let find = |column: &'static str, why: &'static str| {
            names.iter().position(|name| name == column).ok_or_else(|| TracesError::MissingColumn {
                path: self.path.into(),
                column,
                why,
                found: names.join(", "),
            })
        };
        let find_if = |wanted: bool, column, why| if wanted { find(column, why).map(Some) } else { Ok(None) };
        let of_a_run = |column| self.scheduler.as_ref().and_then(|_| names.iter().position(|name| name == column));
        let columns = Columns {
            prompt_tokens: find(PROMPT_TOKENS, "")?,
            output_tokens: find(OUTPUT_TOKENS, "")?,
            arrival_s: find_if(self.wanted.arrivals, ARRIVAL_S, ", which `arrivals: trace` reads")?,
            cancel_after_s: names.iter().position(|name| name == CANCEL_AFTER_S),
            pieces: names.iter().position(|name| name == PIECES),
            exit_depths: find_if(self.wanted.exits.is_some(), EXIT_DEPTHS, ", which `exits: replay` reads")?,
            scheduler: of_a_run(SCHEDULER),
            request: of_a_run(REQUEST),
        };
        self.order = columns.request.map(|_| Vec::new());
        self.rows.cancels = columns.cancel_after_s.map(|_| Vec::new());
        self.rows.pieces = columns.pieces.map(|_| RecordedPieces::default());
        Ok(columns)
    }

    /// Whether a row of this scheduler is taken.
    pub(super) fn takes(&self, scheduler: &str) -> bool {
        self.scheduler.as_ref().is_none_or(|chosen| chosen == scheduler)
    }

    /// Makes room for a file's rows, as far as they are wanted.
    pub(super) fn reserve(&mut self, rows: usize) {
        let rows = rows.min(self.wanted.requests.unwrap_or(MAX_REQUESTS) as usize);
        self.rows.lengths.reserve_exact(rows);
        if let Some(arrivals) = &mut self.rows.arrivals {
            arrivals.reserve_exact(rows);
        }
    }

    /// All rows that are wanted have been taken. Where rows are put in order, the first may be the last of the file.
    pub(super) fn is_full(&self) -> bool {
        let wanted = self.wanted.requests.filter(|_| self.order.is_none());
        self.rows.len() >= wanted.unwrap_or(MAX_REQUESTS) as usize
    }

    /// Begins a row with its lengths.
    pub(super) fn lengths(&mut self, place: Place, prompt: i64, output: i64) -> Result<(), TracesError> {
        let tokens = |field, number: i64| match u32::try_from(number) {
            Ok(tokens) if (1..=MAX_TOKENS).contains(&tokens) => Ok(tokens),
            _ => Err(self.wrong(place, field, format!("must be a whole number from 1 to {MAX_TOKENS}, got {number}"))),
        };
        let pair = (tokens(PROMPT_TOKENS, prompt)?, tokens(OUTPUT_TOKENS, output)?);
        self.rows.lengths.push(pair);
        Ok(())
    }

    /// The row's place in the workload.
    pub(super) fn request(&mut self, request: i64) {
        if let Some(order) = &mut self.order {
            order.push(request);
        }
    }

    /// The row's arrival, no earlier than the row before.
    pub(super) fn arrival(&mut self, place: Place, time_s: f64) -> Result<(), TracesError> {
        if !(0.0..=MAX_ARRIVAL_S).contains(&time_s) {
            let problem = format!("must be seconds since the run's start, from 0 to {MAX_ARRIVAL_S:.0e}, got {time_s}");
            return Err(self.wrong(place, ARRIVAL_S, problem));
        }
        if time_s < self.last_arrival_s && self.order.is_none() {
            let problem = format!(
                "{time_s} is earlier than the row before ({}): sort the rows by arrival_s",
                self.last_arrival_s
            );
            return Err(self.wrong(place, ARRIVAL_S, problem));
        }
        self.last_arrival_s = time_s;
        if let Some(arrivals) = &mut self.rows.arrivals {
            arrivals.push(Nanos::from_secs(time_s));
        }
        Ok(())
    }

    /// How long after its arrival the row's client gives up; never, if that is not said.
    pub(super) fn cancel_after(&mut self, place: Place, time_s: Option<f64>) -> Result<(), TracesError> {
        if let Some(time_s) = time_s.filter(|time_s| !(0.0..=MAX_ARRIVAL_S).contains(time_s)) {
            let problem = format!(
                "must be seconds since the request's arrival, from 0 to {MAX_ARRIVAL_S:.0e}, or empty, got {time_s}"
            );
            return Err(self.wrong(place, CANCEL_AFTER_S, problem));
        }
        if let Some(cancels) = &mut self.rows.cancels {
            cancels.push(time_s.map(Nanos::from_secs));
        }
        Ok(())
    }

    /// What the row's prompt begins with; nothing, if that is not said.
    pub(super) fn pieces(&mut self, place: Place, text: &str) -> Result<(), TracesError> {
        let pieces = pieces::from_text(text).map_err(|problem| self.wrong(place, PIECES, problem))?;
        let (tokens, prompt) =
            (pieces.iter().map(|piece| u64::from(piece.count)).sum::<u64>(), self.rows.lengths.last());
        if let Some((prompt, _)) = prompt.filter(|(prompt, _)| tokens > u64::from(*prompt)) {
            let problem = format!("must have at most the prompt's {prompt} tokens together, got {tokens}");
            return Err(self.wrong(place, PIECES, problem));
        }
        self.rows.pieces.get_or_insert_default().push_list(pieces);
        Ok(())
    }

    /// The next of the row's exit depths.
    pub(super) fn exit_depth(&mut self, place: Place, number: i64) -> Result<(), TracesError> {
        let (Some(exits), Some(allowed)) = (&mut self.rows.exits, self.wanted.exits) else { return Ok(()) };
        let depth = u8::try_from(number).ok().map(Depth).filter(|depth| allowed.check(*depth).is_ok());
        let Some(depth) = depth else {
            let token = exits.pending() + 1;
            let problem = format!(
                "depth {token} must be from {} to {}, which is what the model and the overlap mode allow, got {number}",
                allowed.min, allowed.max
            );
            return Err(self.wrong(place, EXIT_DEPTHS, problem));
        };
        exits.push(depth);
        Ok(())
    }

    /// Exit depths separated by spaces.
    pub(super) fn exit_depths_text(&mut self, place: Place, text: &[u8]) -> Result<(), TracesError> {
        for depth in text.split(u8::is_ascii_whitespace).filter(|depth| !depth.is_empty()) {
            let depth = self.parsed(place, EXIT_DEPTHS, "whole numbers separated by spaces", depth, parse_whole)?;
            self.exit_depth(place, depth)?;
        }
        Ok(())
    }

    /// Ends the row's exit depths: one per output token after the first.
    pub(super) fn end_exit_depths(&mut self, place: Place) -> Result<(), TracesError> {
        let (Some(exits), Some((_, output))) = (&mut self.rows.exits, self.rows.lengths.last()) else { return Ok(()) };
        let (got, expect) = (exits.pending(), *output as usize - 1);
        exits.end();
        if got != expect {
            let problem = format!("must list {expect} depths, one per output token after the first, got {got}");
            return Err(self.wrong(place, EXIT_DEPTHS, problem));
        }
        Ok(())
    }

    /// The rows, at least one.
    pub(super) fn finish(self) -> Result<Rows, TracesError> {
        if self.rows.is_empty() {
            return Err(TracesError::EmptyFile { path: self.path.into() });
        }
        let Some(order) = self.order else { return Ok(self.rows) };
        let mut places: Vec<usize> = (0..order.len()).collect();
        places.sort_by_key(|&row| order[row]);
        places.truncate(self.wanted.requests.unwrap_or(MAX_REQUESTS) as usize);
        let rows = self.rows.in_order(&places);
        if rows.arrivals.as_ref().is_some_and(|arrivals| !arrivals.is_sorted()) {
            let problem =
                "in the order of `request`, its `arrival_s` fall: these are not the requests of one run".into();
            return Err(TracesError::Import { path: self.path.into(), problem });
        }
        Ok(rows)
    }

    /// A field's text as a number.
    pub(super) fn parsed<T>(
        &self,
        place: Place,
        field: &'static str,
        must: &str,
        text: &[u8],
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, TracesError> {
        let number = std::str::from_utf8(text).ok().and_then(parse);
        number
            .ok_or_else(|| self.wrong(place, field, format!("must be {must}, got `{}`", String::from_utf8_lossy(text))))
    }

    /// An error about one field.
    pub(super) fn wrong(&self, place: Place, field: &'static str, problem: String) -> TracesError {
        TracesError::Field { path: self.path.into(), place, field, problem }
    }
}
