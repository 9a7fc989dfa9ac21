//! A small workload served by the real scheduler, on whichever live executor.

use std::sync::{Arc, LazyLock};

use engine::architecture::Architecture;
use engine::event_loop::{self, Observer};
use engine::executor::{ExitSource, VirtualClock};
use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::weights::Weights;
use engine::live::{Backend, Live, LiveConfig, LiveError, LiveExits, Transcripts};
use engine::models::initial_state::InitialState;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, Pressure, Scheduler, SchedulerConfig};
use engine::submission::{Sampling, Submission};
use engine::units::{Depth, Nanos};

pub(crate) const OVERLAPS: [Overlap; 3] = [Overlap::Synchronous, Overlap::Asynchronous, Overlap::Lookahead];
pub(crate) const MODELS: [&str; 2] = ["tiny-ouro", "tiny-huginn"];

/// Prompt and output tokens of each request.
pub(crate) const WORKLOAD: [(u32, u32); 12] =
    [(7, 5), (23, 3), (1, 7), (12, 1), (30, 6), (4, 8), (16, 4), (9, 2), (2, 6), (18, 7), (5, 3), (11, 5)];

/// Under `finish: eos`, how much longer than its true output a request's limit is.
pub(crate) const EOS_MARGIN: u32 = 3;

/// One way of serving the workload; fields are overwritten with struct update.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) model: &'static str,
    pub(crate) mode: Mode,
    pub(crate) overlap: Overlap,
    pub(crate) layout: Layout,
    pub(crate) exits: LiveExits,
    pub(crate) r_min: Depth,
    pub(crate) max_num_seqs: u32,
    pub(crate) max_num_batched_tokens: u32,
    pub(crate) max_context_tokens: u32,
    pub(crate) blocks: u32,
    pub(crate) pressure: Pressure,
    pub(crate) finish: Finish,
    pub(crate) eos: Option<u32>,
    pub(crate) sampling: Sampling,
    pub(crate) workload: Vec<(u32, u32)>,
    pub(crate) weights: Weights,
}

pub(crate) fn model(name: &str) -> Architecture {
    Architecture::builtin(name).unwrap()
}

/// The models' weights, made once.
fn weights(name: &str) -> Weights {
    static WEIGHTS: LazyLock<Vec<Weights>> =
        LazyLock::new(|| MODELS.iter().map(|name| Weights::random(&model(name), 5)).collect());
    match MODELS.iter().position(|known| *known == name) {
        Some(index) => WEIGHTS[index].clone(),
        None => Weights::random(&model(name), 5),
    }
}

impl Run {
    /// Refill, synchronous, whole prompts, plenty of room.
    pub(crate) fn of(model: &'static str, layout: Layout, exits: LiveExits) -> Self {
        Self {
            model,
            mode: Mode::Refill { min_coda_batch: 1 },
            overlap: Overlap::Synchronous,
            layout,
            exits,
            r_min: Depth(2),
            max_num_seqs: 5,
            max_num_batched_tokens: 1024,
            max_context_tokens: 256,
            blocks: 2048,
            pressure: Pressure::Reserve,
            finish: Finish::Length,
            eos: None,
            sampling: Sampling::GREEDY,
            workload: WORKLOAD.to_vec(),
            weights: weights(model),
        }
    }

    /// Outputs that outgrow a pool in which every prompt fits.
    pub(crate) fn with_long_outputs(self) -> Self {
        let workload = self.workload.iter().map(|&(prompt, output)| (prompt, output + 12)).collect();
        Self { workload, ..self }
    }

    /// The same with 13 blocks a plane: with long outputs the longest request alone needs 12, and under `finish: eos` all.
    pub(crate) fn tight(&self, pressure: Pressure) -> Self {
        let planes = u32::from(self.layout.planes(model(self.model).r_max));
        Self { pressure, blocks: 13 * planes, ..self.clone() }
    }

    /// What the executor is told.
    pub(crate) fn live(&self) -> LiveConfig {
        let architecture = model(self.model);
        let defaults = SchedulerConfig::of(&architecture);
        let scheduler = SchedulerConfig {
            mode: self.mode,
            overlap: self.overlap,
            finish: self.finish,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            min_free_slots: 1,
            max_context_tokens: self.max_context_tokens,
            r_min: self.r_min,
            kv: KvConfig {
                layout: self.layout,
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
            end_tokens: self.eos.into_iter().collect(),
            initial_state: self.initial_state(),
            ..LiveConfig::new(scheduler, self.exits.clone())
        }
    }

    pub(crate) fn initial_state(&self) -> InitialState {
        InitialState::Noise { seed: 6 }
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let margin = if self.finish == Finish::Eos { EOS_MARGIN } else { 0 };
        let arrival = |(id, &(prompt_tokens, output_tokens)): (u32, &(u32, u32))| {
            let max_output_tokens = output_tokens + margin;
            let request = Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens };
            Arrival { request, output_tokens, cancel_after: None }
        };
        (0..).zip(&self.workload).map(arrival).collect()
    }

    /// Serves the requests, as `ask` changes them, on an executor that was made for `live()`, and gives how many sequences
    /// were preempted.
    pub(crate) fn serve_on<B: Backend>(
        &self,
        executor: &mut Live<B>,
        ask: impl Fn(Arrival) -> Submission,
        observer: &mut impl Observer,
    ) -> Result<u64, LiveError<B::Error>> {
        let mut scheduler = Scheduler::new(self.live().scheduler).unwrap();
        let mut inbox = Replay::new(self.arrivals().into_iter().map(ask));
        event_loop::run(&mut scheduler, executor, &mut VirtualClock::default(), &mut inbox, observer)?;
        Ok(scheduler.preemptions())
    }
}

/// Panics unless tokens and exit depths are the same, request by request.
pub(crate) fn assert_same(a: &Transcripts, b: &Transcripts, what: &str) {
    for ((request, a), (_, b)) in a.iter().zip(b.iter()) {
        assert_eq!(a.output, b.output, "{what}: tokens of request {}", request.0);
        assert_eq!(a.depths, b.depths, "{what}: exit depths of request {}", request.0);
    }
}

/// Exit depths of decoded tokens (the first comes from prefill).
pub(crate) fn decoded_depths(transcripts: &Transcripts) -> Vec<u8> {
    transcripts.iter().flat_map(|(_, t)| t.depths[1..].iter().map(|depth| depth.0)).collect()
}

/// Made-up exits between `r_min` and `r_max`, as if at random.
#[derive(Clone, Copy)]
pub(crate) struct Scattered {
    pub(crate) r_min: u8,
    pub(crate) r_max: u8,
}

impl ExitSource for Scattered {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        let mixed = (request.0 * 977 + token * 331 + 7).wrapping_mul(2_654_435_761) >> 16;
        Depth(self.r_min + (mixed % u32::from(self.r_max - self.r_min + 1)) as u8)
    }
}

pub(crate) fn early(model_name: &str) -> LiveExits {
    LiveExits::Replay(Arc::new(Scattered { r_min: 2, r_max: model(model_name).r_max.0 }))
}
