//! `bench core-step`: the looped block alone, as a replayed graph, on a cache full of noise.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use engine::architecture::Architecture;
use engine::batch::{Batch, Emits, Input, Page, Row, Slot, Span, Stage, TableEdit};
use engine::executor::{Executor, ExitSource};
use engine::layout::Layout;
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::{LiveConfig, LiveExits};
use engine::models::criterion::Criterion;
use engine::models::gate::GateSpec;
use engine::models::initial_state::InitialState;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{KvConfig, Overlap, SchedulerConfig};
use engine::units::{Depth, Nanos};
use serde_json::json;

use crate::Failure;
use crate::run::{append, parse_layout};
use engine::live::wall_clock::WallClock;

const BLOCK_TOKENS: u32 = 16;

/// Bytes per nanosecond of a device-to-device copy on this kind of GPU, measured.
const COPY_BYTES_PER_NS: f64 = 4290.0;

#[derive(Parser)]
pub(crate) struct Args {
    #[arg(long, default_value = "ouro-1.4b")]
    model: String,
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    batch: Vec<u32>,
    #[arg(long, value_delimiter = ',', default_value = "512")]
    context: Vec<u32>,
    #[arg(long, default_value = "last_exited")]
    layout: String,
    /// Timed steps.
    #[arg(long, default_value_t = 60)]
    steps: usize,
    #[arg(long)]
    batch_invariant: bool,
    /// Launch kernel by kernel, for a profiler.
    #[arg(long)]
    no_graphs: bool,
    /// Which stage to time: core, prelude, coda or forward.
    #[arg(long, default_value = "core")]
    stage: String,
    /// Judge every row by this after a loop, as `exits: { gate: { criterion } }` does, and read the signals back.
    #[arg(long)]
    criterion: Option<String>,
    /// The commit that is measured, for the report.
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// A JSON list to append to.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Every token runs at full depth.
struct Full(Depth);

impl ExitSource for Full {
    fn exit_depth(&self, _: RequestId, _: u32) -> Depth {
        self.0
    }
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let architecture = Architecture::builtin(&args.model).ok_or("no such model")?;
    let layout = parse_layout(&args.layout)?;
    let device = CudaDevice::open(0)?;
    println!("{} on {}, {}, {layout}, invariant: {}", args.model, device.name(), args.stage, args.batch_invariant);
    println!(
        "{:>6} {:>8} {:>12} {:>12} {:>10} {:>8}",
        "batch", "context", "ms/step", "busy ms", "floor ms", "of floor"
    );
    let mut records = Vec::new();
    let batch_max = args.batch.iter().copied().max().unwrap_or(1);
    let context_max = args.context.iter().copied().max().unwrap_or(1);
    let mut bench = Bench::new(&device, &architecture, layout, (batch_max, context_max), args)?;
    for &context in &args.context {
        for &batch in &args.batch {
            let (step_ms, busy_ms) = bench.measure(batch, context, args.steps)?;
            let floor_ms = floor_ms(&architecture, u64::from(batch) * u64::from(context));
            println!(
                "{batch:>6} {context:>8} {step_ms:>12.4} {busy_ms:>12.4} {floor_ms:>10.3} {:>7.0}%",
                100.0 * floor_ms / step_ms
            );
            records.push(json!({
                "model": args.model, "batch": batch, "context": context, "layout": args.layout, "stage": args.stage,
                "batch_invariant": args.batch_invariant, "criterion": args.criterion, "ms_per_loop": step_ms, "busy_ms": busy_ms,
                "floor_ms": floor_ms, "commit": args.commit,
                "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            }));
        }
    }
    append(args.out.as_deref(), records)
}

/// Weights once, and the KV of every context, at the copy rate.
fn floor_ms(architecture: &Architecture, context_tokens: u64) -> f64 {
    let bytes = architecture.core_params() * 2 + context_tokens * architecture.core_kv_bytes();
    bytes as f64 / COPY_BYTES_PER_NS / 1e6
}

/// Full depth, replayed, or by a criterion that is met after no loop that counts.
fn exits(criterion: Option<&str>, r_max: Depth) -> Result<LiveExits, Failure> {
    let Some(name) = criterion else { return Ok(LiveExits::Replay(Arc::new(Full(r_max)))) };
    let criterion = Criterion::ALL.into_iter().find(|criterion| criterion.name() == name);
    let criterion = criterion.ok_or_else(|| format!("no such criterion: {name}"))?;
    let threshold = match criterion {
        Criterion::Hazard => 1.0 - f32::EPSILON,
        Criterion::ArgmaxStability => f32::from(r_max.0 - 1),
        Criterion::LatentDifference | Criterion::EntropyDifference | Criterion::Kl => f32::MIN_POSITIVE,
    };
    Ok(LiveExits::Gate(GateSpec { criterion: Some(criterion), ..GateSpec::at(threshold) }))
}

struct Bench {
    executor: CudaExecutor,
    clock: WallClock,
    stage: Stage,
    r_max: Depth,
    next_id: u64,
}

impl Bench {
    fn new(
        device: &CudaDevice,
        architecture: &Architecture,
        layout: Layout,
        (batch, context): (u32, u32),
        args: &Args,
    ) -> Result<Self, Failure> {
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == args.stage).ok_or("no such stage")?;
        let r_max = architecture.r_max;
        let planes = layout.planes(r_max);
        let blocks = batch * context.div_ceil(BLOCK_TOKENS) * u32::from(planes);
        let defaults = SchedulerConfig::of(architecture);
        let scheduler = SchedulerConfig {
            overlap: Overlap::Synchronous,
            max_num_seqs: batch,
            max_num_batched_tokens: 64,
            min_free_slots: 1,
            max_context_tokens: context.max(1024),
            kv: KvConfig { layout, blocks, block_tokens: BLOCK_TOKENS, ..defaults.kv },
            ..defaults
        };
        let config = LiveConfig {
            prompt_seed: 1,
            initial_state: InitialState::Noise { seed: 2 },
            ..LiveConfig::new(scheduler, exits(args.criterion.as_deref(), r_max)?)
        };
        let options = CudaOptions { batch_invariant: args.batch_invariant, graphs: !args.no_graphs };
        let model = CudaModel::new(device, architecture, WeightSource::Random { seed: 5 })?;
        let executor = CudaExecutor::new(&model, config, options)?;
        executor.fill_kv_with_noise(3)?;
        Ok(Self { executor, clock: WallClock::start(), stage, r_max, next_id: 0 })
    }

    /// Median milliseconds from one step's end to the next, with the queue kept full, and of a step alone.
    fn measure(&mut self, batch: u32, context: u32, steps: usize) -> Result<(f64, f64), Failure> {
        let stage = self.stage;
        let prelude = self.batch(Stage::Prelude, batch, context, Depth::FIRST, true);
        self.executor.launch(prelude, &mut self.clock)?;
        let mut finished = Vec::new();
        let mut busy = Vec::new();
        let (ahead, total) = (3, steps + 8);
        self.executor.wait(&mut self.clock)?;
        for step in 0..total + ahead {
            if step < total {
                let depth = Depth(1 + (step % usize::from(self.r_max.0)) as u8);
                let next = self.batch(stage, batch, context, depth, false);
                self.executor.launch(next, &mut self.clock)?;
            }
            if step >= ahead {
                let outcome = self.executor.wait(&mut self.clock)?;
                finished.push(outcome.finished.as_millis());
                busy.push((outcome.finished - outcome.started).as_millis());
            }
        }
        let steps = finished.windows(2).skip(8).map(|pair| pair[1] - pair[0]).collect();
        Ok((median(steps), median(busy.split_off(8))))
    }

    fn batch(&mut self, stage: Stage, batch: u32, context: u32, depth: Depth, admits: bool) -> Batch {
        let pages_each = context.div_ceil(BLOCK_TOKENS);
        let mut edits = Vec::new();
        if admits {
            for slot in 0..batch {
                let request =
                    Request { id: RequestId(slot), arrival: Nanos::ZERO, prompt_tokens: context, max_output_tokens: 1 };
                let arrival = Arrival { request, output_tokens: 1, cancel_after: None };
                // What the last batch size left.
                self.executor.forget(request.id);
                self.executor.submit(&arrival.into()).expect("it asks for nothing special");
                edits.push(TableEdit::Admit(Slot(slot), request));
                edits.extend((0..pages_each).map(|n| {
                    // Neighbours in a table are none in the pool.
                    let (index, all) = (u64::from(slot * pages_each + n), u64::from(batch * pages_each));
                    TableEdit::Append(Slot(slot), Page(((index * 7919) % all) as u32))
                }));
            }
        }
        let (input, emits) = match stage {
            Stage::Prelude => (Input::Sampled, Emits::Nothing),
            Stage::Forward => (Input::Sampled, Emits::Last),
            Stage::Coda => (Input::Carried, Emits::Last),
            _ => (Input::Carried, Emits::Nothing),
        };
        let row = |slot| Row {
            slot: Slot(slot),
            request: RequestId(slot),
            epoch: 0,
            token: 0,
            span: Span::one(context - 1),
            depth,
            input,
            emits,
        };
        self.next_id += 1;
        Batch { id: self.next_id - 1, stage, rows: (0..batch).map(row).collect(), edits }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
