//! Submissions that cannot be served: each is refused with what to change, and everything else goes on.

use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::LiveExits;
use engine::models::gate::GateSpec;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, Overlap};
use engine::submission::{Ends, ExitRule, Logprobs, Sampling, Submission};
use engine::units::{Depth, Nanos};

use crate::serve::Run;
use crate::stream::{End, stream, stream_as};

fn gate(threshold: f32) -> LiveExits {
    LiveExits::Gate(GateSpec { lookahead: true, ..GateSpec::at(threshold) })
}

fn of_size(prompt_tokens: u32, max_output_tokens: u32) -> Submission {
    let request = Request { id: RequestId(100), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens };
    Arrival { request, output_tokens: max_output_tokens, cancel_after: None }.into()
}

fn usual() -> Submission {
    of_size(5, 3)
}

fn numbered(id: u32) -> Submission {
    let mut submission = usual();
    submission.arrival.request.id = RequestId(id);
    submission
}

fn threshold(threshold: f32, min_depth: Option<u8>) -> Submission {
    let exit = Some(ExitRule::Threshold { threshold, min_depth: min_depth.map(Depth) });
    Submission { exit, ..usual() }
}

fn ends(tokens: &[u32], min_tokens: u32) -> Submission {
    Submission { ends: Some(Ends { tokens: tokens.into(), min_tokens }), ..usual() }
}

fn sampling(temperature: f32, top_p: f32) -> Submission {
    Submission { sampling: Some(Sampling { temperature, top_p, ..Sampling::GREEDY }), ..usual() }
}

fn prompt(ids: &[u32]) -> Submission {
    Submission { prompt: Some(ids.into()), ..usual() }
}

/// Serves one submission in the middle of a run, and gives why it was refused. Panics if that shows in the others.
fn refusal(run: &Run, submission: Submission) -> String {
    let mut submissions: Vec<Submission> = run.arrivals().into_iter().map(Submission::from).collect();
    submissions.insert(submissions.len() / 2, submission.clone());
    let served = stream(run, run.live(), &mut Replay::new(submissions.into_iter()));
    assert_eq!(served.transcripts, stream_as(run, run.live(), Submission::from).transcripts, "{submission:?}");
    assert!(served.clients.answers.values().all(|answer| answer.end.is_some()), "{submission:?}");
    served.clients.refused.get(&submission.arrival.request.id).unwrap_or_else(|| panic!("{submission:?}")).clone()
}

#[test]
fn a_submission_that_cannot_be_served_is_refused_alone() {
    let run =
        Run { finish: Finish::Eos, overlap: Overlap::Lookahead, ..Run::of("tiny-ouro", Layout::LastExited, gate(0.4)) };
    let top = |top| Submission { logprobs: Some(Logprobs { top, prompt: false }), ..usual() };
    let cases = [
        (of_size(0, 3), "prompt 0, output 3 tokens: both must be at least 1"),
        (of_size(5, 0), "prompt 5, output 0 tokens: both must be at least 1"),
        (of_size(5, u32::MAX), "exceed the context limit of 256 tokens"),
        (of_size(u32::MAX, u32::MAX), "exceed the context limit of 256 tokens"),
        (numbered(u32::MAX), "the one number that no request can have"),
        (prompt(&[1; 4]), "the prompt has 4 tokens, the request says 5"),
        (prompt(&[1, 2, 512, 3, 4]), "the prompt holds token 512, the vocabulary has 512"),
        (Submission { prompt: Some([].into()), ..of_size(0, 1) }, "both must be at least 1"),
        (threshold(f32::NAN, None), "the threshold must be a number, got NaN"),
        (threshold(f32::INFINITY, Some(2)), "the threshold must be a number, got inf"),
        (threshold(0.5, Some(0)), "the minimum depth must be between 1 and r_max = 4, got 0"),
        (threshold(0.5, Some(5)), "the minimum depth must be between 1 and r_max = 4, got 5"),
        (ends(&[3, 512], 0), "token 512 is to end it, the vocabulary has 512"),
        (ends(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1), "at most 8 end tokens can be held back, got 9"),
        (top(21), "the log-probabilities of at most 20 tokens can be told, got 21"),
        (sampling(-1.0, 1.0), "temperature must be zero or more, got -1"),
        (sampling(f32::INFINITY, 1.0), "temperature must be zero or more, got inf"),
        (sampling(1e-40, 1.0), "is too small to divide by: 0 takes the largest logit"),
        (sampling(1.0, f32::NAN), "top_p must be above 0 and at most 1, got NaN"),
    ];
    for (submission, expected) in cases {
        let said = refusal(&run, submission);
        assert!(said.contains(expected), "{said:?} lacks {expected:?}");
    }
}

#[test]
fn a_number_that_is_being_served_is_refused_and_its_owner_goes_on() {
    let run = Run { finish: Finish::Eos, ..Run::of("tiny-ouro", Layout::LastExited, gate(0.4)) };
    let twice = [3, 3].map(numbered);
    let served = stream(&run, run.live(), &mut Replay::new(twice.into_iter()));
    let said = &served.clients.refused[&RequestId(3)];
    assert!(said.contains("request 3 is being served already"), "{said}");
    assert_eq!(served.clients.answers[&RequestId(3)].end, Some(End::Token));
}

#[test]
fn an_exit_rule_below_what_the_run_allows_is_refused_and_the_next_deeper_one_is_served() {
    let run = Run { overlap: Overlap::Lookahead, ..Run::of("tiny-ouro", Layout::LastExited, gate(1.0)) };
    let deep = Run { r_min: Depth(3), ..run.clone() };
    let said = refusal(&deep, threshold(0.0, None));
    let expected = "its tokens could leave after loop 2, but this run lets none leave before r_min = 3: ask for a \
                    minimum depth of at least 2";
    assert_eq!(said, expected);
    // Fires after the second loop and leaves after the third, since the gate looks ahead.
    let ask = |arrival: Arrival| Submission { arrival, ..threshold(0.0, Some(2)) };
    let served = stream_as(&deep, deep.live(), ask);
    let depths = served.clients.answers.values().flat_map(|answer| &answer.depths[1..]);
    assert!(
        depths.clone().count() > 20 && depths.clone().all(|&depth| depth == Depth(3)),
        "{:?}",
        depths.collect::<Vec<_>>()
    );

    let indexed = Run { layout: Layout::DepthIndexed, ..run };
    let said = refusal(&indexed, threshold(0.5, None));
    assert!(said.contains("depth_indexed accepts full-depth exits only (r_max = 4)"), "{said}");
    let full = |arrival: Arrival| Submission { exit: Some(ExitRule::FullDepth), ..arrival.into() };
    let served = stream_as(&indexed, indexed.live(), full);
    assert!(served.clients.answers.values().all(|answer| answer.end == Some(End::Length)));
}
