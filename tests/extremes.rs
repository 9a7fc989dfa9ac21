//! Every number of a model, a device and a scenario at its extremes: an error that names the field, or finite results.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;

use engine::architecture::Architecture;
use engine::profile::{DeviceSpec, Profile};
use proptest::prelude::*;
use serde_json::{Value, json};
use sim::run::compare;
use sim::run::plan::{Plan, PlanError};
use sim::run::serve::{Discard, serve};
use sim::scenario::Scenario;

/// Few tokens, so that even a cost per token is paid quickly; two loops at least, so that there are bounds.
fn scenario() -> Value {
    json!({
        "model": { "custom": Architecture::builtin("tiny-huginn").unwrap() },
        "profile": { "roofline": { "gpu": "h100-80gb", "bandwidth_share": 1, "compute_share": 1 } },
        "workload": {
            "lengths": { "fixed": { "prompt_tokens": 9, "output_tokens": 4 } },
            "requests": 3,
            "arrivals": "offline",
        },
        "exits": "full_depth",
        "scheduler": { "max_num_seqs": 4, "max_num_batched_tokens": 64, "min_free_slots": 1, "max_context_tokens": 64 },
        "kv": { "blocks": 512, "block_tokens": 16 },
        "slo": { "ttft_ms": 100 },
    })
}

fn at<'a>(tree: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(tree, |tree, key| &mut tree[key])
}

/// What the scenario comes to: everything that a report shows of it is finite.
fn outcome(scenario: &Value) -> Result<(), PlanError> {
    let reason = |error: serde_json::Error| PlanError { path: String::new(), reason: error.to_string() };
    let scenario: Scenario = serde_json::from_value(scenario.clone()).map_err(reason)?;
    let plan = Plan::new(scenario)?;
    let Ok(runs) = compare::compare(&plan, |planned| serve(&plan, planned, &mut Discard));
    for run in runs {
        let metrics = &run.metrics;
        assert_eq!(metrics.requests.arrived, u64::from(plan.workload.requests()));
        let nothing = metrics.requests.finished == 0;
        let finite = |name: &str, value: f64| assert!(value.is_finite() || nothing, "{name} of {}: {value}", run.name);
        finite("makespan", metrics.makespan_s);
        finite("throughput", metrics.throughput_tokens_per_s);
        finite("TTFT", metrics.ttft.mean);
        let bounds = run.bounds.map(|bounds| [bounds.speedup, bounds.s_dec, bounds.s_e2e, bounds.realised_share]);
        bounds.into_iter().flatten().for_each(|value| finite("a bound", value));
        if let Some(floor) = run.floor {
            finite("the share at the floor", floor.realised_share);
        }
        assert!(metrics.makespan_s > 0.0 || nothing, "time stood still");
        // Wrapped time would be in the past.
        assert!(metrics.ttft.mean <= metrics.makespan_s * 1.01, "{} of {}", metrics.ttft.mean, metrics.makespan_s);
    }
    Ok(())
}

fn whole_extremes() -> Vec<Value> {
    let large = [254, 255, 256, 1 << 20, (1 << 20) + 1, u64::from(u32::MAX), 1 << 53, u64::MAX];
    [json!(-1), json!(0), json!(1), json!(2)].into_iter().chain(large.map(Value::from)).collect()
}

fn float_extremes() -> Vec<Value> {
    let floats = [-1.0, 0.0, f64::MIN_POSITIVE, 1e-300, 1e-9, 1.0, 1e9, 1.1e9, 1e18, 1e300, f64::MAX];
    floats.map(Value::from).into()
}

const MODEL: [&str; 10] =
    ["vocab", "hidden", "ffn", "heads", "head_dim", "prelude_layers", "core_layers", "coda_layers", "r_max", "r_min"];

#[test]
fn zero_and_the_largest_number_are_refused_in_every_field_of_a_model() {
    for field in MODEL {
        for extreme in [0, u64::MAX] {
            let mut scenario = scenario();
            scenario["model"]["custom"][field] = extreme.into();
            let optional = extreme == 0 && ["prelude_layers", "coda_layers"].contains(&field);
            match outcome(&scenario) {
                Ok(()) => assert!(optional, "{field}: {extreme} was taken"),
                Err(error) if error.path.is_empty() => assert!(error.reason.contains("up to 255"), "{field}: {error}"),
                Err(error) => assert_eq!(error.path, format!("model.custom.{field}"), "{error}"),
            }
        }
    }
}

#[test]
fn a_bandwidth_that_takes_longer_than_the_clock_counts_is_refused() {
    let mut wrapping = scenario();
    wrapping["profile"]["roofline"]["bandwidth_share"] = 1e-300.into();
    let said = outcome(&wrapping).unwrap_err().reason;
    assert!(said.contains("must be between 0.000001 and 1, got 1e-300"), "{said}");
    let mut slow = scenario();
    slow["profile"]["roofline"]["bandwidth_share"] = 1e-6.into();
    slow["model"]["custom"]["ffn"] = (1 << 20).into();
    slow["model"]["custom"]["core_layers"] = 10.into();
    slow["model"]["custom"]["r_max"] = 254.into();
    slow["workload"]["requests"] = 100_000.into();
    slow["scheduler"]["max_context_tokens"] = 1_000_000.into();
    slow["workload"]["lengths"]["fixed"]["output_tokens"] = 100_000.into();
    let error = outcome(&slow).unwrap_err();
    assert!(error.path == "profile" && error.reason.contains("a run can count 5e9 s"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_model_is_an_error_or_has_finite_results(
        changes in prop::collection::vec((prop::sample::select(MODEL.to_vec()), prop::sample::select(whole_extremes())), 1..4),
        all in prop::option::of(prop::sample::select(vec![1_u64, 2, 1024])),
    ) {
        let mut scenario = scenario();
        for field in MODEL.into_iter().filter(|_| all.is_some()) {
            scenario["model"]["custom"][field] = all.unwrap().min(254).into();
        }
        for (field, extreme) in changes {
            scenario["model"]["custom"][field] = extreme;
        }
        let _ = outcome(&scenario);
    }

    #[test]
    fn any_scenario_is_an_error_or_has_finite_results(
        whole in prop::collection::vec((prop::sample::select(vec![
            "seed", "scheduler.max_num_seqs", "scheduler.max_num_batched_tokens", "scheduler.min_free_slots",
            "scheduler.max_context_tokens", "kv.block_tokens", "live.threads", "workload.max_total_tokens",
            "workload.lengths.fixed.prompt_tokens",
        ]), prop::sample::select(whole_extremes())), 0..3),
        float in prop::collection::vec((prop::sample::select(vec![
            "profile.roofline.bandwidth_share", "profile.roofline.compute_share", "slo.ttft_ms", "kv.headroom",
        ]), prop::sample::select(float_extremes())), 0..3),
        arrivals in prop::option::of((prop::sample::select(float_extremes()), prop::sample::select(float_extremes()))),
    ) {
        let mut scenario = scenario();
        whole.into_iter().chain(float).for_each(|(path, extreme)| *at(&mut scenario, path) = extreme);
        // A prompt in chunks of one token is prefilled for ever.
        let prompt = &mut scenario["workload"]["lengths"]["fixed"]["prompt_tokens"];
        if prompt.as_u64().is_some_and(|tokens| (10_000..1 << 30).contains(&tokens)) {
            *prompt = 10_000.into();
        }
        if let Some((rate, duration)) = arrivals {
            scenario["workload"]["arrivals"] = json!({ "poisson": { "rate_per_s": rate, "duration_s": duration } });
            scenario["output"] = json!({ "capacity": false });
        }
        let _ = outcome(&scenario);
    }

    #[test]
    fn any_profile_is_an_error_or_has_finite_results(
        changes in prop::collection::vec((prop::sample::select(vec![
            "core.delta_ms", "core.floor_ms", "core.gamma_us", "core.alpha_ns", "prelude.delta_ms", "coda.floor_ms",
            "prefill.delta_ms", "prefill.floor_ms", "prefill.gamma_us", "prefill.alpha_ns", "prefill.tile_pairs",
            "host.build_us", "host.build_row_us", "host.launch_us", "host.read_us", "stage_overhead_us",
            "device.bandwidth_gb_per_s", "device.compute_tflops", "transfer.plane_copy_gb_per_s", "kv_tile.share",
        ]), prop::sample::select(float_extremes())), 1..4),
        tile in prop::sample::select(vec![0, 1, 128, u32::MAX - 1, u32::MAX]),
    ) {
        let device = DeviceSpec::datasheet("h100-80gb").unwrap();
        let mut profile = serde_json::to_value(Profile::roofline(&device, &Architecture::builtin("tiny-huginn").unwrap())).unwrap();
        profile["transfer"]["offload_gb_per_s"] = 50.0.into();
        profile["kv_tile"] = json!({ "tokens": tile, "share": 0.5 });
        changes.into_iter().for_each(|(path, extreme)| *at(&mut profile, path) = extreme);
        // JSON is YAML.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(profile.to_string().as_bytes()).unwrap();
        let mut scenario = scenario();
        scenario["profile"] = json!({ "file": file.path() });
        let _ = outcome(&scenario);
    }
}
