//! `sim capacity`, `tune` and `explore` as a user meets them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ONLINE: &str = "model: ouro-1.4b
profile: h100-paper
workload:
  lengths: alpaca
  arrivals:
    poisson: { rate_per_s: 8, duration_s: 20 }
exits:
  preset: { name: ouro-q0.2 }
slo:
  p99: { ttft_ms: 500 }
";

/// Runs `sim <subcommand> scenario.yaml --out out ..` and returns its output; the folder holds what was written.
fn sim(dir: &Path, subcommand: &str, yaml: &str, arguments: &[&str]) -> Output {
    let scenario = dir.join("scenario.yaml");
    fs::write(&scenario, yaml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.arg(subcommand).arg(scenario).arg("--out").arg(dir.join("out")).args(arguments);
    command.env("NO_COLOR", "1").output().expect("sim was built")
}

/// Runs well, twice with the same bytes, and returns stdout and the summary.
fn check(subcommand: &str, yaml: &str, arguments: &[&str], files: &[&str]) -> (String, Value) {
    let [first, second] = [(), ()].map(|()| {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let output = sim(dir.path(), subcommand, yaml, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let folder = dir.path().join("out").join(subcommand);
        let bytes =
            files.iter().map(|file| fs::read(folder.join(file)).unwrap_or_else(|_| panic!("{file} is missing")));
        (
            String::from_utf8(output.stdout).unwrap(),
            bytes.collect::<Vec<_>>(),
            fs::read(folder.join("summary.json")).unwrap(),
        )
    });
    assert_eq!((&first.1, &first.2), (&second.1, &second.2), "{subcommand} is not the same twice");
    (first.0, serde_json::from_slice(&first.2).unwrap())
}

/// Exit code 2, and an error that says it.
fn refuses(subcommand: &str, yaml: &str, arguments: &[&str], said: &str) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let output = sim(dir.path(), subcommand, yaml, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).replace(['│', '\n'], " ");
    let flat = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "{flat}");
    assert!(flat.contains(said), "`{said}` is not in: {flat}");
    assert!(output.stdout.is_empty() && !dir.path().join("out").exists());
}

#[test]
fn capacity_lists_what_it_tried() {
    let files = ["capacity.csv", "scenario.yaml", "latency_over_rate.svg", "latency_over_rate.png"];
    let (stdout, summary) = check("capacity", ONLINE, &[], &files);
    assert!(stdout.contains("p99 ttft <= 500 ms"), "{stdout}");
    assert_eq!(summary["schedulers"].as_array().map(Vec::len), Some(3));
    assert!(summary["schedulers"][2]["capacity_per_s"].as_f64() > summary["schedulers"][0]["capacity_per_s"].as_f64());
}

#[test]
fn tune_prints_a_scenario_and_reasons() {
    let (stdout, summary) = check("tune", ONLINE, &["--objective", "goodput"], &["tune.csv", "scenario.yaml"]);
    assert!(stdout.contains("max_num_seqs:") && stdout.contains("B* ="), "{stdout}");
    assert!(summary["max_num_seqs"].is_u64());
}

#[test]
fn explore_takes_splits_gpus_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let models = dir.path().join("models.yaml");
    fs::write(&models, "- ouro-2.6b\n").unwrap();
    let arguments =
        ["--quick", "--splits", "0-24-0,2-20-2", "--gpus", "h200,b200", "--models", models.to_str().unwrap()];
    let (_, summary) =
        check("explore", ONLINE, &arguments, &["explore.csv", "scenario.yaml", "explore.svg", "explore.png"]);
    let rows = summary.as_array().expect("a list");
    assert_eq!(rows.len(), 6);
    assert_eq!(rows[0]["kv_kib_per_token"][0], 768.0);
    assert_eq!(rows[5]["architecture"], "ouro-2.6b");
}

#[test]
fn what_is_missing_is_said() {
    let offline = ONLINE
        .replace("    poisson: { rate_per_s: 8, duration_s: 20 }\n", "")
        .replace("arrivals:", "requests: 9\n  arrivals: offline");
    refuses("capacity", &offline, &[], "a capacity needs arrivals with a rate");
    refuses("capacity", &ONLINE.replace("slo:\n  p99: { ttft_ms: 500 }\n", ""), &[], "a capacity needs limits");
    refuses(
        "capacity",
        &ONLINE.replace("ttft_ms: 500", "ttft_ms: -1"),
        &[],
        "slo.p99.ttft_ms: a limit must be greater than zero",
    );
    refuses("tune", &offline, &["--objective", "goodput"], "goodput needs arrivals with a rate");
    refuses("explore", ONLINE, &["--splits", "2-0-2"], "write a split as prelude-core-coda");
    refuses("explore", ONLINE, &["--gpus", "abacus"], "there is no datasheet of `abacus`");
    refuses("explore", ONLINE, &["--models", "nowhere.yaml"], "nowhere.yaml");
    refuses("explore", ONLINE, &["--splits", "0-0-0"], "at least one core layer");
    refuses(
        "capacity",
        &format!("{ONLINE}compare: [{{ mode: adaptive_refill, min_coda_batch: 4 }}]\n"),
        &[],
        "only `refill` has a minimum coda batch",
    );
}
