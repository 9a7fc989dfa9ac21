//! Batches without a scheduler: a script says what runs, the builder keeps the page tables.

use std::collections::BTreeMap;

use crate::batch::{Batch, Emits, Input, Page, Row, Slot, Span, Stage, TableEdit};
use crate::kv::KvCache;
use crate::request::{Request, RequestId};
use crate::units::Depth;

/// Builds batches for requests that each have a slot of their own, numbered like them.
///
/// Exit depths follow a given function; a script that runs a row beyond its exit is wrong and panics.
pub struct Script<'a> {
    exit: &'a dyn Fn(RequestId, u32) -> Depth,
    r_max: Depth,
    kv: KvCache,
    block_tokens: u32,
    /// Pages are renamed in this stride, so that neighbours in a table are none in the pool.
    stride: u32,
    pages: u32,
    sequences: BTreeMap<RequestId, Sequence>,
    /// What the next batch changes beside what its rows lack.
    edits: Vec<TableEdit>,
    batches: Vec<Batch>,
}

/// What the script knows of a request.
#[derive(Clone, Debug)]
struct Sequence {
    request: Request,
    resident: bool,
    epoch: u32,
    /// Positions that the prefill has run.
    prefilled: u32,
    chunks: Vec<u32>,
    generated: u32,
    /// Loops that ran, by position of a token in the making.
    depths: BTreeMap<u32, u8>,
}

/// Sizes of a script's cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) r_max: Depth,
    pub(super) planes: u8,
    pub(super) block_tokens: u32,
    pub(super) blocks: u32,
    pub(super) stride: u32,
}

impl<'a> Script<'a> {
    pub(super) fn new(cache: Cache, requests: &[Request], exit: &'a dyn Fn(RequestId, u32) -> Depth) -> Self {
        let sequence = |request: &Request| {
            let sequence = Sequence {
                request: *request,
                resident: false,
                epoch: 0,
                prefilled: 0,
                chunks: Vec::new(),
                generated: 0,
                depths: BTreeMap::new(),
            };
            (request.id, sequence)
        };
        Self {
            exit,
            r_max: cache.r_max,
            kv: KvCache::new(cache.blocks, cache.block_tokens, cache.planes, requests.len() as u32),
            block_tokens: cache.block_tokens,
            stride: cache.stride,
            pages: cache.blocks / u32::from(cache.planes),
            sequences: requests.iter().map(sequence).collect(),
            edits: Vec::new(),
            batches: Vec::new(),
        }
    }

    /// Prefills the next tokens of prompts, packed in one batch: (request, tokens).
    pub fn prefill(&mut self, chunks: &[(u32, u32)]) {
        let rows = chunks.iter().map(|&(id, count)| {
            let span = Span { first: self.sequences[&RequestId(id)].prefilled, count };
            let ends_prompt = span.end() == self.sequences[&RequestId(id)].request.prompt_tokens;
            assert!(
                span.end() <= self.sequences[&RequestId(id)].request.prompt_tokens,
                "a chunk runs beyond its prompt"
            );
            let emits = if ends_prompt { Emits::Last } else { Emits::Nothing };
            Row { input: Input::Given, emits, ..self.row(id, span, self.r_max) }
        });
        let rows: Vec<Row> = rows.collect();
        self.batch(Stage::Prefill, rows);
        for &(id, count) in chunks {
            let sequence = self.sequence(id);
            sequence.prefilled += count;
            sequence.chunks.push(count);
            sequence.generated += u32::from(sequence.prefilled == sequence.request.prompt_tokens);
        }
    }

    /// The first pages of a request's prompt from another, whose prompt begins with the same `tokens` tokens, whole pages.
    pub fn adopt(&mut self, id: u32, from: u32, tokens: u32) {
        assert!(tokens.is_multiple_of(self.block_tokens), "whole pages are adopted");
        self.edits.push(TableEdit::Admit(Slot(id), self.sequences[&RequestId(id)].request));
        let pages = self.kv.pages(Slot(from))[..(tokens / self.block_tokens) as usize].to_vec();
        pages.into_iter().for_each(|page| self.kv.adopt(Slot(id), page, &mut self.edits));
        let sequence = self.sequence(id);
        sequence.resident = true;
        sequence.prefilled = tokens;
        // Computed in chunks of their own, as the other's are.
        sequence.chunks.push(tokens);
    }

    /// The prelude of the next token of each request.
    pub fn prelude(&mut self, requests: &[u32]) {
        let rows = requests.iter().map(|&id| self.row(id, self.next(id), Depth::FIRST)).collect();
        self.start(rows);
    }

    /// The next loop of each request, whatever depth it is at.
    pub fn core(&mut self, requests: &[u32]) {
        let rows = requests.iter().map(|&id| (id, self.next(id))).collect::<Vec<_>>();
        self.loops(&rows);
    }

    /// The coda of requests that have left the loop.
    pub fn coda(&mut self, requests: &[u32]) {
        let rows = requests.iter().map(|&id| (id, self.next(id), Emits::Last)).collect::<Vec<_>>();
        self.read(&rows);
        requests.iter().for_each(|&id| self.sequence(id).generated += 1);
    }

    /// A whole decode step at full depth.
    pub fn forward(&mut self, requests: &[u32]) {
        let row = |id: &u32| Row { emits: Emits::Last, ..self.row(*id, self.next(*id), self.r_max) };
        let rows = requests.iter().map(row).collect();
        self.batch(Stage::Forward, rows);
        requests.iter().for_each(|&id| self.sequence(id).generated += 1);
    }

    /// Prelude, loops until every request has left, one coda for all: a step of no-refill.
    pub fn cohort(&mut self, requests: &[u32]) {
        self.prelude(requests);
        for depth in 1..=self.r_max.0 {
            let staying: Vec<u32> = requests.iter().copied().filter(|&id| self.exit_of(id).0 >= depth).collect();
            if !staying.is_empty() {
                self.core(&staying);
            }
        }
        self.coda(requests);
    }

    /// Takes back a request's last `count` output tokens; their ids stay known, and are the inputs of what is made again.
    pub fn truncate(&mut self, id: u32, count: u32) {
        let sequence = self.sequence(id);
        sequence.generated -= count;
        sequence.epoch += 1;
        let tokens = sequence.next_position();
        self.kv.truncate(Slot(id), tokens, &mut self.edits);
    }

    /// The prelude of known tokens, several positions of each request in one row.
    pub fn prelude_known(&mut self, requests: &[u32], count: u32) {
        let row = |id: &u32| Row { input: Input::Given, ..self.row(*id, self.ahead(*id, 0, count), Depth::FIRST) };
        let rows = requests.iter().map(row).collect();
        self.start(rows);
    }

    /// A loop of several positions of each request in one row.
    pub fn core_spans(&mut self, requests: &[u32], count: u32) {
        let rows = requests.iter().map(|&id| (id, self.ahead(id, 0, count))).collect::<Vec<_>>();
        self.loops(&rows);
    }

    /// The coda of several positions of each request, which chooses a token for each.
    pub fn coda_spans(&mut self, requests: &[u32], count: u32) {
        let rows = requests.iter().map(|&id| (id, self.ahead(id, 0, count), Emits::All)).collect::<Vec<_>>();
        self.read(&rows);
        requests.iter().for_each(|&id| self.sequence(id).generated += count);
    }

    /// A loop of single positions: (request, positions ahead of its next).
    pub fn core_ahead(&mut self, rows: &[(u32, u32)]) {
        let rows = rows.iter().map(|&(id, ahead)| (id, self.ahead(id, ahead, 1))).collect::<Vec<_>>();
        self.loops(&rows);
    }

    /// Reads a guess out of the loop, which goes on.
    pub fn draft(&mut self, requests: &[u32]) {
        let rows = requests.iter().map(|&id| (id, self.next(id), Emits::Draft)).collect::<Vec<_>>();
        self.read(&rows);
    }

    /// The exit of the token that a request is making.
    pub fn exit_of(&self, request: u32) -> Depth {
        self.exit_ahead(request, 0)
    }

    /// The exit of the token that a request makes so many positions ahead.
    pub fn exit_ahead(&self, request: u32, ahead: u32) -> Depth {
        let id = RequestId(request);
        (self.exit)(id, self.sequences[&id].generated + ahead)
    }

    /// Loops that ran for the token that a request is making.
    pub fn depth_of(&self, request: u32) -> u8 {
        self.depth_ahead(request, 0)
    }

    /// Loops that ran for the token that a request makes so many positions ahead.
    pub fn depth_ahead(&self, request: u32, ahead: u32) -> u8 {
        let sequence = &self.sequences[&RequestId(request)];
        sequence.depths.get(&(sequence.next_position() + ahead)).copied().unwrap_or(0)
    }

    /// Output tokens that a request has made.
    pub fn generated(&self, request: u32) -> u32 {
        self.sequences[&RequestId(request)].generated
    }

    /// Moves requests between two tokens to host memory and frees their pages.
    pub fn offload(&mut self, requests: &[u32]) {
        self.transfer(Stage::Offload, requests);
        for &id in requests {
            self.sequence(id).resident = false;
            self.kv.release(Slot(id));
        }
    }

    /// Brings them back into other pages.
    pub fn restore(&mut self, requests: &[u32]) {
        self.transfer(Stage::Restore, requests);
    }

    /// The batches, and the chunks in which each prompt was prefilled.
    pub(super) fn finish(self) -> (Vec<Batch>, BTreeMap<RequestId, Vec<u32>>) {
        self.kv.check();
        (self.batches, self.sequences.into_iter().map(|(id, sequence)| (id, sequence.chunks)).collect())
    }

    fn transfer(&mut self, stage: Stage, requests: &[u32]) {
        let row = |id: &u32| {
            let span = Span { first: 0, count: self.sequences[&RequestId(*id)].next_position() };
            Row { input: Input::Carried, ..self.row(*id, span, Depth::FIRST) }
        };
        let rows = requests.iter().map(row).collect();
        self.batch(stage, rows);
    }

    fn start(&mut self, rows: Vec<Row>) {
        for row in &rows {
            let depths = &mut self.sequence(row.slot.0).depths;
            row.span.positions().for_each(|position| {
                depths.insert(position, 0);
            });
        }
        self.batch(Stage::Prelude, rows);
    }

    fn loops(&mut self, rows: &[(u32, Span)]) {
        let (exit, r_max) = (self.exit, self.r_max);
        let mut batch = Vec::new();
        for &(id, span) in rows {
            let sequence = self.sequence(id);
            let depth = sequence.depths[&span.first] + 1;
            for position in span.positions() {
                let token = sequence.generated + position - sequence.next_position();
                let exit = exit(sequence.request.id, token).min(r_max);
                assert!(depth <= exit.0, "the script runs a row beyond its exit");
                sequence.depths.insert(position, depth);
            }
            batch.push(Row { input: Input::Carried, ..self.row(id, span, Depth(depth)) });
        }
        self.batch(Stage::Core, batch);
    }

    fn read(&mut self, rows: &[(u32, Span, Emits)]) {
        let row = |&(id, span, emits): &(u32, Span, Emits)| {
            let depth = Depth(self.sequences[&RequestId(id)].depths[&span.first]);
            Row { input: Input::Carried, emits, ..self.row(id, span, depth) }
        };
        let rows = rows.iter().map(row).collect();
        self.batch(Stage::Coda, rows);
    }

    /// The position whose token a request makes next.
    fn next(&self, id: u32) -> Span {
        self.ahead(id, 0, 1)
    }

    fn ahead(&self, id: u32, ahead: u32, count: u32) -> Span {
        Span { first: self.sequences[&RequestId(id)].next_position() + ahead, count }
    }

    /// A row that takes its input from what was chosen before, and emits nothing.
    fn row(&self, id: u32, span: Span, depth: Depth) -> Row {
        let sequence = &self.sequences[&RequestId(id)];
        let ahead = span.first.saturating_sub(sequence.next_position());
        Row {
            slot: Slot(id),
            request: RequestId(id),
            epoch: sequence.epoch,
            token: sequence.generated + ahead,
            span,
            depth,
            input: Input::Sampled,
            emits: Emits::Nothing,
        }
    }

    /// One batch, with what its rows' tables lack.
    fn batch(&mut self, stage: Stage, rows: Vec<Row>) {
        let mut edits = std::mem::take(&mut self.edits);
        for row in &rows {
            let sequence = self.sequence(row.slot.0);
            if !std::mem::replace(&mut sequence.resident, true) {
                edits.push(TableEdit::Admit(row.slot, sequence.request));
            }
            let grown = self.kv.grow(row.slot, row.context(), &mut edits);
            assert!(grown, "the script's pool is large enough");
        }
        let (stride, pages) = (self.stride, self.pages);
        let renamed = |Page(page): Page| Page((page * stride) % pages);
        let edits = edits.into_iter().map(|edit| match edit {
            TableEdit::Append(slot, page) => TableEdit::Append(slot, renamed(page)),
            TableEdit::Adopt(slot, page) => TableEdit::Adopt(slot, renamed(page)),
            edit => edit,
        });
        let edits = edits.collect();
        self.batches.push(Batch { id: self.batches.len() as u64, stage, rows, edits });
    }

    fn sequence(&mut self, id: u32) -> &mut Sequence {
        self.sequences.get_mut(&RequestId(id)).expect("a request of the script")
    }
}

impl Sequence {
    /// Position of the next decode token's input: the last token made.
    fn next_position(&self) -> u32 {
        (self.request.prompt_tokens + self.generated).saturating_sub(1)
    }
}
