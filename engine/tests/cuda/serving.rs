//! The real scheduler over the CUDA executor: what must not change a token, and what the gates say.

use std::ops::ControlFlow;

use engine::architecture::Architecture;
use engine::batch::{Scored, TokenAt};
use engine::event_loop::{Observer, Refused, Step};
use engine::layout::Layout;
use engine::live::cpu::bf16;
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::weights::Weights;
use engine::live::weights::tensor::Tensor;
use engine::live::{LiveConfig, LiveExits, Transcripts, choose};
use engine::models::criterion::Criterion;
use engine::models::gate::GateSpec;
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Finish, Mode, Overlap, Pressure};
use engine::submission::{Ends, Logprobs, Sampling, Submission};
use engine::units::Nanos;

use crate::harness::{MODELS, OVERLAPS, Run, assert_same, decoded_depths, early, model};

/// Prompt and output tokens of each request; more than one attention split for some.
const WORKLOAD: [(u32, u32); 12] =
    [(7, 5), (123, 13), (1, 7), (12, 1), (30, 6), (4, 8), (16, 4), (300, 9), (2, 6), (18, 7), (5, 3), (126, 5)];

/// Keeps the scores.
#[derive(Default)]
struct Told(Vec<Scored>);

impl Observer for Told {
    fn arrived(&mut self, _: &Arrival, _: Nanos, refused: Option<&Refused>) {
        assert!(refused.is_none(), "{refused:?}");
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.0.extend_from_slice(&step.outcome.scores);
        ControlFlow::Continue(())
    }
}

/// Under lookahead, with room for every request.
fn run_of(model: &'static str) -> Run {
    Run {
        overlap: Overlap::Lookahead,
        max_context_tokens: 512,
        blocks: 8192,
        workload: WORKLOAD.to_vec(),
        ..Run::of(model, Layout::LastExited, early(model))
    }
}

/// The CPU's workload, whose outputs outgrow a pool in which every prompt fits.
fn tight(model: &'static str, pressure: Pressure) -> Run {
    let roomy = Run { overlap: Overlap::Lookahead, ..Run::of(model, Layout::LastExited, early(model)) };
    roomy.with_long_outputs().tight(pressure)
}

impl Run {
    fn executor(&self) -> CudaExecutor {
        self.executor_of(self.live())
    }

    fn executor_of(&self, config: LiveConfig) -> CudaExecutor {
        let options = CudaOptions { batch_invariant: true, ..CudaOptions::default() };
        let device = CudaDevice::open(0).unwrap();
        let model = CudaModel::new(&device, &model(self.model), WeightSource::Loaded(&self.weights)).unwrap();
        CudaExecutor::new(&model, config, options).unwrap()
    }

    fn run(&self) -> (Transcripts, u64) {
        self.run_on(&mut self.executor())
    }

    fn run_on(&self, executor: &mut CudaExecutor) -> (Transcripts, u64) {
        let preemptions = self.serve_on(executor, Submission::from, &mut Told::default()).unwrap();
        assert_eq!(executor.stats().eager_fallbacks, 0, "every decode step is a graph");
        (executor.transcripts().clone(), preemptions)
    }

    /// Serves the requests as `ask` changes them; gives what was told of their probabilities, too.
    fn serve_as(&self, executor: &mut CudaExecutor, ask: impl Fn(Arrival) -> Submission) -> (Transcripts, Vec<Scored>) {
        let mut told = Told::default();
        self.serve_on(executor, ask, &mut told).unwrap();
        (executor.transcripts().clone(), told.0)
    }
}

/// The depths at which decoded tokens left, each once.
fn depths(transcripts: &Transcripts) -> Vec<u8> {
    let mut depths = decoded_depths(transcripts);
    depths.sort_unstable();
    depths.dedup();
    depths
}

#[test]
#[ignore = "needs a CUDA device"]
fn modes_and_overlaps_and_pressure_change_no_token() {
    for model in MODELS {
        let (expected, _) = Run { mode: Mode::NoRefill, max_num_seqs: 1, ..run_of(model) }.run();
        for overlap in OVERLAPS {
            for mode in [Mode::Refill { min_coda_batch: 1 }, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill] {
                let (got, _) = Run { mode, overlap, ..run_of(model) }.run();
                assert_same(&got, &expected, &format!("{model}, {mode:?}, {overlap:?}"));
            }
            let eos = Run { overlap, finish: Finish::Eos, ..run_of(model) };
            assert_same(&eos.run().0, &expected, &format!("{model}, ended by the executor, {overlap:?}"));
        }
        let tight = tight(model, Pressure::Offload);
        let (got, preemptions) = tight.run();
        assert!(preemptions > 2, "{model}: the pool was meant to be too small");
        let (roomy, _) = Run { blocks: 8192, ..tight }.run();
        assert_same(&got, &roomy, &format!("{model}, offloaded"));
        let (wide, _) = Run { max_num_seqs: 12, ..run_of(model) }.run();
        assert_same(&wide, &expected, &format!("{model}, W = 12"));
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn an_executor_that_is_renewed_makes_the_tokens_of_a_new_one() {
    for model in MODELS {
        let full_depth = Run { mode: Mode::ContinuousBatching, ..run_of(model) };
        let mut executor = full_depth.executor();
        full_depth.run_on(&mut executor);
        let refill = run_of(model);
        assert!(executor.renew(refill.live()).unwrap());
        assert_same(&refill.run_on(&mut executor).0, &refill.run().0, model);
        let wider = Run { max_num_seqs: 6, ..run_of(model) };
        assert!(!executor.renew(wider.live()).unwrap(), "W = 6 needs another pool of slots");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn recomputing_makes_progress_while_tokens_are_on_their_way() {
    for overlap in [Overlap::Asynchronous, Overlap::Lookahead] {
        let tight = Run { overlap, ..tight("tiny-ouro", Pressure::Recompute) };
        let (got, preemptions) = tight.run();
        assert!(preemptions > 2);
        assert!(got.iter().zip(&tight.workload).all(|((_, t), &(_, output))| t.output.len() == output as usize));
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn gates_leave_at_several_depths_and_a_schedule_does_not_change_them() {
    for (model, threshold) in [("tiny-ouro", 0.6), ("tiny-huginn", 0.3)] {
        let gate = LiveExits::Gate(GateSpec { lookahead: true, ..GateSpec::at(threshold) });
        let run = Run { exits: gate, ..run_of(model) };
        let (expected, _) = Run { max_num_seqs: 1, ..run.clone() }.run();
        let (got, _) = run.run();
        assert_same(&got, &expected, model);
        let depths = depths(&got);
        println!("{model}: depths {depths:?}");
        assert!(depths.len() > 1, "{model}: exits at {depths:?} only");
    }
}

/// Tokens leave at several depths by each, in graphs, and a renewed executor with another criterion would lack them.
#[test]
#[ignore = "needs a CUDA device"]
fn criteria_of_the_logits_leave_at_several_depths_and_a_schedule_does_not_change_them() {
    for (model, criterion, threshold) in [
        ("tiny-ouro", Criterion::Kl, 0.08),
        ("tiny-ouro", Criterion::LatentDifference, 0.4),
        ("tiny-huginn", Criterion::EntropyDifference, 0.02),
        ("tiny-huginn", Criterion::Kl, 0.1),
        ("tiny-huginn", Criterion::ArgmaxStability, 2.0),
        ("tiny-recurrent-llama", Criterion::Kl, 0.1),
    ] {
        let what = format!("{model}, {}", criterion.name());
        let gate = GateSpec { criterion: Some(criterion), lookahead: true, ..GateSpec::at(threshold) };
        let run = Run { exits: LiveExits::Gate(gate), ..run_of(model) };
        let (expected, _) = Run { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() }.run();
        for overlap in [Overlap::Synchronous, Overlap::Lookahead] {
            let mut executor = Run { overlap, ..run.clone() }.executor();
            let (got, _) = Run { overlap, ..run.clone() }.run_on(&mut executor);
            assert_same(&got, &expected, &what);
            let replayed = Run { overlap, ..run_of(model) };
            assert!(!executor.renew(replayed.live()).unwrap(), "{what}: replayed exits need other graphs");
        }
        let depths = depths(&expected);
        println!("{what}: depths {depths:?}");
        assert!(depths.len() > 1, "{what}: exits at {depths:?} only");
    }
}

/// The device draws what the host would from the same logits: its noise is the same, bit for bit. Cuts are left out, since
/// the device finds them by bisection and may keep one that lies at the very edge.
#[test]
#[ignore = "needs a CUDA device"]
fn the_device_draws_what_the_host_would_from_the_same_logits() {
    for model in MODELS {
        let run = run_of(model);
        let mut executor = run.executor_of(LiveConfig { keep_logits: true, ..run.live() });
        let samplings = [
            Sampling { temperature: 0.8, seed: 1, ..Sampling::GREEDY },
            Sampling { temperature: 1.5, seed: 2, ..Sampling::GREEDY },
            Sampling::GREEDY,
        ];
        let sampling = |request: RequestId| samplings[request.0 as usize % samplings.len()];
        let ask = |arrival: Arrival| Submission { sampling: Some(sampling(arrival.request.id)), ..arrival.into() };
        let free = run.serve_as(&mut executor, ask).0;
        // What was said first is then held back.
        let held_back = |request| free.get(request).output[..free.get(request).output.len().min(3)].to_vec();
        executor.reset();
        let bound = run.serve_as(&mut executor, |arrival| {
            let ends = Ends { tokens: held_back(arrival.request.id).into(), min_tokens: 3 };
            Submission { ends: Some(ends), ..ask(arrival) }
        });
        for (transcripts, min_tokens) in [(&free, 0), (&bound.0, 3)] {
            let (mut drawn, mut largest) = (0, 0);
            for (request, transcript) in transcripts.iter() {
                let sampling = sampling(request);
                for ((token, logits), &chosen) in (0..).zip(&transcript.logits).zip(&transcript.output) {
                    let banned = if token < min_tokens { held_back(request) } else { Vec::new() };
                    let expected = choose(logits, &sampling, token, &banned);
                    assert_eq!(expected, Some(chosen), "{model}, request {}: {token}", request.0);
                    drawn += u32::from(sampling.temperature > 0.0);
                    largest += u32::from(choose(logits, &Sampling::GREEDY, token, &banned) == Some(chosen));
                }
            }
            assert!(drawn > 40 && largest < drawn, "{model}: {drawn} tokens drawn, {largest} the largest");
        }
        assert!(free.iter().zip(bound.0.iter()).all(|((_, free), (_, bound))| free.output[0] != bound.output[0]));
    }
}

/// The fewer rows the logits' buffer holds, the more pieces a prompt's scores take; one row each where W is 1.
#[test]
#[ignore = "needs a CUDA device"]
fn scores_are_told_once_and_depend_on_no_schedule() {
    for model in MODELS {
        let ask = |arrival: Arrival| {
            let logprobs = (arrival.request.id.0 != 2).then_some(Logprobs { top: 3, prompt: true });
            Submission { logprobs, ..arrival.into() }
        };
        let run = run_of(model);
        let alone = Run { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() };
        let (_, expected) = alone.serve_as(&mut alone.executor(), ask);
        let tight = Run { max_num_seqs: 5, ..tight(model, Pressure::Offload) };
        for run in [run, tight] {
            let mut executor = run.executor();
            let (transcripts, told) = run.serve_as(&mut executor, ask);
            assert_eq!(executor.stats().eager_fallbacks, 0, "{model}: every decode step is a graph");
            for (request, transcript) in transcripts.iter() {
                let told: Vec<&Scored> = told.iter().filter(|scored| scored.request == request).collect();
                let prompt = (1..transcript.prompt.len()).map(|at| (TokenAt::Prompt(at as u32), transcript.prompt[at]));
                let output = (0..).zip(&transcript.output).map(|(index, &id)| (TokenAt::Output(index), id));
                let all = if request.0 == 2 { Vec::new() } else { prompt.chain(output).collect() };
                let got: Vec<_> = told.iter().map(|scored| (scored.at, scored.id)).collect();
                assert_eq!(got, all, "{model}, request {}", request.0);
                if run.workload == alone.workload {
                    let expected: Vec<&Scored> = expected.iter().filter(|scored| scored.request == request).collect();
                    assert_eq!(told, expected, "{model}, request {}", request.0);
                }
            }
        }
    }
}

/// One token's embedding is not a number: who reads it fails, and the others get the tokens of a sound model.
#[test]
#[ignore = "needs a CUDA device"]
fn whoever_reads_a_broken_token_fails_alone() {
    let architecture = Architecture::builtin("tiny-ouro").unwrap();
    let run = Run { finish: Finish::Eos, ..run_of("tiny-ouro") };
    let device = CudaDevice::open(0).unwrap();
    let serve = |weights: &Weights| {
        let model = CudaModel::new(&device, &architecture, WeightSource::Loaded(weights)).unwrap();
        let options = CudaOptions { batch_invariant: true, ..CudaOptions::default() };
        let mut executor = CudaExecutor::new(&model, run.live(), options).unwrap();
        run.serve_as(&mut executor, Submission::from).0
    };
    let sound = Weights::random(&architecture, 5);
    let healthy = serve(&sound);
    let token = healthy.get(RequestId(1)).output[6];
    let name = "model.embed_tokens.weight";
    let mut values = sound.tensor(name).to_bf16().into_owned();
    let hidden = architecture.hidden as usize;
    values[token as usize * hidden..][..hidden].fill(bf16::NAN);
    let table = Tensor::from_bf16(sound.tensor(name).shape(), values);
    let tensors = sound.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone()));
    let tensors = tensors.chain([(name.to_owned(), table)]).collect();
    let served = serve(&Weights::from_tensors(tensors, &architecture).unwrap());
    let mut failed = 0;
    for (request, said) in healthy.iter() {
        let at = said.output.iter().position(|&id| id == token).map_or(said.output.len(), |at| at + 1);
        let length = if said.prompt.contains(&token) { 0 } else { at };
        assert_eq!(served.get(request).output, said.output[..length], "request {}", request.0);
        failed += u32::from(length < said.output.len());
    }
    assert!(failed > 0 && failed < 6, "{failed} failed");
}

#[test]
#[ignore = "needs a CUDA device"]
fn draws_depend_on_seed_request_and_token_alone() {
    let sampling = Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, seed: 3 };
    let run = Run { sampling, ..run_of("tiny-ouro") };
    let (a, _) = run.run();
    let (b, _) = Run { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() }.run();
    assert_same(&a, &b, "another schedule");
    let (c, _) = Run { sampling: Sampling { seed: 4, ..sampling }, ..run.clone() }.run();
    assert!(a.iter().zip(c.iter()).any(|((_, a), (_, c))| a.output != c.output), "another seed draws other tokens");
    let (one, _) = Run { sampling: Sampling { top_k: 1, top_p: 1.0, ..sampling }, ..run.clone() }.run();
    assert_same(&one, &Run { sampling: Sampling::GREEDY, ..run }.run().0, "the best of one");
}
