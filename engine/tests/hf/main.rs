//! Model folders as released, against what the models' own code computes from them.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod expected;

use std::ops::ControlFlow;
use std::path::Path;

use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::VirtualClock;
use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, Element, bf16};
use engine::live::weights::Weights;
use engine::live::weights::folder::ModelFolder;
use engine::live::{Backend, Live, LiveConfig, LiveExits, Transcript};
use engine::models::gate::GateSpec;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, KvConfig, Overlap, Scheduler, SchedulerConfig};
use engine::submission::Submission;
use engine::units::{Depth, Nanos};

use self::expected::{Expected, Logits, Run, Runs, folders};

/// Continues prompts in some manner, on some device.
type Transcribe<'a> = &'a dyn Fn(&ModelFolder, &Ask, &[Vec<u32>]) -> Vec<Transcript>;

/// A folder on a device.
struct Served<'a> {
    folder: ModelFolder,
    expected: Expected,
    transcribe: Transcribe<'a>,
}

/// How its prompts are continued.
struct Ask {
    outputs: u32,
    loops: u8,
    layout: Layout,
    threshold: Option<f32>,
    end: Option<u32>,
}

impl Ask {
    fn config(&self, folder: &ModelFolder) -> LiveConfig {
        let architecture = folder.architecture();
        let defaults = SchedulerConfig::of(architecture);
        let scheduler = SchedulerConfig {
            overlap: Overlap::Asynchronous,
            finish: if self.end.is_some() { Finish::Eos } else { Finish::Length },
            max_num_seqs: 8,
            max_num_batched_tokens: 1024,
            min_free_slots: 1,
            max_context_tokens: 256,
            r_max: Depth(self.loops),
            r_min: Depth(1),
            kv: KvConfig { layout: self.layout, blocks: 4096, block_tokens: 4, ..defaults.kv },
            ..defaults
        };
        let never = folder.config.exit_threshold;
        let full = GateSpec::at(if never > 0.0 { 1.0 } else { 0.0 });
        let gate = self.threshold.map_or(full, GateSpec::at);
        LiveConfig {
            end_tokens: self.end.into_iter().collect(),
            keep_logits: true,
            ..LiveConfig::new(scheduler, LiveExits::Gate(gate))
        }
    }
}

/// Serves prompts together; what came, in their order.
fn serve<B: Backend>(executor: &mut Live<B>, ask: &Ask, prompts: &[Vec<u32>]) -> Vec<Transcript> {
    let mut scheduler = Scheduler::new(executor.config().scheduler).unwrap();
    let submissions: Vec<Submission> = (0..)
        .zip(prompts)
        .map(|(id, prompt)| {
            let (id, prompt_tokens) = (RequestId(id), prompt.len() as u32);
            let request = Request { id, arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: ask.outputs };
            let arrival = Arrival { request, output_tokens: ask.outputs, cancel_after: None };
            Submission { prompt: Some(prompt.as_slice().into()), ..arrival.into() }
        })
        .collect();
    let (clock, inbox) = (&mut VirtualClock::default(), &mut Replay::new(submissions.into_iter()));
    event_loop::run(&mut scheduler, executor, clock, inbox, &mut Unseen).unwrap();
    (0..prompts.len()).map(|id| executor.transcripts().get(RequestId(id as u32)).clone()).collect()
}

struct Unseen;

impl Observer for Unseen {
    fn arrived(&mut self, _: &Arrival, _: Nanos, refused: Option<&Refused>) {
        assert!(refused.is_none(), "{refused:?}");
    }

    fn step(&mut self, _: &Step) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn on_cpu<E: Element>(folder: &ModelFolder, ask: &Ask, prompts: &[Vec<u32>]) -> Vec<Transcript> {
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let weights: Weights = folder.weights().unwrap();
    let mut executor = CpuExecutor::<E>::new(folder.architecture(), &weights, ask.config(folder), options).unwrap();
    serve(&mut executor, ask, prompts)
}

impl<'a> Served<'a> {
    fn open(path: &Path, transcribe: Transcribe<'a>) -> Self {
        Self { folder: ModelFolder::open(path).unwrap(), expected: Expected::read(path), transcribe }
    }

    fn name(&self) -> &str {
        &self.folder.architecture().name
    }

    fn transcribe(&self, ask: &Ask) -> Vec<Transcript> {
        (self.transcribe)(&self.folder, ask, &self.expected.prompts)
    }

    fn ask(&self) -> Ask {
        let loops = self.folder.architecture().r_max.0;
        assert_eq!(loops, self.expected.loops, "{}", self.name());
        Ask { outputs: 24, loops, layout: Layout::LastExited, threshold: None, end: None }
    }

    /// The logits of every prompt's last position, with what they must be.
    fn logits(&self, depth: u8) -> Vec<(&Logits, Vec<f32>)> {
        let got = self.transcribe(&Ask { outputs: 1, loops: depth, ..self.ask() });
        let expected = self.expected.logits.iter().filter(|logits| logits.depth == depth);
        expected.map(|logits| (logits, got[logits.prompt].logits[0].clone())).collect()
    }

    /// Tokens, depths and winning logits are the expected ones.
    fn check(&self, ask: &Ask, runs: &[Run], what: &str) {
        let got = self.transcribe(ask);
        for run in runs {
            let got = &got[run.prompt];
            let at = format!("{}, {what}, prompt {}", self.name(), run.prompt);
            assert_eq!(got.output, run.tokens, "{at}");
            if let Some(depths) = &run.depths {
                let got: Vec<u8> = got.depths.iter().map(|depth| depth.0).collect();
                assert_eq!(&got, depths, "{at}");
            }
            for (i, &expected) in run.logits.iter().flatten().enumerate() {
                let logit = f64::from(got.logits[i][run.tokens[i] as usize]);
                assert!((logit - expected).abs() <= 2e-5 * expected.abs(), "{at}, token {i}: {logit}, not {expected}");
            }
        }
    }

    fn check_exits(&self, runs: &Runs) {
        let layout = match runs.layout.as_deref() {
            Some("shared") => Layout::Shared,
            _ => Layout::LastExited,
        };
        let threshold = runs.threshold;
        self.check(&Ask { layout, threshold, ..self.ask() }, &runs.runs, &format!("{layout}, {threshold:?}"));
    }
}

#[test]
fn logits_are_those_of_the_models_own_code_at_every_depth() {
    for path in folders() {
        let served = Served::open(&path, &on_cpu::<f32>);
        for depth in 1..=served.expected.loops {
            for (expected, row) in served.logits(depth) {
                let at = format!("{}, prompt {}, depth {depth}", served.name(), expected.prompt);
                assert_eq!(row.len(), served.expected.vocab_size, "{at}");
                for (error, _) in expected.errors(&served.expected.fixed_ids, &row) {
                    assert!(error.abs() <= 1e-5 * expected.max_abs, "{at}: off by {error}");
                }
                let l2 = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
                assert!((l2 - expected.l2).abs() <= 1e-5 * expected.l2, "{at}: l2 {l2}, not {}", expected.l2);
                let sum = row.iter().map(|&x| f64::from(x)).sum::<f64>();
                let within = 1e-6 * expected.max_abs * row.len() as f64;
                assert!((sum - expected.sum).abs() <= within, "{at}: sum {sum}, not {}", expected.sum);
            }
        }
    }
}

#[test]
fn tokens_are_those_of_the_models_own_code() {
    for path in folders() {
        let served = Served::open(&path, &on_cpu::<f32>);
        served.check(&served.ask(), &served.expected.greedy.runs, "greedy");
    }
}

#[test]
fn tokens_leave_where_the_models_own_gates_say() {
    for path in folders() {
        let served = Served::open(&path, &on_cpu::<f32>);
        assert!(served.expected.exits.len() >= 3, "three thresholds");
        served.expected.exits.iter().chain(&served.expected.adaptive).for_each(|runs| served.check_exits(runs));
    }
}

#[test]
fn an_end_token_is_the_last() {
    let mut checked = 0;
    for path in folders() {
        let served = Served::open(&path, &on_cpu::<f32>);
        let Some(eos) = &served.expected.eos else { continue };
        let ask = Ask { end: Some(eos.eos_token_id), ..served.ask() };
        served.check(&ask, &eos.full_depth, "with an end token");
        let ask = Ask { threshold: eos.exits.threshold, ..ask };
        served.check(&ask, &eos.exits.runs, "with an end token and exits");
        checked += 1;
    }
    assert!(checked >= 2, "both families have such runs");
}

/// In bf16 nobody computes the same bits: logits lie in the bands that the models' own code spreads over.
fn bands(transcribe: Transcribe<'_>) {
    let mut checked = 0;
    for path in folders() {
        let served = Served::open(&path, transcribe);
        let Some(noise) = &served.expected.bf16_noise else { continue };
        for depth in 1..=served.expected.loops {
            let bands = noise.variants.iter().flat_map(|variant| &variant.stored).filter(|band| band.depth == depth);
            let (rms_band, max_band) =
                bands.fold((0.0f64, 0.0f64), |(rms, max), band| (rms.max(band.rms_rel), max.max(band.max_rel)));
            let (mut squares, mut sizes, mut largest) = (0.0, 0.0, 0.0f64);
            for (expected, row) in served.logits(depth) {
                for (error, value) in expected.errors(&served.expected.fixed_ids, &row) {
                    squares += error * error;
                    sizes += value * value;
                    largest = largest.max(error.abs() / expected.max_abs);
                }
            }
            let rms = f64::sqrt(squares / sizes);
            let at = format!("{}, depth {depth}: rms {rms:.4}, largest {largest:.4}", served.name());
            println!("{at}; of that code {rms_band:.4}, {max_band:.4}");
            assert!(rms > 0.0 && rms <= 1.25 * rms_band && largest <= 1.5 * max_band, "{at}");
            checked += 1;
        }
    }
    assert!(checked >= 12, "both families have bands");
}

#[test]
fn in_bf16_logits_lie_in_the_bands_of_the_models_own_code() {
    bands(&on_cpu::<bf16>);
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs a CUDA device"]
fn on_a_gpu_logits_lie_in_the_bands_of_the_models_own_code() {
    use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};

    for batch_invariant in [false, true] {
        bands(&|folder, ask, prompts| {
            let (device, weights) = (CudaDevice::open(0).unwrap(), folder.weights().unwrap());
            let model = CudaModel::new(&device, folder.architecture(), WeightSource::Loaded(&weights)).unwrap();
            let options = CudaOptions { batch_invariant, ..CudaOptions::default() };
            serve(&mut CudaExecutor::new(&model, ask.config(folder), options).unwrap(), ask, prompts)
        });
    }
}
