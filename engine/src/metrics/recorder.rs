//! Turns steps into metrics, one pass, without keeping a time per token.

mod outside;

use std::collections::{BTreeMap, VecDeque};

use super::arrivals::Arrivals;
use super::latency::Latency;
use super::replicas::Tally;
use super::series::{Sample, Series};
use super::{
    Goodput, PrefixCacheMetrics, RequestCounts, RequestRecord, RunMetrics, Slo, StageTotals, SteadyWindow, Work,
};
use crate::batch::{Row, RowOutcome, Stage};
use crate::event_loop::{Refused, Step};
use crate::request::{Arrival, Request, RequestId};
use crate::scheduler::{Queues, Reuse};
use crate::units::Nanos;

/// Collects a run's metrics.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// W: the steady window opens after 2 W completions.
    max_num_seqs: u32,
    slo: Option<Slo>,
    live: Vec<Option<Live>>,
    /// Preempted, waiting for a slot again.
    parked: BTreeMap<RequestId, Live>,
    finished: Vec<RequestRecord>,
    counts: RequestCounts,
    prompt_tokens: u64,
    output_tokens: u64,
    latencies: Latencies,
    stages: [StageTotals; Stage::ALL.len()],
    exit_depths: Vec<u64>,
    work: Work,
    series: Series,
    kv_peak_blocks: u32,
    prefix_cache: Option<PrefixCacheMetrics>,
    arrivals: Arrivals,
    /// When the prompt queue was last seen empty, and when that was before the last arrival.
    empty: Option<Nanos>,
    emptied: Option<Nanos>,
    last_step: Nanos,
    opened: Option<(Nanos, u64)>,
    closed: Option<(Nanos, u64)>,
    within_slo: u64,
    send_delay: Latency,
    /// When the requests that wait for their first slot were handed over; they are admitted in this order.
    sent: VecDeque<(RequestId, Nanos)>,
    /// Of several engines, what each did.
    replicas: Option<Tally>,
}

/// The five latency distributions; that of the gaps between tokens is rounded.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// First token - arrival.
    pub ttft: Latency,
    /// (Last token - first token) / (tokens - 1), of requests with two tokens or more.
    pub tpot: Latency,
    /// Gaps between successive tokens of a request.
    pub itl: Latency,
    /// Last token - arrival.
    pub e2e: Latency,
    /// (Last token - arrival) / tokens.
    pub normalized: Latency,
}

/// A resident request's life so far.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    request: Request,
    /// Tokens of its prompt that were in the cache when it was first admitted.
    found: u32,
    sent: Nanos,
    admitted: Nanos,
    first_token: Nanos,
    last_token: Nanos,
    tokens: u32,
    depth_sum: u64,
    prefilled_tokens: u32,
    preemptions: u32,
}

impl Default for Latencies {
    fn default() -> Self {
        let [ttft, tpot, e2e, normalized] = [(); 4].map(|()| Latency::default());
        Self { ttft, tpot, itl: Latency::of_tokens(), e2e, normalized }
    }
}

impl Recorder {
    /// For a scheduler with `max_num_seqs` slots.
    pub fn new(max_num_seqs: u32, slo: Option<Slo>) -> Self {
        Self {
            max_num_seqs,
            slo,
            live: vec![None; max_num_seqs as usize],
            parked: BTreeMap::new(),
            finished: Vec::new(),
            counts: RequestCounts::default(),
            prompt_tokens: 0,
            output_tokens: 0,
            latencies: Latencies::default(),
            stages: [StageTotals::default(); Stage::ALL.len()],
            exit_depths: vec![0; 256],
            work: Work::default(),
            series: Series::new(),
            kv_peak_blocks: 0,
            prefix_cache: None,
            arrivals: Arrivals::new(),
            empty: None,
            emptied: None,
            last_step: Nanos::ZERO,
            opened: None,
            closed: None,
            within_slo: 0,
            send_delay: Latency::default(),
            sent: VecDeque::new(),
            replicas: None,
        }
    }

    /// For several engines of `max_num_seqs` slots each, whose steps [`Self::step_of`] takes.
    pub fn of_replicas(count: usize, max_num_seqs: u32, slo: Option<Slo>) -> Self {
        Self { replicas: Some(Tally::new(count)), ..Self::new(count as u32 * max_num_seqs, slo) }
    }

    /// A request is sent to one of several engines.
    pub fn sent_to(&mut self, replica: usize) {
        self.replicas.iter_mut().for_each(|tally| tally.sent(replica));
    }

    /// Takes an arrival, as [`crate::event_loop::Observer::arrived`] does.
    pub fn arrived(&mut self, arrival: &Arrival, now: Nanos, refusal: Option<&Refused>) {
        let intended = arrival.request.arrival;
        self.counts.arrived += 1;
        if refusal.is_some() {
            self.counts.refused += 1;
            return;
        }
        self.arrivals.add(intended);
        self.emptied = self.empty;
        self.send_delay.record(now - intended);
        self.sent.push_back((arrival.request.id, now));
    }

    /// Takes a cancellation, as [`crate::event_loop::Observer::cancelled`] does.
    pub fn cancelled(&mut self, request: RequestId) {
        self.counts.cancelled += 1;
        self.give_up(request);
    }

    /// Takes a step, as [`crate::event_loop::Observer::step`] does.
    pub fn step(&mut self, step: &Step) {
        self.record(step, step.settled.queues, 0);
    }

    /// Takes a step of one of several engines; those of all in order of their ends.
    pub fn step_of(&mut self, replica: usize, step: &Step) {
        let Some(tally) = &mut self.replicas else { return self.step(step) };
        let slots = self.max_num_seqs as usize / tally.count();
        let queues = tally.step(replica, step);
        self.record(step, queues, replica * slots);
    }

    /// `queues` are all engines', and the batch's slots lie behind `first_slot` others'.
    fn record(&mut self, Step { outcome, settled }: &Step, queues: Queues, first_slot: usize) {
        let (batch, now) = (&outcome.batch, outcome.finished);
        for (slot, request) in batch.admitted() {
            // What of its prompt is not run was found.
            let first = batch.rows.iter().find(|row| row.slot == slot && batch.stage == Stage::Prefill);
            let found = first.map_or(0, |row| row.span.first);
            self.admit(first_slot + slot.index(), request, found, outcome.started);
        }
        if settled.reuse != Reuse::default() {
            self.prefix_cache.get_or_insert_default().add(settled.reuse);
        }
        let totals = &mut self.stages[batch.stage as usize];
        totals.steps += 1;
        totals.rows += batch.rows.len() as u64;
        totals.busy_s += (now - outcome.started).as_secs();
        if batch.stage.has_head() {
            for (row, row_outcome) in batch.rows.iter().zip(&outcome.rows) {
                self.tokens(batch.stage, row, row_outcome, (first_slot + row.slot.index(), now));
            }
        }
        self.last_step = now;
        if queues.prompt == 0 {
            self.empty = Some(now);
        }
        self.kv_peak_blocks = self.kv_peak_blocks.max(queues.kv_used_blocks);
        self.series.add(&Sample {
            start: outcome.started,
            end: now,
            core_rows: matches!(batch.stage, Stage::Core | Stage::Forward).then_some(batch.rows.len() as u32),
            prompt_queue: queues.prompt,
            resident: queues.resident,
            kv_used_blocks: queues.kv_used_blocks,
        });
    }

    /// How many requests are over so far.
    pub fn over(&self) -> u64 {
        self.counts.over()
    }

    /// Requests that finished since the last call, in order of finishing.
    pub fn take_finished(&mut self) -> std::vec::Drain<'_, RequestRecord> {
        self.finished.drain(..)
    }

    /// The distributions, for plots.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The run's metrics so far.
    pub fn metrics(&self) -> RunMetrics {
        let start = self.arrivals.first();
        let makespan_s = self.last_step.saturating_sub(start).as_secs();
        let rate = |amount: u64| if makespan_s > 0.0 { amount as f64 / makespan_s } else { 0.0 };
        let busy_s: f64 = self.stages.iter().map(|totals| totals.busy_s).sum();
        let devices = self.replicas.as_ref().map_or(1, Tally::count) as f64;
        let deepest = self.exit_depths.iter().rposition(|&count| count > 0).map_or(0, |depth| depth + 1);
        let decoded: u64 = self.exit_depths.iter().sum();
        let depths: u64 = self.exit_depths.iter().enumerate().map(|(depth, &count)| depth as u64 * count).sum();
        RunMetrics {
            requests: self.counts,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            makespan_s,
            throughput_tokens_per_s: rate(self.output_tokens),
            steady: self.steady_window(),
            goodput: self.slo.map(|slo| Goodput {
                slo,
                share: self.within_slo as f64 / self.counts.finished.max(1) as f64,
                requests_per_s: rate(self.within_slo),
            }),
            ttft: self.latencies.ttft.summary(),
            tpot: self.latencies.tpot.summary(),
            itl: self.latencies.itl.summary(),
            e2e: self.latencies.e2e.summary(),
            normalized: self.latencies.normalized.summary(),
            send_delay: self.send_delay.summary(),
            stages: Stage::ALL.into_iter().zip(self.stages).filter(|(_, totals)| totals.steps > 0).collect(),
            gpu_busy_share: if makespan_s > 0.0 { busy_s / devices / makespan_s } else { 0.0 },
            prefill_share: if busy_s > 0.0 { self.stages[Stage::Prefill as usize].busy_s / busy_s } else { 0.0 },
            mean_exit_depth: if decoded > 0 { depths as f64 / decoded as f64 } else { 0.0 },
            exit_depths: self.exit_depths[..deepest].to_vec(),
            replicas: self.replicas.as_ref().map(|tally| tally.metrics(makespan_s)),
            work: (!self.is_from_outside()).then_some(self.work),
            kv_peak_blocks: self.kv_peak_blocks,
            prefix_cache: self.prefix_cache,
            first_arrival_s: start.as_secs(),
            arrival_window_s: self.arrivals.window().as_secs(),
            judged: self.arrivals.judged(self.emptied),
            series: self.series.points(),
        }
    }

    fn is_from_outside(&self) -> bool {
        let saw_steps = self.stages.iter().any(|totals| totals.steps > 0);
        !saw_steps && self.counts.finished + self.counts.failed > 0
    }

    fn steady_window(&self) -> Option<SteadyWindow> {
        let ((opened, before), (closed, after)) = (self.opened?, self.closed?);
        let seconds = closed.saturating_sub(opened).as_secs();
        (seconds > 0.0).then(|| SteadyWindow {
            opened_s: opened.as_secs(),
            closed_s: closed.as_secs(),
            throughput_tokens_per_s: (after - before) as f64 / seconds,
        })
    }

    fn admit(&mut self, slot: usize, request: Request, found: u32, now: Nanos) {
        let new = match self.take(request.id) {
            Some(live) => Live { preemptions: live.preemptions + 1, ..live },
            None => {
                // A request that was cancelled meanwhile is no longer among those that wait.
                let waiting = self.sent.iter().position(|&(waiting, _)| waiting == request.id);
                let Some((_, sent)) = waiting.and_then(|at| self.sent.remove(at)) else { return };
                self.closed = Some((now, self.output_tokens));
                Live { request, found, sent, admitted: now, ..Live::default() }
            }
        };
        // Whoever is still in the slot lost it before it finished.
        if let Some(old) = self.live[slot].replace(new) {
            self.parked.insert(old.request.id, old);
        }
    }

    /// The life so far of a request, taken from its slot, from the slot that it lost or from among the parked.
    fn take(&mut self, request: RequestId) -> Option<Live> {
        let lost = self.live.iter_mut().find(|entry| entry.is_some_and(|live| live.request.id == request));
        lost.and_then(Option::take).or_else(|| self.parked.remove(&request))
    }

    /// Counts nothing more of a request, and says whether it had been admitted.
    fn give_up(&mut self, request: RequestId) -> bool {
        self.sent.retain(|&(waiting, _)| waiting != request);
        self.take(request).is_some()
    }

    /// The tokens that a row delivers; one that ran late for a sequence that was over delivers nothing.
    fn tokens(&mut self, stage: Stage, row: &Row, row_outcome: &RowOutcome, at: (usize, Nanos)) {
        let delivered = row.delivered(row_outcome);
        for index in 0..delivered {
            self.token(stage, row, at, row_outcome.finished && !row_outcome.failed && index + 1 == delivered);
        }
        // One that was cancelled before counts as cancelled.
        if row_outcome.failed && self.give_up(row.request) {
            self.counts.failed += 1;
        }
    }

    fn token(&mut self, stage: Stage, row: &Row, (slot, now): (usize, Nanos), ended: bool) {
        let entry = &mut self.live[slot];
        let Some(live) = entry.as_mut().filter(|live| live.request.id == row.request) else { return };
        self.output_tokens += 1;
        live.tokens += 1;
        if live.tokens == 1 {
            live.first_token = now;
            self.work.add_prompt(live.request.prompt_tokens, live.found);
        } else {
            self.latencies.itl.record(now - live.last_token);
            // The token that prefill makes after a recompute ran at full depth; only decode steps have exits.
            if stage == Stage::Prefill {
                live.prefilled_tokens += 1;
            } else {
                live.depth_sum += u64::from(row.depth.0);
                self.exit_depths[usize::from(row.depth.0)] += 1;
                self.work.add_token(row.depth, row.context());
            }
        }
        live.last_token = now;
        if ended || live.tokens == live.request.max_output_tokens {
            let live = *live;
            *entry = None;
            self.finish(&live);
        }
    }

    fn finish(&mut self, live: &Live) {
        if self.counts.finished + 1 == 2 * u64::from(self.max_num_seqs) {
            self.opened = Some((live.last_token, self.output_tokens));
        }
        self.count(&RequestRecord {
            request: live.request.id,
            arrival: live.request.arrival,
            sent: live.sent,
            admitted: live.admitted,
            first_token: live.first_token,
            finish: live.last_token,
            prompt_tokens: live.request.prompt_tokens,
            output_tokens: live.tokens,
            depth_sum: live.depth_sum,
            prefilled_tokens: live.prefilled_tokens,
            preemptions: live.preemptions,
        });
    }

    /// Counts a request that got all its tokens.
    fn count(&mut self, record: &RequestRecord) {
        self.counts.finished += 1;
        self.counts.one_token += u64::from(record.output_tokens == 1);
        self.counts.preemptions += u64::from(record.preemptions);
        self.prompt_tokens += u64::from(record.prompt_tokens);
        self.latencies.ttft.record(record.ttft());
        self.latencies.e2e.record(record.e2e());
        self.latencies.normalized.record(record.normalized());
        if let Some(tpot) = record.tpot() {
            self.latencies.tpot.record(tpot);
        }
        self.within_slo += u64::from(self.slo.is_some_and(|slo| slo.met(record)));
        self.finished.push(*record);
    }
}
