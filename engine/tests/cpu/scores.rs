//! Log-probabilities: each asked for is told once, and is what the logits say, whatever the schedule.

use std::sync::Arc;

use engine::batch::{Scored, TokenAt};
use engine::layout::Layout;
use engine::live::{LiveConfig, Score, ScoredId};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, Mode, Pressure};
use engine::submission::{Ends, Logprobs, Sampling, Submission};
use engine::units::Nanos;

use crate::serve::{MODELS, OVERLAPS, Run, full_depth};
use crate::stream::{Streamed, stream, stream_as};

/// Some ask for everything, some for their output, some for nothing.
fn asked(request: RequestId) -> Option<Logprobs> {
    match request.0 % 3 {
        0 => Some(Logprobs { top: 3, prompt: true }),
        1 => Some(Logprobs { top: 0, prompt: false }),
        _ => None,
    }
}

fn ask(arrival: Arrival) -> Submission {
    let sampling = arrival.request.id.0.is_multiple_of(2).then_some(Sampling { temperature: 0.9, ..Sampling::GREEDY });
    Submission { logprobs: asked(arrival.request.id), sampling, ..arrival.into() }
}

/// What a token's logits say of it.
fn by_hand(request: RequestId, at: TokenAt, id: u32, top: u32, logits: &[f32]) -> Scored {
    Score { request, at, lane: 0, id: ScoredId::Given(id), top }.of(logits, &[]).unwrap()
}

/// Panics unless the outputs' scores are what the kept logits say, and the prompts' are those of `prompts`.
fn assert_told(served: &Streamed, prompts: &Streamed, what: &str) {
    for (request, answer) in &served.clients.answers {
        let transcript = served.transcripts.get(*request);
        let what = format!("{what}: request {}", request.0);
        let Some(Logprobs { top, prompt }) = asked(*request) else {
            assert_eq!(answer.scores, [], "{what}");
            continue;
        };
        let (of_prompt, of_output): (Vec<_>, Vec<_>) =
            answer.scores.iter().cloned().partition(|scored| matches!(scored.at, TokenAt::Prompt(_)));
        let outputs = (0..).zip(&transcript.output).zip(&transcript.logits);
        let expected: Vec<Scored> =
            outputs.map(|((token, &id), logits)| by_hand(*request, TokenAt::Output(token), id, top, logits)).collect();
        assert_eq!(of_output, expected, "{what}: its output");
        let expected = if prompt { 1..transcript.prompt.len() } else { 1..1 };
        let told = of_prompt.iter().map(|scored| (scored.at, scored.id));
        let expected: Vec<_> = expected.map(|at| (TokenAt::Prompt(at as u32), transcript.prompt[at])).collect();
        assert_eq!(told.collect::<Vec<_>>(), expected, "{what}: its prompt");
        let reference = prompts.clients.answers[request].scores.iter();
        let reference: Vec<_> = reference.filter(|scored| matches!(scored.at, TokenAt::Prompt(_))).cloned().collect();
        assert_eq!(of_prompt, reference, "{what}: its prompt, elsewhere");
    }
}

#[test]
fn every_score_is_told_once_and_by_its_logits_under_any_schedule() {
    for name in MODELS {
        // A plane for every loop and full depth: neither chunks nor recomputing change a bit.
        let run = Run::of(name, Layout::DepthIndexed, full_depth(name)).with_long_outputs();
        let serve = |run: &Run| stream_as(run, LiveConfig { keep_logits: true, ..run.live() }, ask);
        let plain = serve(&Run { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() });
        assert_told(&plain, &plain, name);
        for overlap in OVERLAPS {
            // The chunks are smaller than prompts, and no multiple of anything.
            let chunked = Run { overlap, max_num_batched_tokens: 7, ..run.clone() };
            let tight = [Pressure::Recompute, Pressure::Offload].map(|pressure| chunked.tight(pressure));
            for run in [chunked].into_iter().chain(tight) {
                let served = serve(&run);
                let what = format!("{name}, {overlap:?}, {:?}", run.pressure);
                assert_eq!(run.pressure == Pressure::Reserve, served.preemptions <= 2, "{what}");
                assert_told(&served, &plain, &what);
                assert_eq!(served.transcripts, plain.transcripts, "{what}");
            }
            let forward = Run { overlap, mode: Mode::ContinuousBatching, ..run.clone() };
            assert_told(&serve(&forward), &plain, &format!("{name}, {overlap:?}, whole steps"));
        }
    }
}

#[test]
fn a_prompts_scores_are_those_of_outputs_behind_its_beginnings() {
    for name in MODELS {
        let run = Run::of(name, Layout::DepthIndexed, full_depth(name));
        let prompt: Arc<[u32]> = (0..20).map(|i| (i * i * 37 + 11) % 512).collect();
        let submission = |id: u32, length: usize, logprobs| {
            let request =
                Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens: length as u32, max_output_tokens: 1 };
            let arrival = Arrival { request, output_tokens: 1, cancel_after: None };
            Submission { prompt: Some(prompt[..length].into()), logprobs, ..arrival.into() }
        };
        let beginnings = (1..prompt.len()).map(|length| submission(length as u32, length, None));
        let whole = submission(0, prompt.len(), Some(Logprobs { top: 20, prompt: true }));
        let submissions: Vec<Submission> = std::iter::once(whole).chain(beginnings).collect();
        let config = LiveConfig { keep_logits: true, ..run.live() };
        let served = stream(&run, config, &mut engine::inbox::Replay::new(submissions.into_iter()));
        let told = &served.clients.answers[&RequestId(0)].scores;
        assert_eq!(told.len(), prompt.len(), "all tokens but the first, and one of the output");
        for (position, &id) in prompt.iter().enumerate().skip(1) {
            let logits = &served.transcripts.get(RequestId(position as u32)).logits[0];
            let expected = by_hand(RequestId(0), TokenAt::Prompt(position as u32), id, 20, logits);
            assert_eq!(told[position - 1], expected, "{name}: position {position}");
        }
    }
}

#[test]
fn scores_are_of_the_raw_logits_and_none_is_told_behind_an_end() {
    let run = Run { finish: Finish::Eos, ..Run::of("tiny-ouro", Layout::DepthIndexed, full_depth("tiny-ouro")) };
    let whole = stream_as(&run, run.live(), Submission::from);
    // Whole steps run late rows up to their draws.
    let modes = [Mode::Refill { min_coda_batch: 1 }, Mode::ContinuousBatching];
    for (overlap, mode) in OVERLAPS.into_iter().flat_map(|overlap| modes.map(|mode| (overlap, mode))) {
        let run = Run { overlap, mode, ..run.clone() };
        let what = |request: &RequestId| format!("{overlap:?}, {mode:?}: request {}", request.0);
        // The most probable token is held back at first, and ends the request behind that.
        let ask = |arrival: Arrival| {
            let tokens = [whole.transcripts.get(arrival.request.id).output[0]].into();
            let ends = Some(Ends { tokens, min_tokens: 1 });
            Submission { ends, logprobs: Some(Logprobs { top: 1, prompt: false }), ..arrival.into() }
        };
        let served = stream_as(&run, run.live(), ask);
        for (request, answer) in &served.clients.answers {
            let expected = &whole.transcripts.get(*request).output[0];
            assert_eq!(answer.scores.len(), answer.output.len(), "{}", what(request));
            let first = &answer.scores[0];
            assert_eq!(first.top[0].0, *expected, "{}", what(request));
            assert!(first.id != *expected && first.logprob <= first.top[0].1, "{}", what(request));
        }
    }
}
