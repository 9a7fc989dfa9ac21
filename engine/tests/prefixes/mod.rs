//! Requests that begin alike, in two turns, for the tests of the prefix cache on every device.

use std::ops::ControlFlow;

use engine::batch::Batch;
use engine::content::{PageKey, Piece, Text, whole_prompt};
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::VirtualClock;
use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::{Backend, Live, Transcripts};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{CachedPages, PrefixCache, Reuse, Scheduler, SchedulerConfig, Settled};
use engine::submission::{Sampling, Submission};
use engine::units::Nanos;

/// Requests of each turn.
pub(crate) const TURN: u32 = 128;

/// What serving both turns gave.
pub(crate) struct Turns {
    pub(crate) transcripts: Transcripts,
    /// By request, the tokens of its prompt that were found.
    pub(crate) found: Vec<u32>,
    pub(crate) reuse: Reuse,
    /// What ran, in order, and what was settled behind it.
    pub(crate) steps: Vec<(Batch, Settled)>,
}

/// A cache that publishes prompts.
pub(crate) fn cache(pages: CachedPages) -> Option<PrefixCache> {
    Some(PrefixCache { pages, root: PageKey::root("tiny", Layout::LastExited, Some(6)) })
}

/// A request, and how its tokens are chosen: one in three is drawn.
fn ask(id: u32, prompt_tokens: u32, pieces: Vec<Piece>) -> Submission {
    let max_output_tokens = 2 + id % 7;
    let request = Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens };
    let sampling = Sampling { temperature: 0.9, seed: id.into(), ..Sampling::GREEDY };
    Submission {
        pieces: Some(pieces.into()),
        sampling: id.is_multiple_of(3).then_some(sampling),
        ..Arrival { request, output_tokens: max_output_tokens, cancel_after: None }.into()
    }
}

/// First turns: prompts that are repeated whole, that begin alike, that are longer than another, and that nobody else has.
fn first_turns() -> Vec<Submission> {
    let turn = |id: u32| {
        let (group, own) = (id / 4 % 5, 1 + id * 7 % 23);
        let whole = 19 + group * 9;
        let text = |count| vec![Piece::start(Text::Written(group.into()), count)];
        match id % 4 {
            0 => ask(id, whole, text(whole)),
            1 => ask(id, 13 + own, text(13)),
            2 => ask(id, whole + own, text(whole)),
            _ => ask(id, own + 5, Vec::new()),
        }
    };
    (0..TURN).map(turn).collect()
}

/// Second turns: all that was said, and something new.
fn second_turns(first: &[Submission]) -> Vec<Submission> {
    let turn = |before: &Submission| {
        let asked = before.arrival.request;
        let pieces = before.pieces.as_deref().unwrap_or_default();
        let mut history: Vec<Piece> = whole_prompt(pieces, asked.id, asked.prompt_tokens).collect();
        history.push(Piece::start(Text::Output(asked.id), asked.max_output_tokens));
        let new = 1 + asked.id.0 * 5 % 11;
        ask(TURN + asked.id.0, asked.prompt_tokens + asked.max_output_tokens + new, history)
    };
    first.iter().map(turn).collect()
}

/// Serves both turns, the second when the first is over.
pub(crate) fn serve<B: Backend>(live: &mut Live<B>, config: SchedulerConfig) -> Turns {
    let mut scheduler = Scheduler::new(config).unwrap();
    let mut log = Found { found: vec![0; 2 * TURN as usize], reuse: Reuse::default(), steps: Vec::new() };
    let first = first_turns();
    let second = second_turns(&first);
    for turn in [first, second] {
        let inbox = &mut Replay::new(turn.into_iter());
        event_loop::run(&mut scheduler, live, &mut VirtualClock::default(), inbox, &mut log)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    scheduler.check_pool();
    Turns { transcripts: live.transcripts().clone(), found: log.found, reuse: log.reuse, steps: log.steps }
}

/// Serves a prompt of 1,200 tokens, and then five that begin with it, at once.
pub(crate) fn serve_long<B: Backend>(live: &mut Live<B>, config: SchedulerConfig) -> (Transcripts, Reuse) {
    let mut scheduler = Scheduler::new(config).unwrap();
    let mut log = Found { found: vec![0; 6], reuse: Reuse::default(), steps: Vec::new() };
    let prompt = |id: u32| {
        let Submission { arrival, pieces, .. } = ask(id, 1201 + id, vec![Piece::start(Text::Written(0), 1200)]);
        Submission { pieces, ..arrival.into() }
    };
    for ids in [0..1, 1..6] {
        let inbox = &mut Replay::new(ids.map(prompt));
        event_loop::run(&mut scheduler, live, &mut VirtualClock::default(), inbox, &mut log)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    (live.transcripts().clone(), log.reuse)
}

/// Keeps what was found.
struct Found {
    found: Vec<u32>,
    reuse: Reuse,
    steps: Vec<(Batch, Settled)>,
}

impl Observer for Found {
    fn arrived(&mut self, _: &Arrival, _: Nanos, refused: Option<&Refused>) {
        assert!(refused.is_none(), "{refused:?}");
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let batch = &step.outcome.batch;
        for (slot, request) in batch.admitted() {
            let first = batch.rows.iter().find(|row| row.slot == slot).expect("who is admitted runs");
            self.found[request.id.0 as usize] = first.span.first;
        }
        self.steps.push((batch.clone(), step.settled));
        self.reuse.prompt_tokens += step.settled.reuse.prompt_tokens;
        self.reuse.hit_tokens += step.settled.reuse.hit_tokens;
        self.reuse.generated_hit_tokens += step.settled.reuse.generated_hit_tokens;
        self.reuse.evicted_pages += step.settled.reuse.evicted_pages;
        ControlFlow::Continue(())
    }
}

impl Turns {
    /// Panics unless every token, exit depth and logit is the same, bit for bit.
    pub(crate) fn assert_equals(&self, other: &Self, what: &str) {
        assert_eq!(self.transcripts.iter().count(), 2 * TURN as usize, "{what}");
        for ((request, a), (_, b)) in self.transcripts.iter().zip(other.transcripts.iter()) {
            assert_eq!(a.prompt, b.prompt, "{what}: prompt of request {}", request.0);
            assert_eq!(a.output, b.output, "{what}: tokens of request {}", request.0);
            assert_eq!(a.depths, b.depths, "{what}: exit depths of request {}", request.0);
            let bits = |logits: &[Vec<f32>]| logits.iter().flatten().map(|logit| logit.to_bits()).collect::<Vec<_>>();
            assert!(
                !a.logits.is_empty() && bits(&a.logits) == bits(&b.logits),
                "{what}: logits of request {}",
                request.0
            );
        }
    }

    /// Panics unless prompts were found whole, in part and with an answer in them, in some requests each.
    pub(crate) fn assert_found(&self, what: &str) {
        let mut kinds = [0; 3];
        for (request, transcript) in self.transcripts.iter() {
            let (found, prompt) = (self.found[request.0 as usize], transcript.prompt.len() as u32);
            let kind = if request.0 >= TURN { 2 } else { usize::from((prompt - 1) / 4 * 4 != found) };
            kinds[kind] += u32::from(found > 0);
        }
        assert!(kinds.iter().all(|&count| count >= 10), "{what}: {kinds:?} prompts were found whole, in part, in turn");
    }
}
