//! What a measured run consists of: settings, exits, and a record of every step.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use engine::architecture::Architecture;
use engine::batch::Stage;
use engine::event_loop::{Observer, Refused, Step};
use engine::executor::ExitSource;
use engine::layout::Layout;
use engine::live::cuda::{CudaDevice, KvBudget};
use engine::live::{LiveConfig, LiveExits};
use engine::models::counter::{Stream, draw};
use engine::models::initial_state::InitialState;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{KvConfig, Mode, Overlap, Scheduler, SchedulerConfig};
use engine::units::{Depth, Nanos};
use serde_json::Value;

use crate::Failure;

/// The scheduler's settings, as far as runs differ.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) overlap: Overlap,
    pub(crate) layout: Layout,
    pub(crate) max_num_seqs: u32,
    pub(crate) max_num_batched_tokens: u32,
    /// S; an eighth of W by default.
    pub(crate) min_free_slots: Option<u32>,
    /// Prompt and output of the longest request.
    pub(crate) context: u32,
    pub(crate) r_max: Depth,
    pub(crate) r_min: Depth,
    pub(crate) keep_logits: bool,
}

impl Settings {
    pub(crate) fn of(architecture: &Architecture) -> Self {
        Self {
            mode: Mode::ContinuousBatching,
            overlap: Overlap::Lookahead,
            layout: Layout::LastExited,
            max_num_seqs: 64,
            max_num_batched_tokens: 8192,
            min_free_slots: None,
            context: 640,
            r_max: architecture.r_max,
            r_min: architecture.r_min,
            keep_logits: false,
        }
    }

    /// Sizes the pool for all slots at the longest context, or for what the device has.
    pub(crate) fn ready(
        &self,
        device: &CudaDevice,
        architecture: &Architecture,
        exits: LiveExits,
    ) -> Result<(LiveConfig, Scheduler), Failure> {
        const BLOCK_TOKENS: u32 = 16;
        let planes = u32::from(self.layout.planes(self.r_max));
        let wanted = self.context.div_ceil(BLOCK_TOKENS) * planes * self.max_num_seqs;
        let fits = KvBudget::Fraction(0.85).blocks(device, architecture, (self.layout, self.r_max, BLOCK_TOKENS), 0)?;
        let defaults = SchedulerConfig::of(architecture);
        let scheduler = SchedulerConfig {
            mode: self.mode,
            overlap: self.overlap,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            min_free_slots: self.min_free_slots.unwrap_or((self.max_num_seqs / 8).max(1)),
            max_context_tokens: self.context.max(1024),
            r_max: self.r_max,
            r_min: self.r_min,
            kv: KvConfig { layout: self.layout, blocks: wanted.min(fits), block_tokens: BLOCK_TOKENS, ..defaults.kv },
            ..defaults
        };
        let config = LiveConfig {
            prompt_seed: 1,
            initial_state: InitialState::Noise { seed: 2 },
            keep_logits: self.keep_logits,
            ..LiveConfig::new(scheduler, exits)
        };
        Ok((config, Scheduler::new(scheduler)?))
    }
}

/// Depths drawn independently, a function of request and token.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Depth and cumulative share.
    shares: Vec<(Depth, f64)>,
}

impl Mix {
    pub(crate) fn full(r_max: Depth) -> Self {
        Self { shares: vec![(r_max, 1.0)] }
    }

    /// `2:0.25,3:0.55,4:0.2`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut sum = 0.0;
        let shares = text
            .split(',')
            .map(|part| {
                let (depth, share) = part.split_once(':').ok_or("depths are written 2:0.25,3:0.55,4:0.2")?;
                sum += share.parse::<f64>()?;
                Ok::<_, Failure>((Depth(depth.parse()?), sum))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if (sum - 1.0).abs() > 1e-9 {
            return Err(format!("the shares of depths must add up to 1, got {sum}").into());
        }
        Ok(Self { shares })
    }

    pub(crate) fn mean(&self) -> f64 {
        let mut last = 0.0;
        self.shares.iter().map(|(depth, sum)| f64::from(depth.0) * (sum - std::mem::replace(&mut last, *sum))).sum()
    }
}

impl ExitSource for Mix {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        let bits = draw(77, Stream::Prompts, u64::from(request.0) << 32, u64::from(token));
        let u = (bits >> 11) as f64 / (1u64 << 53) as f64;
        let found = self.shares.iter().find(|(_, sum)| u < *sum).or(self.shares.last());
        found.map_or(Depth::FIRST, |(depth, _)| *depth)
    }
}

/// Requests that all arrive at time zero.
pub(crate) fn arrivals(count: u32, prompt_tokens: u32, output_tokens: u32) -> Vec<Arrival> {
    let request =
        |id| Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: output_tokens };
    (0..count).map(|id| Arrival { request: request(id), output_tokens, cancel_after: None }).collect()
}

/// Everything that a run did, step by step.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<StepRecord>,
    /// By request, when each output token was there.
    pub(crate) tokens: BTreeMap<RequestId, Vec<Nanos>>,
}

pub(crate) struct StepRecord {
    pub(crate) stage: Stage,
    pub(crate) rows: usize,
    pub(crate) tokens: u32,
    pub(crate) admitted: usize,
    pub(crate) started: Nanos,
    pub(crate) finished: Nanos,
}

impl Observer for Steps {
    fn arrived(&mut self, arrival: &Arrival, _: Nanos, refused: Option<&Refused>) {
        if let Some(refused) = refused {
            eprintln!("request {}: {refused}", arrival.request.id.0);
        }
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let (batch, finished) = (&step.outcome.batch, step.outcome.finished);
        self.steps.push(StepRecord {
            stage: batch.stage,
            rows: batch.rows.len(),
            tokens: batch.rows.iter().map(|row| row.span.count).sum(),
            admitted: batch.admitted().count(),
            started: step.outcome.started,
            finished,
        });
        for (row, told) in batch.rows.iter().zip(&step.outcome.rows) {
            let tokens = self.tokens.entry(row.request).or_default();
            tokens.extend((0..row.delivered(told)).map(|_| finished));
        }
        ControlFlow::Continue(())
    }
}

pub(crate) fn parse_layout(name: &str) -> Result<Layout, Failure> {
    Layout::ALL.into_iter().find(|layout| layout.name() == name).ok_or_else(|| format!("no such layout: {name}").into())
}

/// Appends records to a JSON list, which is made if it is not there.
pub(crate) fn append(path: Option<&Path>, records: Vec<Value>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let mut list: Vec<Value> = match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Vec::new(),
    };
    list.extend(records);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(std::fs::write(path, serde_json::to_string_pretty(&list)? + "\n")?)
}
