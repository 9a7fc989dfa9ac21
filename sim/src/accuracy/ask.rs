//! Questions through the scheduler and a live executor, as requests that all come at once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use engine::batch::{Scored, TokenAt};
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::Clock;
use engine::inbox::Replay;
use engine::live::wall_clock::WallClock;
use engine::live::{Backend, Live};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::Scheduler;
use engine::submission::{ExitRule, Logprobs, Submission};
use engine::units::Nanos;

/// A question in token ids.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// At least one.
    pub(super) prompt: Arc<[u32]>,
    /// The right answer with its end token; empty if there is no one right text.
    pub(super) reference: Vec<u32>,
    /// Output tokens at most.
    pub(super) max_tokens: u32,
}

/// What came of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// The tokens, an end token included.
    pub(super) tokens: Vec<u32>,
    /// Loops of each; the first token's are the prompt's.
    pub(super) depths: Vec<u8>,
    /// Sum of -ln p of the reference's tokens up to the first that was not chosen, that one included, and how many they are.
    /// A token outside the most probable [`Logprobs::TOP_MAX`] counts as the least of them, which is a lower bound.
    pub(super) nats: f64,
    pub(super) scored: u32,
}

/// Answers the questions, greedily, and says how many seconds that took.
///
/// # Errors
/// A question was refused, or the device failed.
pub(super) fn ask<B: Backend>(
    executor: &mut Live<B>,
    full_depth: bool,
    asked: &[Asked],
) -> Result<(Vec<Answer>, f64), String> {
    let submissions = (0..).zip(asked).map(|(id, asked)| {
        let request = Request {
            id: RequestId(id),
            arrival: Nanos::ZERO,
            prompt_tokens: asked.prompt.len() as u32,
            max_output_tokens: asked.max_tokens,
        };
        Submission {
            prompt: Some(asked.prompt.clone()),
            exit: full_depth.then_some(ExitRule::FullDepth),
            logprobs: (!asked.reference.is_empty()).then_some(Logprobs { top: Logprobs::TOP_MAX, prompt: false }),
            ..Submission::from(Arrival { request, output_tokens: asked.max_tokens, cancel_after: None })
        }
    });
    let mut scheduler = Scheduler::new(executor.config().scheduler).map_err(|error| error.to_string())?;
    let mut heard = Heard { asked, nats: BTreeMap::new(), refused: None };
    let mut clock = WallClock::start();
    let mut inbox = Replay::new(submissions);
    event_loop::run(&mut scheduler, executor, &mut clock as &mut dyn Clock, &mut inbox, &mut heard)
        .map_err(|error| error.to_string())?;
    let elapsed_s = clock.now().0 as f64 / 1e9;
    if let Some((request, reason)) = heard.refused {
        return Err(format!("question {} of this part was refused: {reason}", request.0));
    }
    let answers = (0..asked.len() as u32).map(|id| {
        let transcript = executor.transcripts().get(RequestId(id));
        let (nats, scored, _) = heard.nats.get(&RequestId(id)).copied().unwrap_or_default();
        let depths = transcript.depths.iter().map(|depth| depth.0).collect();
        Answer { tokens: transcript.output.clone(), depths, nats, scored }
    });
    Ok((answers.collect(), elapsed_s))
}

/// What is learnt while the questions run.
struct Heard<'a> {
    asked: &'a [Asked],
    /// Nats so far, of how many tokens, and whether the answer has left the reference.
    nats: BTreeMap<RequestId, (f64, u32, bool)>,
    refused: Option<(RequestId, String)>,
}

impl Observer for Heard<'_> {
    fn arrived(&mut self, arrival: &Arrival, _: Nanos, refused: Option<&Refused>) {
        if let (None, Some(reason)) = (&self.refused, refused) {
            self.refused = Some((arrival.request.id, reason.to_string()));
        }
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        for scored in &step.outcome.scores {
            let TokenAt::Output(index) = scored.at else { continue };
            let (nats, count, has_left) = self.nats.entry(scored.request).or_default();
            let reference = &self.asked[scored.request.0 as usize].reference;
            // Only while all before was as in the reference is the model where the reference would have it.
            if let Some(&id) = reference.get(index as usize)
                && !*has_left
            {
                *nats -= f64::from(logprob(scored, id));
                *count += 1;
                *has_left = scored.id != id;
            }
        }
        ControlFlow::Continue(())
    }
}

/// ln p of a token, or of the least probable that was told.
fn logprob(scored: &Scored, id: u32) -> f32 {
    if scored.id == id {
        return scored.logprob;
    }
    let told = scored.top.iter().find(|(other, _)| *other == id).or_else(|| scored.top.last());
    told.map_or(f32::NEG_INFINITY, |told| told.1)
}
