//! What a request asks for itself: its prompt, how its tokens are chosen, when they leave. No schedule shows in it.

use engine::executor::{Executor, Reject};
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::live::{LiveConfig, LiveExits, Transcripts};
use engine::models::gate::GateSpec;
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Finish, Mode, Overlap};
use engine::submission::{ExitRule, Sampling, Submission};
use engine::units::Depth;

use crate::serve::{MODELS, Run, early, model};

/// Serves a run's requests as `ask` changes them.
fn serve(run: &Run, config: LiveConfig, ask: impl Fn(Arrival) -> Submission) -> Transcripts {
    let mut executor = executor(run, config);
    let mut log = crate::serve::Log::default();
    run.serve_on(&mut executor, ask, &mut log).unwrap();
    executor.transcripts().clone()
}

fn executor(run: &Run, config: LiveConfig) -> CpuExecutor {
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    CpuExecutor::<bf16>::new(&model(run.model), &Weights::random(&model(run.model), 5), config, options).unwrap()
}

fn gate(threshold: f32) -> LiveExits {
    LiveExits::Gate(GateSpec { lookahead: true, ..GateSpec::at(threshold) })
}

#[test]
fn draws_depend_on_what_the_request_asks_and_on_no_schedule() {
    let ask = |arrival: Arrival| {
        let seed = u64::from(arrival.request.id.0);
        let sampling = [
            Some(Sampling { temperature: 0.8, seed, ..Sampling::GREEDY }),
            Some(Sampling { temperature: 1.2, top_k: 20, top_p: 0.9, seed }),
            None,
        ][seed as usize % 3];
        Submission { sampling, ..arrival.into() }
    };
    for name in MODELS {
        let run = Run::of(name, Layout::LastExited, early(name));
        let drawn = serve(&run, run.live(), ask);
        let alone = Run { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() };
        assert_eq!(drawn, serve(&alone, alone.live(), ask), "{name}: another schedule");
        let greedy = serve(&run, run.live(), Submission::from);
        for (request, transcript) in drawn.iter() {
            let same = transcript.output == greedy.get(request).output;
            assert!(same || request.0 % 3 < 2, "{name}: request {} asked for nothing special", request.0);
        }
        assert_ne!(drawn, greedy, "{name}: temperatures were expected to show");
        // The run's own temperature draws for every request differently.
        let warm = Sampling { temperature: 1.0, seed: 3, ..Sampling::GREEDY };
        let config = LiveConfig { sampling: warm, ..run.live() };
        let by_run = serve(&run, config, Submission::from);
        let by_request = serve(&run, run.live(), |arrival| Submission { sampling: Some(warm), ..arrival.into() });
        assert_ne!(by_run, by_request, "{name}: where the run has the seed, a draw depends on the request too");
    }
}

#[test]
fn a_requests_exits_are_those_of_a_run_that_says_the_same() {
    for (name, low, high) in [("tiny-ouro", 0.2, 0.5), ("tiny-huginn", 0.35, 0.2)] {
        let run = Run { overlap: Overlap::Lookahead, ..Run::of(name, Layout::LastExited, gate(high)) };
        let other = Run { exits: gate(low), ..run.clone() };
        let asked = |threshold, min_depth| {
            move |arrival: Arrival| {
                let exit = Some(ExitRule::Threshold { threshold, min_depth });
                Submission { exit, ..arrival.into() }
            }
        };
        let expected = serve(&other, other.live(), Submission::from);
        assert_eq!(serve(&run, run.live(), asked(low, None)), expected, "{name}");
        assert_ne!(serve(&run, run.live(), Submission::from), expected, "{name}: thresholds were expected to show");
        let r_max = model(name).r_max;
        let deep = serve(&run, run.live(), |arrival| Submission { exit: Some(ExitRule::FullDepth), ..arrival.into() });
        assert!(deep.iter().all(|(_, transcript)| transcript.depths.iter().all(|&depth| depth == r_max)), "{name}");
        let late = serve(&run, run.live(), asked(low, Some(r_max)));
        assert_eq!(late, deep, "{name}: a minimum of r_max is full depth");
    }
}

#[test]
fn any_of_several_tokens_ends_a_sequence() {
    let run = Run { finish: Finish::Eos, ..Run::of("tiny-ouro", Layout::LastExited, early("tiny-ouro")) };
    let whole = serve(&run, run.live(), Submission::from);
    let ends = vec![whole.get(RequestId(4)).output[2], whole.get(RequestId(0)).output[1]];
    let config = LiveConfig { end_tokens: ends.clone(), ..run.live() };
    let cut = serve(&run, config, Submission::from);
    assert!(cut.get(RequestId(4)).output.len() <= 3 && cut.get(RequestId(0)).output.len() <= 2);
    for (request, transcript) in cut.iter() {
        let (last, before) = transcript.output.split_last().unwrap();
        assert!(before.iter().all(|id| !ends.contains(id)), "request {}", request.0);
        let limit = run.workload[request.0 as usize].1 + crate::serve::EOS_MARGIN;
        assert!(ends.contains(last) || transcript.output.len() as u32 == limit, "request {}", request.0);
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_change() {
    let run = Run::of("tiny-ouro", Layout::LastExited, early("tiny-ouro"));
    let mut executor = executor(&run, run.live());
    let arrival = run.arrivals()[0];
    let vocab = model("tiny-ouro").vocab as u32;
    let mut refusal = |submission: Submission| executor.submit(&submission).unwrap_err();
    let prompt = |ids: Vec<u32>| Submission { prompt: Some(ids.into()), ..arrival.into() };
    assert_eq!(refusal(prompt(vec![1; 3])), Reject::PromptLength { expected: 7, found: 3 });
    assert_eq!(refusal(prompt(vec![vocab; 7])), Reject::Vocabulary { token: vocab, vocab });
    let sampling = |temperature, top_p| Submission {
        sampling: Some(Sampling { temperature, top_p, ..Sampling::GREEDY }),
        ..arrival.into()
    };
    assert_eq!(refusal(sampling(f32::NAN, 1.0)).to_string(), "temperature must be zero or more, got NaN");
    assert_eq!(refusal(sampling(1.0, 0.0)).to_string(), "top_p must be above 0 and at most 1, got 0");
    let exit = Some(ExitRule::Threshold { threshold: 0.5, min_depth: Some(Depth(2)) });
    let said = refusal(Submission { exit, ..arrival.into() }).to_string();
    assert!(said.contains("run with a gate"), "{said}");
}
