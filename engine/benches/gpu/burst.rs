//! `bench burst`: requests that arrive at once, served by the real scheduler; throughput, latencies, idle share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use engine::architecture::Architecture;
use engine::batch::Stage;
use engine::event_loop;
use engine::inbox::replay;
use engine::live::LiveExits;
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, CudaStats, WeightSource};
use engine::scheduler::{Mode, Overlap};
use engine::units::Nanos;
use serde_json::json;

use crate::Failure;
use crate::run::{Mix, Settings, Steps, append, arrivals, parse_layout};
use engine::live::wall_clock::WallClock;

#[derive(Parser)]
pub(crate) struct Args {
    #[arg(long, default_value = "ouro-1.4b")]
    model: String,
    /// Requests.
    #[arg(long, default_value_t = 1)]
    requests: u32,
    /// W: resident sequences; all requests by default.
    #[arg(long)]
    resident: Option<u32>,
    #[arg(long, default_value_t = 512)]
    prompt: u32,
    #[arg(long, default_value_t = 128)]
    output: u32,
    /// continuous_batching, no_refill, refill; several run one after the other.
    #[arg(long, value_delimiter = ',', default_value = "continuous_batching")]
    mode: Vec<String>,
    /// K of refill.
    #[arg(long, default_value_t = 1)]
    k: u32,
    #[arg(long, default_value = "last_exited")]
    layout: String,
    #[arg(long, value_delimiter = ',', default_value = "lookahead")]
    overlap: Vec<String>,
    /// `full`, or shares: 2:0.25,3:0.55,4:0.2.
    #[arg(long, default_value = "full")]
    depths: String,
    /// S: free slots that a prefill waits for; an eighth of W by default.
    #[arg(long)]
    min_free_slots: Option<u32>,
    #[arg(long)]
    batch_invariant: bool,
    /// Fails unless every run gives the same tokens as the first.
    #[arg(long)]
    same_tokens: bool,
    #[arg(long, default_value = "unknown")]
    commit: String,
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let architecture = Architecture::builtin(&args.model).ok_or("no such model")?;
    let device = CudaDevice::open(0)?;
    let model = CudaModel::new(&device, &architecture, WeightSource::Random { seed: 5 })?;
    let mix = if args.depths == "full" { Mix::full(architecture.r_max) } else { Mix::parse(&args.depths)? };
    let resident = args.resident.unwrap_or(args.requests);
    println!(
        "{}, {} requests of {} + {} tokens, W = {resident}, {}, depths {} (mean {:.2}), invariant: {}",
        args.model,
        args.requests,
        args.prompt,
        args.output,
        args.layout,
        args.depths,
        mix.mean(),
        args.batch_invariant
    );
    let mut first: Option<Vec<Vec<u32>>> = None;
    let mut records = Vec::new();
    for (mode, overlap) in args.mode.iter().flat_map(|mode| args.overlap.iter().map(move |overlap| (mode, overlap))) {
        let settings = Settings {
            mode: parse_mode(mode, args.k)?,
            overlap: parse_overlap(overlap)?,
            layout: parse_layout(&args.layout)?,
            max_num_seqs: resident,
            min_free_slots: args.min_free_slots,
            context: args.prompt + args.output,
            ..Settings::of(&architecture)
        };
        let (config, mut scheduler) =
            settings.ready(&device, &architecture, LiveExits::Replay(Arc::new(mix.clone())))?;
        let options = CudaOptions { batch_invariant: args.batch_invariant, ..CudaOptions::default() };
        let mut executor = CudaExecutor::new(&model, config, options)?;
        // A first request of the same shape, so that nothing is compiled, chosen or pinned while we measure.
        event_loop::run(
            &mut engine::scheduler::Scheduler::new(config_of(&scheduler))?,
            &mut executor,
            &mut WallClock::start(),
            &mut replay(arrivals(resident.min(args.requests), args.prompt, 3)),
            &mut Steps::default(),
        )?;
        executor.reset();
        let mut steps = Steps::default();
        let requests = arrivals(args.requests, args.prompt, args.output);
        event_loop::run(&mut scheduler, &mut executor, &mut WallClock::start(), &mut replay(requests), &mut steps)?;
        let figures = Figures::new(&steps, resident as usize, executor.stats());
        println!("-- {mode}, {overlap}\n{figures}");
        let tokens: Vec<Vec<u32>> = executor.transcripts().iter().map(|(_, t)| t.output.clone()).collect();
        match &first {
            Some(first) if args.same_tokens => {
                let differing = first.iter().zip(&tokens).filter(|(a, b)| a != b).count();
                println!("requests whose tokens differ from the first run's: {differing} of {}", tokens.len());
                if differing > 0 {
                    return Err("the tokens must be the same".into());
                }
            }
            Some(_) => {}
            None => first = Some(tokens),
        }
        records.push(json!({
            "model": args.model, "concurrency": resident, "requests": args.requests, "prompt": args.prompt,
            "output": args.output, "mode": mode, "min_free_slots": args.min_free_slots, "overlap": overlap, "k": args.k, "layout": args.layout,
            "depth_policy": args.depths, "mean_depth": mix.mean(), "batch_invariant": args.batch_invariant,
            "tokens_per_s": figures.tokens_per_s, "window_tokens_per_s": figures.window_tokens_per_s,
            "ttft_ms": figures.ttft_ms, "tpot_ms": figures.tpot_ms, "decode_tpot_ms": figures.decode_tpot_ms,
            "prefill_tokens_per_s": figures.prefill_tokens_per_s, "prefill_share": figures.prefill_share,
            "mean_core_batch": figures.mean_core_batch, "idle_share": figures.stats.idle_share(),
            "steps": figures.steps, "eager_fallbacks": figures.stats.eager_fallbacks,
            "readbacks": figures.stats.readbacks, "commit": args.commit,
            "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        }));
    }
    append(args.out.as_deref(), records)
}

fn config_of(scheduler: &engine::scheduler::Scheduler) -> engine::scheduler::SchedulerConfig {
    *scheduler.config()
}

/// What a run amounts to.
struct Figures {
    tokens_per_s: f64,
    /// In the steady window: after 2 W completions, until the last admission.
    window_tokens_per_s: Option<f64>,
    ttft_ms: f64,
    tpot_ms: f64,
    /// Between tokens behind the last prefill.
    decode_tpot_ms: f64,
    prefill_tokens_per_s: f64,
    prefill_share: f64,
    mean_core_batch: f64,
    steps: Vec<(&'static str, usize)>,
    stats: CudaStats,
}

impl Figures {
    fn new(run: &Steps, resident: usize, stats: CudaStats) -> Self {
        let ms = |nanos: Nanos| nanos.as_millis();
        let of = |stage| run.steps.iter().filter(move |step| step.stage == stage);
        let span = |stage| of(stage).map(|step| ms(step.finished - step.started)).sum::<f64>();
        let end = run.steps.last().map_or(0.0, |step| ms(step.finished));
        let all: usize = run.tokens.values().map(Vec::len).sum();
        let last_prefill = of(Stage::Prefill).map(|step| step.finished).max().unwrap_or_default();
        let mut completions: Vec<Nanos> = run.tokens.values().filter_map(|times| times.last().copied()).collect();
        completions.sort_unstable();
        let last_admission = run.steps.iter().filter(|step| step.admitted > 0).map(|step| step.started).max();
        let window = completions.get(2 * resident).copied().zip(last_admission).filter(|(open, close)| open < close);
        let inside = |time: Nanos| window.is_none_or(|(open, close)| open <= time && time <= close);
        let window_tokens = run.tokens.values().flatten().filter(|time| inside(**time)).count();
        let core: Vec<f64> = of(Stage::Core).filter(|step| inside(step.started)).map(|step| step.rows as f64).collect();
        let gaps = |from: Nanos| {
            let per_token = run.tokens.values().filter_map(|times| {
                let times: Vec<f64> = times.iter().filter(|time| **time >= from).map(|time| ms(*time)).collect();
                (times.len() > 1).then(|| (times[times.len() - 1] - times[0]) / (times.len() - 1) as f64)
            });
            mean(per_token.collect())
        };
        Self {
            tokens_per_s: all as f64 / end * 1e3,
            window_tokens_per_s: window.map(|(open, close)| window_tokens as f64 / ms(close - open) * 1e3),
            ttft_ms: mean(run.tokens.values().filter_map(|times| times.first()).map(|time| ms(*time)).collect()),
            tpot_ms: gaps(Nanos::ZERO),
            decode_tpot_ms: gaps(last_prefill + Nanos(1)),
            prefill_tokens_per_s: f64::from(of(Stage::Prefill).map(|step| step.tokens).sum::<u32>())
                / span(Stage::Prefill)
                * 1e3,
            prefill_share: span(Stage::Prefill) / stats.busy_ms,
            mean_core_batch: mean(core),
            steps: Stage::ALL.into_iter().map(|stage| (stage.name(), of(stage).count())).filter(|s| s.1 > 0).collect(),
            stats,
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "throughput {:.1} tokens/s, in the steady window {:?}",
            self.tokens_per_s, self.window_tokens_per_s
        )?;
        writeln!(
            f,
            "TTFT {:.1} ms, TPOT {:.3} ms end to end, {:.3} ms behind the last prefill",
            self.ttft_ms, self.tpot_ms, self.decode_tpot_ms
        )?;
        writeln!(
            f,
            "prefill {:.0} tokens/s, {:.1}% of busy time; mean core batch {:.1}; idle {:.2}%",
            self.prefill_tokens_per_s,
            100.0 * self.prefill_share,
            self.mean_core_batch,
            100.0 * self.stats.idle_share()
        )?;
        write!(f, "steps {:?}; {:?}", self.steps, self.stats)
    }
}

fn mean(values: Vec<f64>) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn parse_mode(name: &str, k: u32) -> Result<Mode, Failure> {
    match name {
        "continuous_batching" => Ok(Mode::ContinuousBatching),
        "no_refill" => Ok(Mode::NoRefill),
        "refill" => Ok(Mode::Refill { min_coda_batch: k }),
        _ => Err(format!("no such mode: {name}").into()),
    }
}

fn parse_overlap(name: &str) -> Result<Overlap, Failure> {
    match name {
        "synchronous" => Ok(Overlap::Synchronous),
        "asynchronous" => Ok(Overlap::Asynchronous),
        "lookahead" => Ok(Overlap::Lookahead),
        _ => Err(format!("no such overlap: {name}").into()),
    }
}
