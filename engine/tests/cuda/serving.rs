//! The real scheduler over the CUDA executor: what must not change a token, and what the gates say.

use std::ops::ControlFlow;
use std::sync::Arc;

use engine::architecture::Architecture;
use engine::batch::{Scored, TokenAt};
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::{ExitSource, VirtualClock};
use engine::inbox::{Replay, replay};
use engine::layout::Layout;
use engine::live::cpu::bf16;
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::weights::Weights;
use engine::live::weights::tensor::Tensor;
use engine::live::{LiveConfig, LiveExits, Transcripts, choose};
use engine::models::criterion::Criterion;
use engine::models::gate::GateSpec;
use engine::models::initial_state::InitialState;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, Pressure, Scheduler, SchedulerConfig};
use engine::submission::{Ends, Logprobs, Sampling, Submission};
use engine::units::{Depth, Nanos};

/// Prompt and output tokens of each request; more than one attention split for some.
const WORKLOAD: [(u32, u32); 12] =
    [(7, 5), (123, 13), (1, 7), (12, 1), (30, 6), (4, 8), (16, 4), (300, 9), (2, 6), (18, 7), (5, 3), (126, 5)];

#[derive(Clone)]
struct Serve {
    model: &'static str,
    mode: Mode,
    overlap: Overlap,
    exits: LiveExits,
    max_num_seqs: u32,
    blocks: u32,
    pressure: Pressure,
    finish: Finish,
    sampling: Sampling,
    workload: Vec<(u32, u32)>,
}

struct Scattered;

impl ExitSource for Scattered {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        Depth(2 + ((request.0 * 7 + token * 5) % 3) as u8)
    }
}

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

impl Serve {
    fn of(model: &'static str) -> Self {
        Self {
            model,
            mode: Mode::Refill { min_coda_batch: 1 },
            overlap: Overlap::Lookahead,
            exits: LiveExits::Replay(Arc::new(Scattered)),
            max_num_seqs: 5,
            blocks: 8192,
            pressure: Pressure::Reserve,
            finish: Finish::Length,
            sampling: Sampling::GREEDY,
            workload: WORKLOAD.to_vec(),
        }
    }

    /// Outputs that outgrow a pool in which every prompt fits.
    fn tight(model: &'static str, pressure: Pressure) -> Self {
        let planes = u32::from(Architecture::builtin(model).unwrap().r_max.0);
        let workload = WORKLOAD.iter().map(|&(prompt, output)| (prompt.min(30), output + 12)).collect();
        Self { blocks: 16 * planes, pressure, max_num_seqs: 5, workload, ..Self::of(model) }
    }

    fn config(&self) -> LiveConfig {
        let architecture = Architecture::builtin(self.model).unwrap();
        let defaults = SchedulerConfig::of(&architecture);
        let scheduler = SchedulerConfig {
            mode: self.mode,
            overlap: self.overlap,
            finish: self.finish,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: 1024,
            min_free_slots: 1,
            max_context_tokens: 512,
            r_min: Depth(2),
            kv: KvConfig {
                layout: Layout::LastExited,
                blocks: self.blocks,
                block_tokens: 4,
                pressure: self.pressure,
                ..defaults.kv
            },
            ..defaults
        };
        LiveConfig {
            prompt_seed: 4,
            sampling: self.sampling,
            initial_state: InitialState::Noise { seed: 6 },
            ..LiveConfig::new(scheduler, self.exits.clone())
        }
    }

    fn executor(&self) -> CudaExecutor {
        self.executor_of(self.config())
    }

    fn executor_of(&self, config: LiveConfig) -> CudaExecutor {
        let architecture = Architecture::builtin(self.model).unwrap();
        let options = CudaOptions { batch_invariant: true, ..CudaOptions::default() };
        let device = CudaDevice::open(0).unwrap();
        let model = CudaModel::new(&device, &architecture, WeightSource::Random { seed: 5 }).unwrap();
        CudaExecutor::new(&model, config, options).unwrap()
    }

    fn run(&self) -> (Transcripts, u64) {
        self.run_on(&mut self.executor())
    }

    /// Serves the requests as `ask` changes them; gives what was told of their probabilities, too.
    fn serve_as(&self, executor: &mut CudaExecutor, ask: impl Fn(Arrival) -> Submission) -> (Transcripts, Vec<Scored>) {
        let mut scheduler = Scheduler::new(self.config().scheduler).unwrap();
        let mut inbox = Replay::new(self.arrivals().into_iter().map(ask));
        let mut told = Told::default();
        event_loop::run(&mut scheduler, executor, &mut VirtualClock::default(), &mut inbox, &mut told).unwrap();
        (executor.transcripts().clone(), told.0)
    }

    fn run_on(&self, executor: &mut CudaExecutor) -> (Transcripts, u64) {
        let mut scheduler = Scheduler::new(self.config().scheduler).unwrap();
        let clock = &mut VirtualClock::default();
        event_loop::run(&mut scheduler, executor, clock, &mut replay(self.arrivals()), &mut Told::default()).unwrap();
        assert_eq!(executor.stats().eager_fallbacks, 0, "every decode step is a graph");
        (executor.transcripts().clone(), scheduler.preemptions())
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let late = u32::from(self.finish == Finish::Eos) * 3;
        let arrivals = (0..).zip(&self.workload).map(|(id, &(prompt_tokens, output_tokens))| {
            let max_output_tokens = output_tokens + late;
            let request = Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens };
            Arrival { request, output_tokens, cancel_after: None }
        });
        arrivals.collect()
    }
}

fn assert_same(a: &Transcripts, b: &Transcripts, what: &str) {
    for ((request, a), (_, b)) in a.iter().zip(b.iter()) {
        assert_eq!((&a.output, &a.depths), (&b.output, &b.depths), "{what}: request {}", request.0);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn modes_and_overlaps_and_pressure_change_no_token() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let (expected, _) = Serve { mode: Mode::NoRefill, max_num_seqs: 1, ..Serve::of(model) }.run();
        for overlap in [Overlap::Synchronous, Overlap::Asynchronous, Overlap::Lookahead] {
            for mode in [Mode::Refill { min_coda_batch: 1 }, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill] {
                let (got, _) = Serve { mode, overlap, ..Serve::of(model) }.run();
                assert_same(&got, &expected, &format!("{model}, {mode:?}, {overlap:?}"));
            }
            let eos = Serve { overlap, finish: Finish::Eos, ..Serve::of(model) };
            assert_same(&eos.run().0, &expected, &format!("{model}, ended by the executor, {overlap:?}"));
        }
        let tight = Serve::tight(model, Pressure::Offload);
        let (got, preemptions) = tight.run();
        assert!(preemptions > 2, "{model}: the pool was meant to be too small");
        let (roomy, _) = Serve { blocks: 8192, ..tight }.run();
        assert_same(&got, &roomy, &format!("{model}, offloaded"));
        let (wide, _) = Serve { max_num_seqs: 12, ..Serve::of(model) }.run();
        assert_same(&wide, &expected, &format!("{model}, W = 12"));
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn an_executor_that_is_renewed_makes_the_tokens_of_a_new_one() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let full_depth = Serve { mode: Mode::ContinuousBatching, ..Serve::of(model) };
        let mut executor = full_depth.executor();
        full_depth.run_on(&mut executor);
        let refill = Serve::of(model);
        assert!(executor.renew(refill.config()).unwrap());
        assert_same(&refill.run_on(&mut executor).0, &refill.run().0, model);
        let wider = Serve { max_num_seqs: 6, ..Serve::of(model) };
        assert!(!executor.renew(wider.config()).unwrap(), "W = 6 needs another pool of slots");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn recomputing_makes_progress_while_tokens_are_on_their_way() {
    for overlap in [Overlap::Asynchronous, Overlap::Lookahead] {
        let tight = Serve { overlap, ..Serve::tight("tiny-ouro", Pressure::Recompute) };
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
        let run = Serve { exits: gate, ..Serve::of(model) };
        let (expected, _) = Serve { max_num_seqs: 1, ..run.clone() }.run();
        let (got, _) = run.run();
        assert_same(&got, &expected, model);
        let mut depths: Vec<u8> = got.iter().flat_map(|(_, t)| t.depths[1..].iter().map(|depth| depth.0)).collect();
        depths.sort_unstable();
        depths.dedup();
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
        let run = Serve { exits: LiveExits::Gate(gate), ..Serve::of(model) };
        let (expected, _) = Serve { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() }.run();
        for overlap in [Overlap::Synchronous, Overlap::Lookahead] {
            let mut executor = Serve { overlap, ..run.clone() }.executor();
            let (got, _) = Serve { overlap, ..run.clone() }.run_on(&mut executor);
            assert_same(&got, &expected, &what);
            let replayed = Serve { overlap, ..Serve::of(model) };
            assert!(!executor.renew(replayed.config()).unwrap(), "{what}: replayed exits need other graphs");
        }
        let mut depths: Vec<u8> =
            expected.iter().flat_map(|(_, t)| t.depths[1..].iter().map(|depth| depth.0)).collect();
        depths.sort_unstable();
        depths.dedup();
        println!("{what}: depths {depths:?}");
        assert!(depths.len() > 1, "{what}: exits at {depths:?} only");
    }
}

/// The device draws what the host would from the same logits: its noise is the same, bit for bit. Cuts are left out, since
/// the device finds them by bisection and may keep one that lies at the very edge.
#[test]
#[ignore = "needs a CUDA device"]
fn the_device_draws_what_the_host_would_from_the_same_logits() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let run = Serve::of(model);
        let mut executor = run.executor_of(LiveConfig { keep_logits: true, ..run.config() });
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
    for model in ["tiny-ouro", "tiny-huginn"] {
        let ask = |arrival: Arrival| {
            let logprobs = (arrival.request.id.0 != 2).then_some(Logprobs { top: 3, prompt: true });
            Submission { logprobs, ..arrival.into() }
        };
        let run = Serve::of(model);
        let alone = Serve { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() };
        let (_, expected) = alone.serve_as(&mut alone.executor(), ask);
        let tight = Serve { max_num_seqs: 5, ..Serve::tight(model, Pressure::Offload) };
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
    let run = Serve { finish: Finish::Eos, ..Serve::of("tiny-ouro") };
    let device = CudaDevice::open(0).unwrap();
    let serve = |weights: &Weights| {
        let model = CudaModel::new(&device, &architecture, WeightSource::Loaded(weights)).unwrap();
        let options = CudaOptions { batch_invariant: true, ..CudaOptions::default() };
        let mut executor = CudaExecutor::new(&model, run.config(), options).unwrap();
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
    let run = Serve { sampling, ..Serve::of("tiny-ouro") };
    let (a, _) = run.run();
    let (b, _) = Serve { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() }.run();
    assert_same(&a, &b, "another schedule");
    let (c, _) = Serve { sampling: Sampling { seed: 4, ..sampling }, ..run.clone() }.run();
    assert!(a.iter().zip(c.iter()).any(|((_, a), (_, c))| a.output != c.output), "another seed draws other tokens");
    let (one, _) = Serve { sampling: Sampling { top_k: 1, top_p: 1.0, ..sampling }, ..run.clone() }.run();
    assert_same(&one, &Serve { sampling: Sampling::GREEDY, ..run }.run().0, "the best of one");
}
