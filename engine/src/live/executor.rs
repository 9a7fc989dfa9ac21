//! The live executor: batches become work, and what came of it becomes outcomes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::LiveConfig;
use super::backend::{Backend, NOT_FINITE, Ran};
use super::check::check;
use super::exits::{Decider, ExitError, ExitPolicy};
use super::sampling::request_seed;
use super::sequences::{Sequence, prompt_of_pieces};
use super::transcripts::{OutputToken, Transcripts};
use super::work::Translator;
use crate::architecture::Architecture;
use crate::batch::{Batch, Emits, Input, Outcome, Row, RowOutcome, Stage, TableEdit, TokenAt};
use crate::executor::{Clock, Executor, Reject};
use crate::models::gate::{Gate, GateMemory, Signal};
use crate::request::RequestId;
use crate::scheduler::Finish;
use crate::submission::{Sampling, Submission};
use crate::units::Depth;

/// Runs a model for real on a device.
#[derive(Debug)]
pub struct Live<B> {
    pub(crate) backend: B,
    config: LiveConfig,
    exits: ExitPolicy,
    translator: Translator,
    sequences: BTreeMap<RequestId, Sequence>,
    /// By slot, then position mod window: what the gate remembers of the token in the making.
    gates: Vec<GateMemory>,
    transcripts: Transcripts,
    in_flight: VecDeque<Flight>,
}

/// A launched batch, and what came of it if that was waited for already.
#[derive(Debug)]
enum Flight {
    Launched(Batch),
    Done(Outcome),
}

/// What a row's choices mean for its sequence.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    /// Leading tokens that were the next position's input.
    accepted: u32,
    finished: bool,
    failed: bool,
    /// Output tokens that joined the transcript.
    said: u32,
}

/// Why a live run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LiveError<E: std::error::Error + 'static> {
    /// An exit that the settings do not allow.
    #[error(transparent)]
    Exit(#[from] ExitError),
    /// The model's numbers ran out of range: its weights are broken, or are another model's. Under `finish: eos` that
    /// ends the request and nothing else.
    #[error("request {}, token {token}: the logits are not finite", request.0)]
    NotFinite {
        /// The request.
        request: RequestId,
        /// The output token.
        token: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(E),
}

impl<B: Backend> Live<B> {
    /// A device ready to serve under a scheduler's settings. `trained_lookahead` says that the weights hold a trained
    /// lookahead gate.
    ///
    /// # Errors
    /// The gate decides too late for the overlap mode, or is none that the model can have.
    pub fn on(
        backend: B,
        architecture: &Architecture,
        config: LiveConfig,
        trained_lookahead: bool,
    ) -> Result<Self, ExitError> {
        let scheduler = &config.scheduler;
        let exits = ExitPolicy::new(config.exits.clone(), architecture, (scheduler, config.window), trained_lookahead)?;
        let (slots, window) = (scheduler.max_num_seqs, config.window);
        assert!(window > 0, "a sequence has at least one position on its way");
        Ok(Self {
            translator: Translator { layout: scheduler.kv.layout, slots, window, signals: exits.reads_signals() },
            gates: vec![GateMemory::default(); (slots * window) as usize],
            backend,
            exits,
            sequences: BTreeMap::new(),
            transcripts: Transcripts::default(),
            in_flight: VecDeque::new(),
            config,
        })
    }

    /// What it was told.
    pub fn config(&self) -> &LiveConfig {
        &self.config
    }

    /// Tokens, exit depths and logits so far.
    pub fn transcripts(&self) -> &Transcripts {
        &self.transcripts
    }

    /// Requests that were submitted and are not forgotten.
    pub fn known_requests(&self) -> usize {
        self.sequences.len()
    }

    /// Whose exits these are, as reports must name them.
    pub fn exit_label(&self) -> &'static str {
        self.exits.label()
    }

    /// Forgets all requests, for a measurement behind a warm-up. Panics if a batch is in flight.
    pub(crate) fn clear(&mut self) {
        assert!(self.in_flight.is_empty(), "a batch is in flight");
        self.sequences.clear();
        self.transcripts = Transcripts::default();
    }

    /// Takes other settings that need no other memory.
    pub(crate) fn configure(
        &mut self,
        config: LiveConfig,
        architecture: &Architecture,
        trained_lookahead: bool,
    ) -> Result<(), ExitError> {
        let scheduler = (&config.scheduler, config.window);
        self.exits = ExitPolicy::new(config.exits.clone(), architecture, scheduler, trained_lookahead)?;
        self.translator.signals = self.exits.reads_signals();
        self.config = config;
        self.clear();
        Ok(())
    }

    /// Waits for every batch in flight, so that the host knows all tokens.
    fn drain(&mut self, clock: &mut dyn Clock) -> Result<(), LiveError<B::Error>> {
        for at in 0..self.in_flight.len() {
            if let Flight::Launched(batch) = &self.in_flight[at] {
                let batch = batch.clone();
                let ran = self.backend.wait(clock).map_err(LiveError::Device)?;
                self.in_flight[at] = Flight::Done(self.outcome(batch, ran)?);
            }
        }
        Ok(())
    }

    /// Whether a batch needs ids that may still be on their way (a recompute), or that only a slot lost (a restore).
    fn needs_ids(&self, batch: &Batch) -> bool {
        let known = |row: &Row| self.sequences[&row.request].ids().len() as u32;
        match batch.stage {
            Stage::Restore => batch.rows.iter().any(|row| known(row) <= row.span.end()),
            _ => batch.rows.iter().any(|row| row.input == Input::Given && known(row) < row.span.end()),
        }
    }

    /// Takes in what a batch did.
    fn outcome(&mut self, batch: Batch, ran: Ran) -> Result<Outcome, LiveError<B::Error>> {
        let Ran { started, finished, signals, chosen, logits, mut scores } = ran;
        let (mut signals, mut logits) = (signals.into_iter(), logits.into_iter());
        let mut rows = Vec::with_capacity(batch.rows.len());
        let mut drawn = 0;
        let mut said = BTreeSet::new();
        for row in &batch.rows {
            let mut outcome = RowOutcome::default();
            if batch.stage == Stage::Core {
                let signals: Vec<[f32; 2]> = signals.by_ref().take(row.span.count as usize).collect();
                outcome.leaves_after = self.looped(row, &signals)?;
            }
            let ids = &chosen[drawn..drawn + row.emitted() as usize];
            drawn += ids.len();
            let logits: Vec<Vec<f32>> = logits.by_ref().take(ids.len()).collect();
            if !ids.is_empty() {
                let chosen = self.chose(row, ids, logits)?;
                let Chosen { accepted, finished, failed, .. } = chosen;
                outcome = RowOutcome { accepted, finished, failed, ..outcome };
                if !scores.is_empty() {
                    said.extend((row.token..row.token + chosen.said).map(|token| (row.request, token)));
                }
            }
            rows.push(outcome);
        }
        // Nothing is told of a token that the transcript does not hold: a guess that failed, or a row that ran late.
        scores.retain(|scored| match scored.at {
            TokenAt::Prompt(_) => true,
            TokenAt::Output(token) => said.contains(&(scored.request, token)),
        });
        Ok(Outcome { batch, started, finished, rows, tokens: chosen, scores })
    }

    /// What may be known of a core row's exit: a span leaves when the last of its positions does.
    fn looped(&mut self, row: &Row, signals: &[[f32; 2]]) -> Result<Option<Depth>, LiveError<B::Error>> {
        let Some(sequence) = self.sequences.get(&row.request).filter(|sequence| sequence.epoch == row.epoch) else {
            return Ok(None);
        };
        let mut last = Some(Depth::FIRST);
        for (index, position) in row.span.positions().enumerate() {
            let memory = &mut self.gates[(row.slot.0 * self.config.window + position % self.config.window) as usize];
            if row.depth == Depth::FIRST {
                *memory = GateMemory::default();
            }
            if let (Decider::Gate(gate), Some(&signals)) = (sequence.decider, signals.get(index)) {
                observe(gate, memory, row.depth, signals);
            }
            let token = row.token + index as u32;
            let decided = self.exits.decided(sequence.decider, (row.request, token), memory)?;
            last = last.zip(decided).map(|(last, decided)| last.max(decided));
        }
        Ok(last.and_then(|exit| self.config.scheduler.overlap.reveals(exit, row.depth)))
    }

    /// Takes in the tokens that a row chose.
    fn chose(&mut self, row: &Row, ids: &[u32], logits: Vec<Vec<f32>>) -> Result<Chosen, LiveError<B::Error>> {
        let Some(sequence) = self.sequences.get_mut(&row.request).filter(|sequence| sequence.epoch == row.epoch) else {
            return Ok(Chosen::default());
        };
        let first = row.span.end() - ids.len() as u32;
        let may_end = self.config.scheduler.finish == Finish::Eos;
        if let Some(index) = ids.iter().position(|&id| id == NOT_FINITE).filter(|_| !may_end) {
            return Err(LiveError::NotFinite { request: row.request, token: row.token + index as u32 });
        }
        // Checked before the tokens take their drafts' places.
        let inputs = sequence.ids().get(first as usize + 1..).unwrap_or_default();
        let checked = if row.emits == Emits::All { ids.len() - 1 } else { 0 };
        let accepted = inputs.iter().zip(&ids[..checked]).take_while(|(input, id)| input == id).count();
        let mut chosen = Chosen { accepted: accepted as u32, ..Chosen::default() };
        let mut logits = logits.into_iter();
        for (index, &id) in (0..).zip(&ids[..=accepted]) {
            let (token, failed) = (row.token + index, id == NOT_FINITE);
            // Rows that run late for a sequence that failed need an input, and any will do.
            sequence.learn(first + index + 1, if failed { 0 } else { id });
            let logits = logits.next();
            if row.emits == Emits::Draft || sequence.ended {
                continue;
            }
            sequence.ended = failed || may_end && sequence.ends_with(token, id, &self.config.end_tokens);
            if !failed {
                self.transcripts.push(row.request, token, OutputToken { token: id, depth: row.depth, logits });
                chosen.said += 1;
            }
            if sequence.ended {
                return Ok(Chosen { accepted: index, finished: true, failed, ..chosen });
            }
        }
        Ok(chosen)
    }
}

/// Shows a gate what the loop at `depth` gave.
fn observe(gate: Gate, memory: &mut GateMemory, depth: Depth, [first, second]: [f32; 2]) {
    let signal = match gate.signal {
        Signal::Hazard | Signal::Distance | Signal::Entropy | Signal::Kl | Signal::Argmax => first,
        Signal::NextHazard => {
            // Nothing predicts the first loop's hazard, which is the released gate's.
            if depth == Depth::FIRST {
                gate.survive(memory, first);
            }
            second
        }
    };
    gate.observe(memory, depth, signal);
}

impl<B: Backend> Executor for Live<B> {
    type Error = LiveError<B::Error>;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        let request = submission.arrival.request;
        if self.sequences.contains_key(&request.id) {
            return Err(Reject::Duplicate(request.id));
        }
        check(submission, self.backend.vocab())?;
        let sampling = match submission.sampling {
            Some(sampling) => sampling,
            None => Sampling { seed: request_seed(self.config.sampling.seed, request.id), ..self.config.sampling },
        };
        sampling.check().map_err(Reject::Sampling)?;
        let decider = self.exits.decider(submission.exit)?;
        let mut sequence = Sequence::new(submission, sampling, decider);
        if let (None, Some(pieces)) = (&submission.prompt, &submission.pieces) {
            let made_up = (self.config.prompt_seed, self.backend.vocab());
            let prompt = prompt_of_pieces(made_up, &request, pieces, &self.transcripts)?;
            sequence.prompt = Some(prompt.into());
        }
        self.sequences.insert(request.id, sequence);
        Ok(())
    }

    fn forget(&mut self, request: RequestId) {
        self.sequences.remove(&request);
        self.backend.forget(request);
        if !self.config.keep_transcripts {
            self.transcripts.remove(request);
        }
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Self::Error> {
        for edit in &batch.edits {
            if let TableEdit::Admit(_, request) = edit {
                let sequence =
                    self.sequences.get_mut(&request.id).expect("a request is submitted before it is admitted");
                if sequence.admit(request, self.config.prompt_seed, self.backend.vocab()) {
                    self.transcripts.begin(request.id, sequence.ids());
                }
            }
        }
        if self.needs_ids(&batch) {
            self.drain(clock)?;
        }
        for row in &batch.rows {
            let sequence = self.sequences.get_mut(&row.request).expect("a request is submitted before it runs");
            sequence.epoch = row.epoch;
        }
        let work = self.translator.work(&batch, &self.sequences);
        if batch.stage == Stage::Prefill {
            for row in &batch.rows {
                if let Some(sequence) = self.sequences.get_mut(&row.request) {
                    sequence.prefilled = sequence.prefilled.max(row.span.end());
                }
            }
        }
        self.backend.launch(work, clock).map_err(LiveError::Device)?;
        self.in_flight.push_back(Flight::Launched(batch));
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Self::Error> {
        match self.in_flight.pop_front().expect("a batch was launched before it is waited for") {
            Flight::Done(outcome) => Ok(outcome),
            Flight::Launched(batch) => {
                let ran = self.backend.wait(clock).map_err(LiveError::Device)?;
                self.outcome(batch, ran)
            }
        }
    }
}
