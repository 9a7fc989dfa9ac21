//! A model with one broken token: whoever reads it fails, and nobody else.

use std::ops::ControlFlow;

use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::VirtualClock;
use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::LiveConfig;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::live::weights::tensor::Tensor;
use engine::metrics::Recorder;
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Finish, Mode, Pressure, Scheduler};
use engine::submission::{Ends, Logprobs, Submission};
use engine::units::Nanos;

use crate::serve::{OVERLAPS, Run, full_depth, model};
use crate::stream::{End, stream_as};

const MODEL: &str = "tiny-ouro";

/// The run's weights, but a token's embedding is not a number, or too large.
fn broken(weights: &Weights, token: u32, value: f32) -> Weights {
    let name = "model.embed_tokens.weight";
    let table = weights.tensor(name);
    let hidden = table.shape()[1];
    let mut values = table.to_bf16().into_owned();
    values[token as usize * hidden..][..hidden].fill(bf16::from_f32(value));
    let tensors = weights.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone()));
    let tensors = tensors.chain([(name.to_owned(), Tensor::from_bf16(&[table.shape()[0], hidden], values))]);
    Weights::from_tensors(tensors.collect(), &model(MODEL)).unwrap()
}

/// Counts a run.
struct Recording(Recorder);
impl Observer for Recording {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.0.arrived(arrival, now, refused);
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.0.step(step);
        ControlFlow::Continue(())
    }
}

/// Nothing but its length or a failure ends a request.
fn ask(arrival: Arrival) -> Submission {
    let ends = Some(Ends { tokens: [].into(), min_tokens: 0 });
    Submission { ends, logprobs: Some(Logprobs { top: 2, prompt: true }), ..arrival.into() }
}

#[test]
fn whoever_reads_a_broken_token_fails_alone() {
    let whole = Run { finish: Finish::Eos, ..Run::of(MODEL, Layout::DepthIndexed, full_depth(MODEL)) };
    let whole = whole.with_long_outputs();
    let healthy = stream_as(&whole, whole.live(), ask).transcripts;
    // What one request says in the middle of its output, and another in its prompt.
    let said = healthy.get(RequestId(9)).output[4];
    let read = healthy.get(RequestId(4)).prompt[13];
    for (token, value) in [(said, f32::NAN), (read, f32::NAN), (said, f32::INFINITY)] {
        let weights = broken(&whole.weights, token, value);
        // Tokens that a request gets before it has read the broken one.
        let length = |request: RequestId| {
            let said = healthy.get(request);
            match said.prompt.contains(&token) {
                true => 0,
                false => said.output.iter().position(|&id| id == token).map_or(said.output.len(), |at| at + 1),
            }
        };
        for overlap in OVERLAPS {
            for mode in [Mode::Refill { min_coda_batch: 1 }, Mode::NoRefill, Mode::ContinuousBatching] {
                let run = Run { overlap, mode, max_num_batched_tokens: 11, weights: weights.clone(), ..whole.clone() };
                let tight = [Pressure::Recompute, Pressure::Offload].map(|pressure| run.tight(pressure));
                for run in [run].into_iter().chain(tight) {
                    let clients = stream_as(&run, run.live(), ask).clients;
                    let (mut failed, mut fine) = (0, 0);
                    for (request, answer) in &clients.answers {
                        let what = format!(
                            "{token} is {value}, {overlap:?}, {mode:?}, {:?}: request {}",
                            run.pressure, request.0
                        );
                        let output = &healthy.get(*request).output;
                        assert_eq!(answer.output, output[..length(*request)], "{what}");
                        let fails = answer.output.len() < output.len();
                        assert_eq!(answer.end, Some(if fails { End::Failed } else { End::Length }), "{what}");
                        assert!(answer.scores.iter().all(|scored| scored.logprob.is_finite()), "{what}");
                        failed += u32::from(fails);
                        fine += u32::from(!fails);
                    }
                    assert!(failed > 0 && fine > 3, "{failed} failed, {fine} did not");
                }
            }
        }
    }
}

#[test]
fn where_lengths_are_replayed_a_broken_model_ends_the_run() {
    let run = Run::of(MODEL, Layout::DepthIndexed, full_depth(MODEL));
    let said = run.serve().output(9)[2];
    let weights = broken(&run.weights, said, f32::NAN);
    let error = Run { weights, ..run }.try_serve::<bf16>().err().unwrap();
    assert!(error.to_string().ends_with("the logits are not finite"), "{error}");
}

#[test]
fn a_failure_is_counted_and_moves_no_other_figure() {
    let run = Run { finish: Finish::Eos, ..Run::of(MODEL, Layout::DepthIndexed, full_depth(MODEL)) };
    let healthy = stream_as(&run, run.live(), ask).transcripts;
    let said = healthy.get(RequestId(9)).output[4];
    let weights = broken(&run.weights, said, f32::NAN);
    let config = LiveConfig { keep_transcripts: false, ..run.live() };
    let mut scheduler = Scheduler::new(config.scheduler).unwrap();
    let mut executor: CpuExecutor =
        CpuExecutor::new(&model(MODEL), &weights, config, CpuOptions { threads: 1, ..CpuOptions::default() }).unwrap();
    let mut recording = Recording(Recorder::new(run.max_num_seqs, None));
    let mut inbox = Replay::new(run.arrivals().into_iter().map(ask));
    event_loop::run(&mut scheduler, &mut executor, &mut VirtualClock::default(), &mut inbox, &mut recording).unwrap();
    let metrics = recording.0.metrics();
    let (mut failed, mut tokens) = (0, 0);
    for (_, transcript) in healthy.iter() {
        let output = &transcript.output;
        let at = output.iter().position(|&id| id == said).map_or(output.len(), |at| at + 1);
        let length = if transcript.prompt.contains(&said) { 0 } else { at };
        tokens += length as u64;
        failed += u64::from(length < output.len());
    }
    let counts = metrics.requests;
    assert!(failed > 0, "the token was meant to be read");
    assert_eq!((counts.failed, counts.finished), (failed, counts.arrived - failed));
    assert_eq!(metrics.output_tokens, tokens);
    assert_eq!(executor.known_requests(), 0, "nothing is left of them");
}
