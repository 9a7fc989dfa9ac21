//! The scheduler: a pure state machine that decides what runs next.
//!
//! Invariant: it knows no clock, no device, no file, no randomness, no true exit depth, and under `finish: eos` no true
//! output length. Everything that it learns comes through [`Scheduler::arrive`], [`Scheduler::cancel`] and
//! [`Scheduler::complete`].
//!
//! Invariant: queues change only in `route`, when a batch's effects are settled. A batch that was issued is the content of
//! the queue it came from, so at most one batch is unsettled at a time, and the order of settling is the order of launching.
//! That is why the overlap modes, which differ only in *when* a batch can be settled, form identical batches.

mod admission;
mod cancel;
mod coda;
mod config;
mod costs;
mod prefix;
mod pressure;
mod route;

use std::collections::VecDeque;

pub use config::{
    CachedPages, ConfigError, Finish, KvConfig, MAX_KV_BLOCKS, MAX_NUM_SEQS, Mode, Overlap, Prefill, PrefixCache,
    Pressure, SchedulerConfig,
};
pub use costs::StageCosts;
pub use prefix::Reuse;

use self::coda::CodaTiming;
use crate::batch::{Batch, Emits, Input, Outcome, Row, Slot, Span, Stage};
use crate::content::{Chain, Content};
use crate::kv::KvCache;
use crate::request::{Request, RequestId};
use crate::units::{Depth, Nanos};

/// Decides; see the module's text.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    kv: KvCache,
    sequences: Vec<Sequence>,
    free_slots: Vec<Slot>,
    /// Q_P: never admitted.
    waiting: VecDeque<Waiting>,
    /// Q_P, ahead of `waiting`: preempted, oldest first.
    preempted: VecDeque<Preempted>,
    /// The sequence whose prompt is part done.
    partial: Option<Slot>,
    /// Q_D: sequences whose next token waits for the prelude (or for `forward`).
    decode_queue: Vec<Slot>,
    /// Q_R: rows ready for their next loop.
    core_queue: Vec<Row>,
    /// Q_C: rows that left the loop.
    coda_queue: Vec<Row>,
    /// Decides when the coda runs, in adaptive refill.
    timing: Option<CodaTiming>,
    pending: Option<Pending>,
    in_flight: u32,
    heavy_in_flight: u32,
    core_in_flight: u32,
    next_id: u64,
    /// Prefill batches since the last decode step.
    prefills: u32,
    /// Batches that are done.
    completed: u64,
    /// Requests that are over, each with the number of batches that were launched before.
    gone: VecDeque<(u64, RequestId)>,
    settled: VecDeque<Settled>,
    late_rows: u64,
    preemptions: u64,
    /// What the prefix cache did since the last batch that was issued, but for evictions.
    reuse: Reuse,
    /// Pages that had been evicted by then.
    evicted: u64,
}

/// A request that was never admitted.
#[derive(Debug)]
struct Waiting {
    request: Request,
    /// The keys of its pages, where there is a prefix cache and they can be known.
    chain: Option<Box<Chain>>,
}

/// A resident sequence.
#[derive(Clone, Debug)]
struct Sequence {
    request: Request,
    /// Tokens that prefill must process: the prompt, or all known tokens after a recompute.
    prefill_target: u32,
    prefilled: u32,
    /// Output tokens made so far, which is also the index of the one in the making.
    generated: u32,
    /// Position of the last known token, which is the next decode step's input.
    position: u32,
    /// Its first tokens, as many as have run and serve every loop.
    covered: u32,
    /// Its first pages, as many as were published or found to be.
    published: u32,
    /// The keys of its pages, where there is a prefix cache and they can be known.
    chain: Option<Box<Chain>>,
    /// How often it was truncated; no policy does so yet.
    epoch: u32,
    /// The exit depth of the token in the making, once an outcome told it.
    leaves_after: Option<Depth>,
    /// Its last token, once an outcome told it (`finish: eos`).
    ended_with: Option<u32>,
    /// Nobody waits for it any more.
    cancelled: bool,
}

/// Who holds a free slot: outcomes that come late for the last owner match nobody.
const NOBODY: Request =
    Request { id: RequestId(u32::MAX), arrival: Nanos::ZERO, prompt_tokens: 1, max_output_tokens: 1 };

/// A sequence that lost its slot.
#[derive(Debug)]
struct Preempted {
    request: Request,
    generated: u32,
    offloaded: bool,
    covered: u32,
    chain: Option<Box<Chain>>,
}

/// The batch whose effects are not settled yet.
#[derive(Debug)]
struct Pending {
    id: u64,
    stage: Stage,
    /// Rows that are not a whole queue: prefill, restore.
    rows: Vec<Row>,
    /// Some row's exit has to be learnt before the batch can be settled.
    undecided: bool,
    /// What the prefix cache did for it.
    reuse: Reuse,
}

/// Queue lengths and pool use after a batch was settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Q_R.
    pub recurrent: u32,
    /// Q_C.
    pub coda: u32,
    /// Q_D.
    pub decode: u32,
    /// Q_P.
    pub prompt: u32,
    /// Sequences with a slot.
    pub resident: u32,
    /// Core blocks in use.
    pub kv_used_blocks: u32,
    /// Core blocks that the prefix cache keeps beside those in use.
    pub kv_cached_blocks: u32,
}

/// A settled batch: what the paper's stage traces show of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The batch's id.
    pub id: u64,
    /// Core: rows that left the loop.
    pub exits: u32,
    /// What the prefix cache did for it.
    pub reuse: Reuse,
    /// Queues afterwards.
    pub queues: Queues,
}

/// Why a request can never be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Refusal {
    /// Without a prompt, or without an output.
    #[error("prompt {prompt_tokens}, output {max_output_tokens} tokens: both must be at least 1")]
    Empty { prompt_tokens: u32, max_output_tokens: u32 },
    /// Its number means that a slot is free.
    #[error("request {} has the one number that no request can have", .0.0)]
    Number(RequestId),
    /// Longer than the context limit.
    #[error("prompt {prompt_tokens} + output {max_output_tokens} tokens exceed the context limit of {limit} tokens")]
    Context { prompt_tokens: u32, max_output_tokens: u32, limit: u32 },
    /// Larger than the whole pool.
    #[error("prompt {prompt_tokens} + output {max_output_tokens} tokens need {needed} KV blocks, the pool has {total}")]
    Pool { prompt_tokens: u32, max_output_tokens: u32, needed: u64, total: u64 },
}

impl Scheduler {
    /// An idle scheduler.
    ///
    /// # Errors
    /// A setting that it cannot run with.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let KvConfig { layout, blocks, block_tokens, .. } = config.kv;
        let slots = config.max_num_seqs;
        let kv = KvCache::new(blocks, block_tokens, layout.planes(config.r_max), slots);
        Ok(Self {
            kv: if config.kv.prefix_cache.is_some() { kv.with_prefix_cache() } else { kv },
            sequences: vec![Sequence::new(NOBODY, 0); slots as usize],
            free_slots: (0..slots).rev().map(Slot).collect(),
            waiting: VecDeque::new(),
            preempted: VecDeque::new(),
            partial: None,
            decode_queue: Vec::new(),
            core_queue: Vec::new(),
            coda_queue: Vec::new(),
            timing: match config.mode {
                Mode::AdaptiveRefill(costs) => Some(CodaTiming::new(costs, config.r_max)),
                _ => None,
            },
            pending: None,
            in_flight: 0,
            heavy_in_flight: 0,
            core_in_flight: 0,
            next_id: 0,
            prefills: 0,
            completed: 0,
            gone: VecDeque::new(),
            settled: VecDeque::new(),
            late_rows: 0,
            preemptions: 0,
            reuse: Reuse::default(),
            evicted: 0,
            config,
        })
    }

    /// What it was row_outcome.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Queues a request that has nothing in common with others.
    ///
    /// # Errors
    /// The request can never fit, or is none; it is forgotten and everything else goes on.
    pub fn arrive(&mut self, request: Request) -> Result<(), Refusal> {
        self.arrive_with(request, None)
    }

    /// Queues a request, with what is known of its tokens for the prefix cache.
    ///
    /// # Errors
    /// The request can never fit, or is none; it is forgotten and everything else goes on.
    pub fn arrive_with(&mut self, request: Request, content: Option<Content>) -> Result<(), Refusal> {
        let Request { id, prompt_tokens, max_output_tokens, .. } = request;
        if prompt_tokens == 0 || max_output_tokens == 0 {
            return Err(Refusal::Empty { prompt_tokens, max_output_tokens });
        }
        if id == NOBODY.id {
            return Err(Refusal::Number(id));
        }
        let limit = self.config.max_context_tokens;
        if request.max_tokens() > u64::from(limit) {
            return Err(Refusal::Context { prompt_tokens, max_output_tokens, limit });
        }
        let (needed, total) = (self.kv.blocks_for(request.max_tokens()), self.kv.total_blocks());
        if needed > total {
            return Err(Refusal::Pool { prompt_tokens, max_output_tokens, needed, total });
        }
        let content = content.filter(|_| self.config.kv.prefix_cache.is_some());
        let chain = content.map(|content| Box::new(Chain::new(content, id, prompt_tokens)));
        self.waiting.push_back(Waiting { request, chain });
        Ok(())
    }

    /// The next batch, or `None` when an outcome or an arrival is needed first.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if !self.may_queue() {
            return None;
        }
        if let Some(pending) = &self.pending {
            if !self.can_settle(pending) {
                return None;
            }
            self.settle();
        }
        // Building can preempt every candidate and leave the choice to be made again.
        loop {
            let stage = self.choose()?;
            if self.config.overlap == Overlap::Lookahead && is_heavy(stage) && self.heavy_in_flight >= 2 {
                return None;
            }
            if let Some(batch) = self.build(stage) {
                // Not always the stage that was chosen: an offload can come first.
                self.in_flight += 1;
                self.heavy_in_flight += u32::from(is_heavy(batch.stage));
                self.core_in_flight += u32::from(batch.stage == Stage::Core);
                return Some(batch);
            }
        }
    }

    /// Learns what the oldest launched batch did.
    pub fn complete(&mut self, outcome: &Outcome) {
        let stage = outcome.batch.stage;
        self.in_flight -= 1;
        self.completed += 1;
        self.heavy_in_flight -= u32::from(is_heavy(stage));
        if stage.has_head() {
            self.learn_ids(outcome);
        }
        match stage {
            Stage::Core => {
                self.core_in_flight -= 1;
                for (row, row_outcome) in outcome.batch.rows.iter().zip(&outcome.rows) {
                    let sequence = &mut self.sequences[row.slot.index()];
                    // The slot may hold another token by now, or another sequence.
                    if row_outcome.leaves_after.is_some() && sequence.is_making(row) {
                        sequence.leaves_after = row_outcome.leaves_after;
                    }
                }
            }
            Stage::Prefill | Stage::Coda | Stage::Forward if self.config.finish == Finish::Eos => {
                for (row, row_outcome) in outcome.batch.rows.iter().zip(&outcome.rows) {
                    if row_outcome.finished {
                        self.end(row);
                    }
                }
            }
            _ => {}
        }
    }

    /// The oldest settled batch that was not taken yet, in launch order.
    pub fn take_settled(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    /// The next request that is over and that no batch in flight names: whoever keeps something of it can forget it.
    pub fn take_gone(&mut self) -> Option<RequestId> {
        self.gone.pop_front_if(|(launched, _)| *launched <= self.completed).map(|(_, request)| request)
    }

    /// Nothing waits, runs or is resident.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.pending.is_none() && self.resident() == 0 && self.prompt_queue_len() == 0
    }

    /// Queue lengths as of the last settled batch.
    pub fn queues(&self) -> Queues {
        Queues {
            recurrent: self.core_queue.len() as u32,
            coda: self.coda_queue.len() as u32,
            decode: self.decode_queue.len() as u32,
            prompt: self.prompt_queue_len() as u32,
            resident: self.resident(),
            kv_used_blocks: self.kv.used_blocks() as u32,
            kv_cached_blocks: self.kv.cached_blocks() as u32,
        }
    }

    /// Core blocks in the pool.
    pub fn kv_total_blocks(&self) -> u64 {
        self.kv.total_blocks()
    }

    /// Rows that ran for a sequence that was over: ended (`finish: eos`) or cancelled.
    pub fn late_rows(&self) -> u64 {
        self.late_rows
    }

    /// Sequences that lost their slot to KV pressure, counted each time.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Panics unless slots and blocks are conserved.
    pub fn check(&self) {
        self.kv.check();
        let queued = self.decode_queue.len() + self.core_queue.len() + self.coda_queue.len();
        let prefilling = match &self.pending {
            Some(pending) if matches!(pending.stage, Stage::Prefill | Stage::Restore) => pending.rows.len(),
            _ => usize::from(self.partial.is_some()),
        };
        assert_eq!(queued + prefilling, self.resident() as usize, "a resident sequence is in no queue, or in two");
        if self.resident() == 0 {
            assert_eq!(self.kv.used_blocks(), 0, "blocks are held without a sequence");
        }
    }

    /// Panics unless every page of the pool is free, held or published, and found by its key. It takes as long as the pool.
    pub fn check_pool(&self) {
        self.kv.check_all();
    }

    /// The stage with the highest priority that has work.
    fn choose(&mut self) -> Option<Stage> {
        let decode = !self.decode_queue.is_empty();
        let core = !self.core_queue.is_empty();
        let coda = !self.coda_queue.is_empty();
        match self.config.mode {
            Mode::ContinuousBatching => self.admission_in_turn(decode).or(decode.then_some(Stage::Forward)),
            Mode::NoRefill if core => Some(Stage::Core),
            Mode::NoRefill if coda => Some(Stage::Coda),
            Mode::NoRefill => self.admission_in_turn(decode).or(decode.then_some(Stage::Prelude)),
            Mode::Refill { .. } | Mode::AdaptiveRefill(_) if decode => Some(Stage::Prelude),
            Mode::Refill { min_coda_batch } if self.coda_queue.len() >= min_coda_batch as usize => Some(Stage::Coda),
            Mode::AdaptiveRefill(_) if coda && self.coda_is_due() => Some(Stage::Coda),
            // A coda smaller than K runs when nothing else can, so that the tail cannot deadlock.
            Mode::Refill { .. } | Mode::AdaptiveRefill(_) => {
                let prompts = self.admission_in_turn(core || coda);
                prompts.or(core.then_some(Stage::Core)).or(coda.then_some(Stage::Coda))
            }
        }
    }

    fn coda_is_due(&self) -> bool {
        let (gathered, looping) = (self.coda_queue.len() as u32, self.core_queue.len() as u32);
        self.timing.as_ref().is_some_and(|timing| timing.due(gathered, gathered + looping))
    }

    /// The batch for `stage`, or `None` if KV pressure left no row for it.
    fn build(&mut self, stage: Stage) -> Option<Batch> {
        match stage {
            Stage::Prefill => Some(self.build_prefill()),
            Stage::Restore => Some(self.build_restore()),
            Stage::Prelude | Stage::Forward => self.build_decode(stage),
            Stage::Core => {
                let undecided =
                    self.core_queue.iter().any(|row| row.depth >= self.config.r_min && row.depth < self.config.r_max);
                let rows = self.core_queue.clone();
                Some(self.issue(stage, rows, undecided))
            }
            Stage::Coda => {
                let rows = self.coda_queue.clone();
                Some(self.issue(stage, rows, false))
            }
            Stage::Offload => unreachable!("offloading is decided while a decode batch is built"),
        }
    }

    /// Numbers a batch and leaves it to be settled.
    fn issue(&mut self, stage: Stage, rows: Vec<Row>, undecided: bool) -> Batch {
        let id = self.next_id;
        self.next_id += 1;
        let kept = if matches!(stage, Stage::Prefill | Stage::Restore) { rows.clone() } else { Vec::new() };
        match (stage, self.config.mode) {
            (Stage::Prefill, _) => self.prefills += 1,
            (Stage::Core | Stage::Forward, _) | (Stage::Prelude, Mode::NoRefill) => self.prefills = 0,
            _ => {}
        }
        let reuse = self.take_reuse();
        self.pending = Some(Pending { id, stage, rows: kept, undecided, reuse });
        Batch { id, stage, rows, edits: Vec::new() }
    }

    /// How much may stand in the device's queue.
    fn may_queue(&self) -> bool {
        match self.config.overlap {
            Overlap::Synchronous => self.in_flight == 0,
            Overlap::Asynchronous => self.in_flight <= 1,
            Overlap::Lookahead => true,
        }
    }

    /// Whether every row's way is known.
    fn can_settle(&self, pending: &Pending) -> bool {
        if !pending.undecided {
            return true;
        }
        match self.config.overlap {
            // The outcome of loop r told who leaves after loop r + 1.
            Overlap::Lookahead => self.core_in_flight <= 1,
            Overlap::Synchronous | Overlap::Asynchronous => self.core_in_flight == 0,
        }
    }

    fn resident(&self) -> u32 {
        self.config.max_num_seqs - self.free_slots.len() as u32
    }

    fn prompt_queue_len(&self) -> usize {
        self.waiting.len() + self.preempted.len()
    }
}

impl Sequence {
    fn new(request: Request, generated: u32) -> Self {
        let known = request.prompt_tokens + generated;
        Self {
            request,
            prefill_target: known,
            prefilled: 0,
            generated,
            position: known - 1,
            covered: 0,
            published: 0,
            chain: None,
            epoch: 0,
            leaves_after: None,
            ended_with: None,
            cancelled: false,
        }
    }

    /// It makes no more tokens that anybody wants.
    fn is_over(&self) -> bool {
        self.cancelled || self.ended_with.is_some()
    }

    /// Whether `row` was for the token that the sequence is still making.
    fn is_making(&self, row: &Row) -> bool {
        self.request.id == row.request && self.epoch == row.epoch && self.generated == row.token
    }

    /// A row of the token in the making, which begins with the token made last.
    fn row(&self, slot: Slot, depth: Depth) -> Row {
        Row {
            slot,
            request: self.request.id,
            epoch: self.epoch,
            token: self.generated,
            span: Span::one(self.position),
            depth,
            input: Input::Sampled,
            emits: Emits::Nothing,
        }
    }

    /// All positions that have KV, to be moved.
    fn moved(&self, slot: Slot) -> Row {
        let span = Span { first: 0, count: self.position };
        Row { span, input: Input::Carried, ..self.row(slot, Depth::FIRST) }
    }
}

/// Stages that take long enough to build the next batch behind; at most two of them are in flight.
fn is_heavy(stage: Stage) -> bool {
    !matches!(stage, Stage::Prelude | Stage::Coda)
}
