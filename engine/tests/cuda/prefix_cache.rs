//! The prefix cache on a GPU: what is found gives the bits of what would have been computed, and decisions are the CPU's.

use std::sync::Arc;

use engine::architecture::Architecture;
use engine::executor::ExitSource;
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::weights::Weights;
use engine::live::{LiveConfig, LiveExits};
use engine::models::gate::GateSpec;
use engine::models::initial_state::InitialState;
use engine::request::RequestId;
use engine::scheduler::{CachedPages, KvConfig, Mode, Overlap, PrefixCache, Pressure, SchedulerConfig};
use engine::units::Depth;

use crate::prefixes::{TURN, Turns, cache, serve, serve_long};

/// One way of serving both turns.
#[derive(Clone)]
struct Run {
    model: &'static str,
    layout: Layout,
    exits: LiveExits,
    /// Blocks of one plane.
    pages: u32,
    max_num_batched_tokens: u32,
    batch_invariant: bool,
    cache: Option<PrefixCache>,
}

struct Scattered(u8);

impl ExitSource for Scattered {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        Depth((2 + ((request.0 * 7 + token * 5) % 3) as u8).min(self.0))
    }
}

struct Full(Depth);

impl ExitSource for Full {
    fn exit_depth(&self, _: RequestId, _: u32) -> Depth {
        self.0
    }
}

impl Run {
    fn architecture(&self) -> Architecture {
        Architecture::builtin(self.model).unwrap()
    }

    fn config(&self) -> LiveConfig {
        let architecture = self.architecture();
        let defaults = SchedulerConfig::of(&architecture);
        let blocks = self.pages * u32::from(self.layout.planes(architecture.r_max));
        let scheduler = SchedulerConfig {
            mode: Mode::Refill { min_coda_batch: 1 },
            overlap: Overlap::Lookahead,
            max_num_seqs: 5,
            max_num_batched_tokens: self.max_num_batched_tokens,
            min_free_slots: 1,
            max_context_tokens: 256,
            r_min: Depth(2),
            kv: KvConfig {
                layout: self.layout,
                blocks,
                block_tokens: 4,
                pressure: Pressure::Offload,
                prefix_cache: self.cache,
                ..defaults.kv
            },
            ..defaults
        };
        LiveConfig {
            prompt_seed: 4,
            initial_state: InitialState::Noise { seed: 6 },
            keep_logits: true,
            ..LiveConfig::new(scheduler, self.exits.clone())
        }
    }

    fn on_gpu(&self) -> Turns {
        let options = CudaOptions { batch_invariant: self.batch_invariant, ..CudaOptions::default() };
        let device = CudaDevice::open(0).unwrap();
        let model = CudaModel::new(&device, &self.architecture(), WeightSource::Random { seed: 5 }).unwrap();
        let mut executor = CudaExecutor::new(&model, self.config(), options).unwrap();
        let turns = serve(&mut executor, self.config().scheduler);
        assert_eq!(executor.stats().eager_fallbacks, 0, "every decode step is a graph");
        turns
    }

    fn on_cpu(&self) -> Turns {
        let weights = Weights::random(&self.architecture(), 5);
        let options = CpuOptions { threads: 1, ..CpuOptions::default() };
        let mut executor = CpuExecutor::<bf16>::new(&self.architecture(), &weights, self.config(), options).unwrap();
        serve(&mut executor, self.config().scheduler)
    }
}

/// Both families; full depth where every loop must have run, else the models' own gates.
fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for (model, threshold) in [("tiny-ouro", 0.6), ("tiny-huginn", 0.3)] {
        let r_max = Architecture::builtin(model).unwrap().r_max;
        let gate = LiveExits::Gate(GateSpec { lookahead: true, ..GateSpec::at(threshold) });
        let full = LiveExits::Replay(Arc::new(Full(r_max)));
        for (layout, exits) in [(Layout::DepthIndexed, full), (Layout::LastExited, gate)] {
            let (max_num_batched_tokens, batch_invariant) = (1024, true);
            runs.push(Run { model, layout, exits, pages: 2048, max_num_batched_tokens, batch_invariant, cache: None });
        }
    }
    runs
}

#[test]
#[ignore = "needs a CUDA device"]
fn where_every_loop_has_a_plane_a_found_prefix_changes_no_bit() {
    for run in runs() {
        let cold = run.on_gpu();
        assert_eq!(cold.reuse.hit_tokens, 0);
        let cached = Run { cache: cache(CachedPages::Prompt), ..run.clone() };
        for (pages, max_num_batched_tokens) in [(2048, 1024), (160, 1024), (2048, 40)] {
            let what = format!("{}, {}, {pages} pages, M = {max_num_batched_tokens}", run.model, run.layout);
            let turns = Run { pages, max_num_batched_tokens, ..cached.clone() }.on_gpu();
            turns.assert_equals(&cold, &what);
            turns.assert_found(&what);
            assert_eq!(turns.reuse.evicted_pages > 0, pages < 2048, "{what}");
            println!("{what}: {:?}", turns.reuse);
        }
    }
}

/// Five contexts of 1,200 tokens lie in a pool for one and a bit.
#[test]
#[ignore = "needs a CUDA device"]
fn a_prefix_that_many_hold_takes_the_room_of_one() {
    for run in runs() {
        let serve = |pages: u32, cache| {
            let mut config = Run { pages, cache, ..run.clone() }.config();
            (config.scheduler.max_context_tokens, config.scheduler.max_num_batched_tokens) = (1280, 2048);
            let (scheduler, device) = (config.scheduler, CudaDevice::open(0).unwrap());
            let model = CudaModel::new(&device, &run.architecture(), WeightSource::Random { seed: 5 }).unwrap();
            let options = CudaOptions { batch_invariant: true, ..CudaOptions::default() };
            serve_long(&mut CudaExecutor::new(&model, config, options).unwrap(), scheduler)
        };
        let ((cold, _), (cached, reuse)) = (serve(4096, None), serve(400, cache(CachedPages::Prompt)));
        let what = format!("{}, {}", run.model, run.layout);
        assert_eq!((cached == cold, reuse.hit_tokens, reuse.evicted_pages), (true, 5 * 1200, 0), "{what}");
    }
}

/// What is not promised without `batch_invariant`, and how often it holds all the same.
#[test]
#[ignore = "needs a CUDA device"]
fn in_fast_mode_most_answers_are_the_same() {
    for run in runs() {
        let run = Run { batch_invariant: false, ..run };
        let (cold, cached) = (run.on_gpu(), Run { cache: cache(CachedPages::Prompt), ..run.clone() }.on_gpu());
        let pairs = cold.transcripts.iter().zip(cached.transcripts.iter());
        let same = pairs.filter(|((_, cold), (_, cached))| cold.output == cached.output).count() as f64;
        let all = f64::from(2 * TURN);
        // Wilson's interval at 95%.
        let (share, z) = (same / all, 1.96_f64);
        let centre = (share + z * z / (2.0 * all)) / (1.0 + z * z / all);
        let half = z / (1.0 + z * z / all) * (share * (1.0 - share) / all + z * z / (4.0 * all * all)).sqrt();
        println!(
            "{}, {}: {same} of {all} answers are the same, 95% interval {:.3} to {:.3}",
            run.model,
            run.layout,
            centre - half,
            centre + half
        );
        assert!(share > 0.5, "{}, {}: {share}", run.model, run.layout);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_gpu_finds_gives_up_and_batches_what_the_cpu_does() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let exits = LiveExits::Replay(Arc::new(Scattered(Architecture::builtin(model).unwrap().r_max.0)));
        for layout in [Layout::LastExited, Layout::Shared] {
            for (pages, cached) in [(2048, CachedPages::PromptAndOutput), (160, CachedPages::Prompt)] {
                let run = Run {
                    model,
                    layout,
                    exits: exits.clone(),
                    pages,
                    max_num_batched_tokens: 64,
                    batch_invariant: true,
                    cache: cache(cached),
                };
                let (gpu, cpu) = (run.on_gpu(), run.on_cpu());
                assert_eq!(gpu.steps.len(), cpu.steps.len(), "{model}, {layout}");
                for (gpu, cpu) in gpu.steps.iter().zip(&cpu.steps) {
                    assert_eq!(gpu, cpu, "{model}, {layout}");
                }
                assert!(gpu.reuse.hit_tokens > 0);
                println!("{model}, {layout}, {pages} pages: {} batches alike, {:?}", gpu.steps.len(), gpu.reuse);
            }
        }
    }
}
