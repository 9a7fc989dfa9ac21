//! `bench logits`: one request's tokens and logits, for a reference in another language.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use engine::architecture::Architecture;
use engine::event_loop;
use engine::inbox::replay;
use engine::layout::Layout;
use engine::live::LiveExits;
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::request::RequestId;
use engine::scheduler::Mode;
use engine::units::Depth;
use serde_json::json;

use crate::Failure;
use crate::run::{Mix, Settings, Steps, arrivals};
use engine::live::wall_clock::WallClock;

#[derive(Parser)]
pub(crate) struct Args {
    #[arg(long, default_value = "ouro-1.4b")]
    model: String,
    /// Layers in the loop: few make rounding errors comparable with a layer's.
    #[arg(long, default_value_t = 1)]
    core_layers: u64,
    #[arg(long, default_value_t = 2)]
    r_max: u8,
    #[arg(long, default_value_t = 200)]
    prompt: u32,
    #[arg(long, default_value_t = 4)]
    output: u32,
    #[arg(long, default_value_t = 3)]
    requests: u32,
    #[arg(long)]
    batch_invariant: bool,
    #[arg(long)]
    staged: bool,
    /// Where tokens (JSON) and logits (f32, `.bin` beside it) go.
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let built_in = Architecture::builtin(&args.model).ok_or("no such model")?;
    let outside = u64::from(built_in.form().injects());
    let r_max = Depth(args.r_max);
    let architecture = Architecture {
        core_layers: args.core_layers,
        prelude_layers: outside,
        coda_layers: outside,
        r_max,
        r_min: Depth(2.min(args.r_max)),
        ..built_in
    };
    let settings = Settings {
        mode: if args.staged { Mode::Refill { min_coda_batch: 1 } } else { Mode::ContinuousBatching },
        max_num_seqs: args.requests,
        layout: Layout::LastExited,
        context: args.prompt + args.output,
        keep_logits: true,
        ..Settings::of(&architecture)
    };
    let device = CudaDevice::open(0)?;
    let model = CudaModel::new(&device, &architecture, WeightSource::Random { seed: 5 })?;
    let exits = LiveExits::Replay(Arc::new(Mix::full(r_max)));
    let (config, mut scheduler) = settings.ready(&device, &architecture, exits)?;
    let options = CudaOptions { batch_invariant: args.batch_invariant, ..CudaOptions::default() };
    let mut executor = CudaExecutor::new(&model, config, options)?;
    let mut arrivals = replay(arrivals(args.requests, args.prompt, args.output));
    let mut steps = Steps::default();
    event_loop::run(&mut scheduler, &mut executor, &mut WallClock::start(), &mut arrivals, &mut steps)?;
    let transcripts: Vec<_> =
        (0..args.requests).map(|request| executor.transcripts().get(RequestId(request)).clone()).collect();
    let logits: Vec<f32> = transcripts.iter().flat_map(|t| t.logits.iter().flatten().copied()).collect();
    std::fs::write(args.out.with_extension("bin"), bytemuck::cast_slice(&logits))?;
    let tokens: Vec<_> = transcripts.iter().map(|t| json!({"prompt": t.prompt, "output": t.output})).collect();
    let shape = json!({"model": args.model, "core_layers": args.core_layers, "outside": outside, "r_max": args.r_max,
        "seed": 5, "noise_seed": 2, "requests": tokens});
    std::fs::write(&args.out, serde_json::to_string(&shape)?)?;
    println!("{} requests, {} logits", args.requests, logits.len());
    Ok(())
}
