//! `calibrate --endpoint URL --model ..`: a profile of a server that is only seen from outside.

use std::path::Path;

use calibrate::error::CalibrateError;
use calibrate::measurements::table_text;
use calibrate::outside::{self, CANNOT_TELL, Grid, Outside};
use calibrate::tables;
use clap::Args;
use client::{Endpoint, Exits, Wishes};
use engine::live::wall_clock::WallClock;
use engine::profile::{Buckets, DeviceSpec};

use super::device::REVISION;
use super::measure::MeasureArgs;
use super::{buckets, keep_inputs, machine, model, write_yaml};

/// Rounds at least, so that a disturbance is not all that is seen of a point.
const ROUNDS_MIN: u32 = 3;

/// Output tokens of a request: enough steps behind the last prefill.
const OUTPUT_TOKENS: u32 = 40;

#[derive(Args)]
pub(crate) struct EndpointArgs {
    /// Times an OpenAI-compatible server instead, like http://127.0.0.1:8000, through its answers. It must be idle otherwise.
    #[arg(long, value_name = "URL", conflicts_with_all = ["device", "weights", "loops"])]
    pub(super) endpoint: Option<String>,
    /// The model's name there; the first that the server names by default.
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    served_model: Option<String>,
    /// The environment's variable that has the API key.
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    api_key_env: Option<String>,
}

/// Times the server, fits, prints the fit and writes the profile and the times.
pub(super) fn measure(url: &str, args: &MeasureArgs, table: &Path) -> Result<(), CalibrateError> {
    keep_inputs([] as [&Path; 0], [args.out.as_path(), table])?;
    let model = model(&args.model)?;
    let padding = if args.buckets == "auto" { Buckets::Exact } else { buckets(&args.buckets)? };
    let endpoint = endpoint(url, &args.at)?;
    let failed = |reason: String| CalibrateError::Server { endpoint: endpoint.to_string(), reason };
    let wishes = Wishes {
        model: args.at.served_model.clone(),
        vocab: Some(u32::try_from(model.vocab).unwrap_or(u32::MAX)),
        seed: args.on.seed,
        exits: Exits::FullDepth,
    };
    let (dialect, _) = client::probe(&endpoint, &wishes).map_err(|error| failed(error.to_string()))?;
    let grid = Grid {
        batches: args.on.batches.clone().unwrap_or_else(|| vec![1, 2, 4, 8, 16]),
        contexts: args.on.contexts.clone().unwrap_or_else(|| vec![32, 128, 256, 512]),
        prompts: prompts(args.on.contexts.as_deref()),
        output_tokens: OUTPUT_TOKENS,
        loops: model.r_max,
    };
    let clock = WallClock::start();
    let rounds_min = args.on.rounds.unwrap_or(ROUNDS_MIN);
    let rounds = outside::measure((&endpoint, &dialect), &grid, (&clock, args.on.budget), rounds_min)?;
    for left_out in &rounds.left_out {
        eprintln!("left out: {left_out}");
    }
    let outside = Outside::new(&rounds, &model, padding)?;
    let device = device(args, &endpoint);
    let name = args.name.clone().unwrap_or_else(|| format!("{} at {endpoint}", model.name));
    let date = args.date.clone().unwrap_or_else(machine::today);
    let source = format!(
        "seen from outside {date} by `calibrate --endpoint {endpoint} --model {}` at revision {REVISION}; {} rounds; {} prompts",
        args.model,
        rounds.complete,
        dialect.prompts()
    );
    let profile = outside.profile(&model, &device, padding, (&name, &source))?;
    let text = table_text(&source, &rounds.rows);
    files::write_whole(table, text.as_bytes())
        .map_err(|source| CalibrateError::Write { path: table.into(), source })?;
    write_yaml(&profile, &args.out)?;
    print!("{}", tables::outside(&outside));
    eprintln!("{CANNOT_TELL}");
    eprintln!("wrote {}", args.out.display());
    Ok(())
}

/// Lengths of single prompts: eight, over the range of the contexts.
fn prompts(contexts: Option<&[u32]>) -> Vec<u32> {
    let (first, last) = match contexts {
        Some([first, .., last]) => (*first, *last),
        Some([only]) => (1, *only),
        _ => (16, 512),
    };
    let mut lengths: Vec<u32> = (0..8).map(|n| first.max(1) + (last.saturating_sub(first)) * n / 7).collect();
    lengths.dedup();
    lengths
}

fn endpoint(url: &str, at: &EndpointArgs) -> Result<Endpoint, CalibrateError> {
    let key = at.api_key_env.as_ref().map(|name| {
        let key = std::env::var(name).ok().filter(|key| !key.is_empty());
        let reason = format!("{name}: the environment has no such variable, or it is empty");
        key.ok_or(CalibrateError::Argument { option: "--api-key-env", reason })
    });
    let key = key.transpose()?;
    let wrong =
        |reason: client::EndpointError| CalibrateError::Argument { option: "--endpoint", reason: reason.to_string() };
    Endpoint::new(url, key.as_deref()).map_err(wrong)
}

/// A built-in datasheet's limits; nobody else knows what limits a server's device has.
fn device(args: &MeasureArgs, endpoint: &Endpoint) -> DeviceSpec {
    let name = args.device_name.clone().unwrap_or_else(|| endpoint.to_string());
    DeviceSpec::datasheet(&name).unwrap_or(DeviceSpec {
        name,
        bandwidth_gb_per_s: f64::INFINITY,
        compute_tflops: f64::INFINITY,
    })
}
