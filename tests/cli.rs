//! The command line, as a user meets it: what it writes, and what it says of bad input.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use engine::architecture::Architecture;
use engine::live::weights::folder::ModelFolder;
use engine::units::Depth;
use serde_json::Value;

const SHAREGPT: &str = "model: ouro-1.4b
profile: h100-paper
workload:
  lengths: sharegpt
  requests: 40
  arrivals: offline
exits:
  preset: { name: ouro-q0.2 }
seed: 3
";

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).env("NO_COLOR", "1").output().expect("sim was built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a scenario's text and returns the folder with its scenario, data files and output.
fn run(yaml: &str, arguments: &[&str]) -> (tempfile::TempDir, Output) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("lengths.csv"), "prompt_tokens,output_tokens,exit_depths\n10,3,2 4\n20,1,\n").unwrap();
    let scenario = dir.path().join("scenario.yaml");
    fs::write(&scenario, yaml).unwrap();
    let out = dir.path().join("out");
    let mut all = vec![scenario.to_str().unwrap(), "--out", out.to_str().unwrap()];
    all.extend(arguments);
    let output = sim(&all);
    (dir, output)
}

/// Bad input: exit code 2, nothing on stdout, nothing written, and an error that holds every one of `said`.
fn refuses(yaml: &str, arguments: &[&str], said: &[&str]) {
    let (dir, output) = run(yaml, arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{yaml}\n{arguments:?}\n{stderr}");
    assert_eq!(text(&output.stdout), "");
    assert!(!dir.path().join("out").exists(), "something was written");
    // The report wraps its lines.
    let flat = stderr.replace(['│', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
    for part in said {
        assert!(flat.contains(part), "`{part}` is not in: {flat}");
    }
}

fn with(field: &str, value: &str) -> String {
    let line =
        SHAREGPT.lines().find(|line| line.trim_start().starts_with(&format!("{field}:"))).expect("a line to replace");
    let indent = &line[..line.len() - line.trim_start().len()];
    SHAREGPT.replace(line, &format!("{indent}{field}: {value}"))
}

#[test]
fn a_run_writes_its_files_and_prints_its_summary() {
    let (dir, output) = run(SHAREGPT, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("refill K=1"));
    let files = [
        "summary.json",
        "scenario.yaml",
        "report.html",
        "requests.parquet",
        "steps.parquet",
        "trace.json",
        "throughput.svg",
        "throughput.png",
    ];
    for file in files {
        assert!(dir.path().join("out").join(file).metadata().is_ok_and(|meta| meta.len() > 0), "{file} is missing");
    }
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("out/summary.json")).unwrap()).unwrap();
    let schedulers = summary["schedulers"].as_array().unwrap();
    assert_eq!(schedulers.len(), 3);
    for scheduler in schedulers {
        for key in [
            "throughput_tokens_per_s",
            "speedup",
            "s_dec",
            "s_e2e",
            "realised_share",
            "mean_core_batch",
            "prefill_share",
        ] {
            assert!(scheduler[key].as_f64().is_some_and(f64::is_finite), "{key}: {}", scheduler[key]);
        }
        assert_eq!(scheduler["requests"]["arrived"], 40);
        assert_eq!(scheduler["requests"]["finished"], 40);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let files = [
        "summary.json",
        "requests.parquet",
        "steps.parquet",
        "trace.json",
        "report.html",
        "scenario.yaml",
        "throughput.png",
    ];
    let bytes = |arguments: &[&str]| {
        let (dir, output) = run(SHAREGPT, arguments);
        assert!(output.status.success());
        files.map(|file| fs::read(dir.path().join("out").join(file)).unwrap())
    };
    let first = bytes(&[]);
    // The machine is busy this time.
    let second = std::thread::scope(|scope| {
        let busy = scope.spawn(|| bytes(&["--set", "seed=4"]));
        let second = bytes(&[]);
        let other = busy.join().unwrap();
        assert_ne!(other[0], first[0]);
        second
    });
    assert!(first == second, "the same scenario gave other bytes");
}

#[test]
fn the_resolved_scenario_gives_the_same_results() {
    let (dir, _) = run(SHAREGPT, &["--set", "scheduler.max_num_seqs=16"]);
    let resolved = fs::read_to_string(dir.path().join("out/scenario.yaml")).unwrap();
    let (again, output) = run(&resolved, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = |dir: &Path| fs::read_to_string(dir.join("out/summary.json")).unwrap();
    assert_eq!(summary(dir.path()), summary(again.path()));
}

#[test]
fn steps_print_nothing_but_the_trace() {
    let (dir, output) = run(SHAREGPT, &["--only", "refill K=1", "--steps", "3"]);
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 5, "{stdout}");
    assert!(stdout.starts_with(
        "index,stage,batch,detail,recurrent_queue,coda_queue,decode_queue,prompt_queue\n0,init,,,0,0,,40\n"
    ));
    assert!(!dir.path().join("out").exists());
    refuses(SHAREGPT, &["--steps", "3"], &["--steps shows one scheduler"]);
}

#[test]
fn a_set_file_overrides_the_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("own.csv");
    fs::write(&csv, "prompt_tokens,output_tokens\n5,3\n5,1\n70000,2\n").unwrap();
    let (out, output) = run(SHAREGPT, &["--set", &format!("workload.file={}", csv.display())]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(out.path().join("out/summary.json")).unwrap()).unwrap();
    let requests = &summary["schedulers"][0]["requests"];
    // One request's fault is its own: it is refused and counted, the rest goes on.
    assert_eq!((&requests["arrived"], &requests["finished"], &requests["refused"]), (&3.into(), &2.into(), &1.into()));
    assert!(text(&output.stderr).contains("request 2 refused"), "{}", text(&output.stderr));
}

#[test]
fn bad_numbers_are_shown_in_their_place() {
    let poisson = |inner: &str| with("arrivals", &format!("{{ poisson: {inner} }}"));
    refuses(&poisson("{ rate_per_s: -4 }"), &[], &["a rate must be finite and positive, got -4", "scenario.yaml:6"]);
    refuses(&poisson("{ rate_per_s: .nan }"), &[], &["a rate must be finite and positive, got NaN"]);
    refuses(&with("requests", "0"), &[], &["scenario.yaml:5", "got 0"]);
    let scheduler = |inner: &str| format!("{SHAREGPT}scheduler: {{ {inner} }}\n");
    refuses(&scheduler("max_num_seqs: 0"), &[], &["must be a whole number from 1", "got 0", "scenario.yaml:10"]);
    refuses(&scheduler("max_num_seqs: 4, min_free_slots: 5"), &[], &["must be between 1 and max_num_seqs = 4, got 5"]);
    let k = format!("{SHAREGPT}compare:\n  - mode: refill\n    min_coda_batch: 65\n");
    refuses(&k, &[], &["must be between 1 and max_num_seqs = 64, got 65", "scenario.yaml:12"]);
}

#[test]
fn contradictions_name_the_field_to_change() {
    refuses(
        &format!("{SHAREGPT}kv: {{ layout: depth_indexed }}\n"),
        &[],
        &["depth_indexed accepts full-depth exits only", "last_exited"],
    );
    let shallow = with("preset", "{ name: ouro-q0.2 }")
        .replace("preset: { name: ouro-q0.2 }", "distribution: { depths: { 1: 0.5, 4: 0.5 } }");
    refuses(&shallow, &[], &["an exit at depth 1 is not possible", "2 to 4"]);
    refuses(&with("model", "huginn-3.5b"), &[], &["ouro-q0.2", "of the family huginn"]);
    refuses(&with("model", "tiny-ouro"), &[], &["the paper has no figures for tiny-ouro", "roofline"]);
    refuses(&format!("{SHAREGPT}variant: best\n"), &[], &["has no variant `best`", "steep_context"]);
    refuses(&with("arrivals", "trace"), &[], &["workload.file"]);
    refuses(&format!("{SHAREGPT}slo: {{}}\n"), &[], &["set at least one of ttft_ms"]);
    let twice = format!("{SHAREGPT}compare:\n  - mode: refill\n  - mode: refill\n");
    refuses(&twice, &[], &["two schedulers are called `refill K=1`"]);
}

#[test]
fn unknown_names_are_errors() {
    refuses(&format!("{SHAREGPT}sed: 3\n"), &[], &["sed", "scenario.yaml:10"]);
    refuses(&with("lengths", "sharegtp"), &[], &["sharegtp", "scenario.yaml:4"]);
    refuses(SHAREGPT, &["--set", "workload.request=3"], &["--set workload.request=3", "request"]);
    refuses(SHAREGPT, &["--set", "seed"], &["write it as path.to.field=value"]);
    refuses(SHAREGPT, &["--only", "best"], &["no such scheduler", "no refill"]);
    refuses(&with("profile", "{ roofline: { gpu: h1000 } }"), &[], &["no datasheet of `h1000`", "h100-80gb"]);
}

#[test]
fn bad_files_are_errors_with_their_line() {
    let file = |name: &str, content: &str, said: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let arguments =
            [format!("workload.file={}", path.display()), "exits=replay".into(), "workload.arrivals=trace".into()];
        let set: Vec<&str> = arguments.iter().flat_map(|argument| ["--set", argument.as_str()]).collect();
        refuses(SHAREGPT, &set, said);
    };
    let header = "prompt_tokens,output_tokens,arrival_s,exit_depths\n";
    file("empty.csv", header, &["no request"]);
    file("late.csv", &format!("{header}4,2,1.0,3\n4,2,0.5,3\n"), &["late.csv", "line 3", "arrival_s"]);
    file("nan.csv", &format!("{header}4,2,nan,3\n"), &["line 2", "arrival_s"]);
    file("short.csv", &format!("{header}4,4,0,3 3\n"), &["line 2", "exit_depths"]);
    file("deep.csv", &format!("{header}4,2,0,5\n"), &["line 2", "5"]);
    file("columns.csv", "prompt,output\n1,2\n", &["prompt_tokens"]);
    refuses(SHAREGPT, &["--set", "workload.file=nowhere.csv"], &["nowhere.csv"]);
}

const LIVE: &str = "model: tiny-ouro
profile: { roofline: { gpu: h200 } }
workload:
  lengths: { fixed: { prompt_tokens: 9, output_tokens: 6 } }
  requests: 12
  arrivals: offline
exits:
  distribution: { depths: { 2: 0.4, 3: 0.4, 4: 0.2 } }
scheduler: { max_num_seqs: 4 }
kv: { layout: last_exited, blocks: 512 }
live: { repeats: 2 }
";

fn validation(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join("out/validation.json")).unwrap()).unwrap()
}

#[test]
fn a_live_run_makes_the_predicted_batches() {
    let gate = "exits={ gate: { threshold: 0.35, lookahead: true } }";
    for arguments in [&["--live", "cpu"][..], &["--live", "cpu", "--set", gate]] {
        let (dir, output) = run(LIVE, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let validation = validation(dir.path());
        for scheduler in validation["schedulers"].as_array().unwrap() {
            assert_eq!(scheduler["batches_identical"], true, "{}", scheduler["first_difference"]);
            assert_eq!(scheduler["predicted"]["mean_core_batch"], scheduler["measured"]["mean_core_batch"]);
            for side in ["predicted", "measured", "error", "live_spread"] {
                for metric in
                    ["throughput_tokens_per_s", "speedup", "s_e2e", "ttft_p99_s", "tpot_mean_s", "normalized_p95_s"]
                {
                    assert!(scheduler[side][metric].as_f64().is_some_and(f64::is_finite), "{side} {metric}");
                }
            }
            assert!(scheduler["ks_distance"]["ttft"].is_f64());
        }
        let timeline = fs::read_to_string(dir.path().join("out/trace.json")).unwrap();
        assert!(timeline.contains("refill K=1, predicted") && timeline.contains("refill K=1, measured"));
    }
}

#[test]
fn a_model_folder_runs_live_with_its_own_loops_and_weights() {
    let folder = tempfile::tempdir().unwrap();
    let model = Architecture { r_max: Depth(3), kv_heads: Some(2), ..Architecture::builtin("tiny-ouro").unwrap() };
    ModelFolder::write_random(&model, 3, &folder.path().join("mine")).unwrap();
    let of = |place: &Path| LIVE.replace("model: tiny-ouro", &format!("model: {{ folder: {} }}", place.display()));
    let scenario = of(&folder.path().join("mine"));
    let (dir, output) = run(&scenario, &["--live", "cpu", "--set", "exits=full_depth"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(validation(dir.path())["schedulers"][0]["batches_identical"], true);
    let summary = fs::read_to_string(dir.path().join("out/summary.json")).unwrap();
    assert!(summary.contains("mine (0-3-0 layers, 3 loops)"), "{summary}");

    fs::remove_file(folder.path().join("mine/model.safetensors")).unwrap();
    refuses(&scenario, &["--live", "cpu", "--set", "exits=full_depth"], &["live.weights", "neither model.safetensors"]);
    refuses(&of(folder.path()), &[], &["model.folder", "config.json"]);
}

#[test]
fn live_requests_that_arrive_in_time_are_sent_on_time_and_say_so() {
    let online = LIVE.replace("arrivals: offline", "arrivals: { poisson: { rate_per_s: 60 } }");
    let (dir, output) = run(&online, &["--live", "cpu"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let validation = validation(dir.path());
    assert!(validation["schedulers"][0]["batches_identical"].is_null(), "time decides online");
}

#[test]
fn what_only_a_live_run_can_do_is_refused_elsewhere() {
    let gate = "exits={ gate: { threshold: 0.5 } }";
    refuses(LIVE, &["--set", gate], &["a gate decides by the model's own numbers", "--live"]);
    refuses(LIVE, &["--live", "tpu"], &["invalid value"]);
    refuses(LIVE, &["--live", "cpu", "--set", "live.weights.file=nowhere.safetensors"], &["nowhere.safetensors"]);
    // Wherever there is a driver this would run; the file of the next case is missing everywhere.
    if !Path::new("/dev/nvidia0").exists() {
        refuses(LIVE, &["--live", "cuda"], &["--live cuda"]);
    }
    let alone = format!("{LIVE}compare: [{{ mode: refill }}]\n");
    refuses(&alone, &["--live", "cpu"], &["mode: continuous_batching"]);
}

#[test]
fn an_entry_of_full_depth_has_no_gate() {
    // The gate fires at once, so that every token of an entry that had it would leave early.
    let gate = "exits={ gate: { threshold: 0.0, lookahead: true } }";
    let compare = "[{ mode: continuous_batching }, { mode: refill }, { mode: refill, full_depth: true }]";
    let yaml = format!("{LIVE}compare: {compare}\n");
    let (dir, output) = run(&yaml, &["--live", "cpu", "--set", gate]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let validation = validation(dir.path());
    assert!(validation["exits"].as_str().unwrap().starts_with("released gate"), "{}", validation["exits"]);
    for (name, depth) in [("refill_K_1", "2"), ("refill_K_1__full_depth", "4")] {
        let path = dir.path().join("out").join(format!("recorded_{name}.csv"));
        let recorded = fs::read_to_string(path).unwrap();
        let depths: Vec<&str> =
            recorded.lines().skip(1).flat_map(|line| line.rsplit(',').next().unwrap().split(' ')).collect();
        assert!(depths.len() == 12 * 5 && depths.iter().all(|left| *left == depth), "{name}: {recorded}");
    }
}

#[test]
fn a_live_runs_tokens_can_leave_by_their_logits() {
    for (model, gate, label, threshold) in [
        (
            "tiny-ouro",
            "{ criterion: kl, lookahead: true, threshold: 0.08 }",
            "KL divergence, delayed by one loop",
            "0.08",
        ),
        (
            "tiny-huginn",
            "{ criterion: argmax_stability, lookahead: true }",
            "argmax stability, delayed by one loop",
            "5",
        ),
        ("tiny-huginn", "{ lookahead: true }", "normalized L2, delayed by one loop", "0.03"),
    ] {
        let yaml = LIVE.replace("tiny-ouro", model).replace("repeats: 2", "repeats: 1");
        let (dir, output) = run(&yaml, &["--live", "cpu", "--set", &format!("exits={{ gate: {gate} }}")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let validation = validation(dir.path());
        assert_eq!(validation["exits"], label);
        for scheduler in validation["schedulers"].as_array().unwrap() {
            assert_eq!(scheduler["batches_identical"], true, "{}", scheduler["first_difference"]);
        }
        let resolved = fs::read_to_string(dir.path().join("out/scenario.yaml")).unwrap();
        assert!(resolved.lines().any(|line| line.trim().starts_with(&format!("threshold: {threshold}"))), "{resolved}");
    }
}

#[test]
fn an_exit_criterion_that_a_model_cannot_have_is_underlined() {
    let of = |model: &str, gate: &str| {
        LIVE.replace("tiny-ouro", model)
            .replace("distribution: { depths: { 2: 0.4, 3: 0.4, 4: 0.2 } }", &format!("gate: {{ {gate} }}"))
    };
    for (model, gate, said) in [
        ("tiny-huginn", "criterion: hazard, threshold: 0.5", "exits.gate.criterion: tiny-huginn has no trained gate"),
        ("tiny-nanbeige", "criterion: hazard", "take latent_difference, entropy_difference, kl or argmax_stability"),
        ("tiny-ouro", "lookahead: true", "exits.gate.threshold: none is published for `hazard`: give one"),
        ("tiny-ouro", "criterion: argmax_stability, threshold: 2.5", "must be a whole number from 1, got 2.5"),
        ("tiny-ouro", "criterion: kl, threshold: .nan", "`.nan` is not a finite number"),
        ("tiny-ouro", "criterion: kl-divergence", "entropy_difference"),
    ] {
        refuses(&of(model, gate), &["--live", "cpu"], &[said, "scenario.yaml:8"]);
    }
    // The model cannot say which tokens leave, so whatever decides takes a live run.
    refuses(&of("tiny-ouro", "criterion: kl"), &[], &["a gate decides by the model's own numbers", "--live"]);
}

#[test]
fn a_missing_scenario_is_an_error() {
    let output = sim(&["nowhere.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nowhere.yaml"));
}
