//! `sim validate` as a user meets it: on a laptop's cores, stopped and started again.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const PROTOCOL: &str = "base:
  model: tiny-ouro
  profile: { roofline: { gpu: h200, bandwidth_share: 0.0001, compute_share: 0.0001 } }
  workload:
    lengths: { fixed: { prompt_tokens: 9, output_tokens: 6 } }
    requests: 8
    arrivals: offline
  exits:
    distribution: { depths: { 2: 0.4, 3: 0.4, 4: 0.2 } }
  scheduler: { max_num_seqs: 4 }
  kv: { layout: last_exited, blocks: 512 }
  slo: { ttft_ms: 1000 }
  live: { threads: 1 }
capacity_per_s: { continuous batching: 40, no refill: 50, refill K=1: 50 }
runs:
  - name: offline
    repeats: 2
  - name: half
    group: poisson
    rate_share: 0.5
    window_s: 0.3
    set: &poisson
      workload.arrivals: { poisson: { rate_per_s: 20, duration_s: 0.5 } }
  - name: most
    group: poisson
    rate_share: 0.9
    window_s: 0.3
    set: *poisson
  - name: K = 2
    tier: 2
    set: { compare: [{ mode: continuous_batching }, { mode: refill, min_coda_batch: 2 }] }
";

/// Three schedulers offline twice and online at two rates, and one more offline: its baseline is that of the first run.
const LIVE_RUNS: usize = 3 * 2 + 3 * 2 + 1;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(yaml: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::write(dir.path().join("protocol.yaml"), yaml).unwrap();
        Self { dir }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
        command.arg("validate").arg(self.dir.path().join("protocol.yaml")).arg("--out").arg(self.out());
        command.args(arguments).env("NO_COLOR", "1");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("sim was built")
    }

    fn lines(&self) -> Vec<String> {
        let journal = fs::read_to_string(self.out().join("live.jsonl")).unwrap_or_default();
        journal.lines().map(String::from).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Succeeds, and returns stdout.
fn passed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn refuses(yaml: &str, arguments: &[&str], said: &[&str]) {
    let place = Place::new(yaml);
    let output = place.run(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{yaml}\n{stderr}");
    assert!(output.stdout.is_empty() && !place.out().exists(), "something was written");
    let flat = stderr.replace(['│', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
    for part in said {
        assert!(flat.contains(part), "`{part}` is not in: {flat}");
    }
}

#[test]
fn without_a_device_the_runs_are_listed_and_nothing_is_written() {
    let place = Place::new(PROTOCOL);
    let stdout = passed(&place.run(&["--quick"]));
    assert!(stdout.contains("refill K=2") && stdout.contains("tier 1, repeat 2:"), "{stdout}");
    // The baseline of the last run is that of the first, so it takes no time of its own.
    let shared = stdout.lines().find(|line| line.starts_with("K = 2") && line.contains("continuous batching")).unwrap();
    assert!(shared.ends_with("0.000"), "{shared}");
    assert!(!place.out().exists());
}

#[test]
fn a_protocol_that_is_killed_and_stopped_goes_on_where_it_was() {
    let place = Place::new(PROTOCOL);
    // Killed as soon as something is there, with half a line behind it.
    let mut child = place.command(&["--live", "cpu"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    while place.lines().is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = place.lines()[0].clone();
    let mut journal = OpenOptions::new().append(true).open(place.out().join("live.jsonl")).unwrap();
    journal.write_all(b"{\"key\":\"hal").unwrap();
    // No budget for anything, which the report says.
    let stdout = passed(&place.run(&["--live", "cpu", "--budget", "0s"]));
    assert!(stdout.contains("of 4 runs are measured"), "{stdout}");
    let output = place.run(&["--live", "cpu", "--budget", "10m"]);
    let stdout = passed(&output);
    assert!(stdout.contains("4 of 4 runs are measured"), "{stdout}");
    assert_eq!((place.lines().len(), &place.lines()[0]), (LIVE_RUNS, &kept));
    // Nothing is left to do, and the report is the same.
    let report =
        || ["validation.json", "validation.csv", "report.html"].map(|file| fs::read(place.out().join(file)).unwrap());
    let before = report();
    let again = place.run(&["--live", "cpu"]);
    assert_eq!(passed(&again), stdout);
    assert!(text(&again.stderr).contains("0 live runs made"), "{}", text(&again.stderr));
    assert!(report() == before, "the same journal gave another report");
    check(&place);
}

/// What a complete report holds.
fn check(place: &Place) {
    let runs: Value = serde_json::from_slice(&fs::read(place.out().join("validation.json")).unwrap()).unwrap();
    let runs = runs.as_array().unwrap();
    assert_eq!(
        runs.iter().map(|run| run["run"].as_str().unwrap()).collect::<Vec<_>>(),
        ["offline", "half", "most", "K = 2"]
    );
    assert_eq!((&runs[0]["repeats"], &runs[1]["repeats"], &runs[3]["tier"]), (&2.into(), &1.into(), &2.into()));
    assert_eq!(runs[3]["set"]["compare"][1]["min_coda_batch"], 2);
    for scheduler in runs[0]["schedulers"].as_array().unwrap() {
        assert_eq!(scheduler["batches_identical"], true, "{}", scheduler["first_difference"]);
        assert!(scheduler["floor"]["realised_share"].is_f64());
        assert!(scheduler["verdicts"].as_array().unwrap().iter().any(|verdict| verdict["metric"] == "tpot_p95_s"));
        assert!(scheduler["stages"][0]["mean_absolute_error"].is_f64());
    }
    // 0.5 of 40 requests per second over 0.3 s, and of 50.
    let load = |run: usize, scheduler: usize| &runs[run]["schedulers"][scheduler]["load"];
    assert_eq!((&load(1, 0)["rate_per_s"], &load(1, 0)["requests"]), (&20.0.into(), &6.into()));
    assert_eq!((&load(1, 2)["rate_per_s"], &load(1, 2)["requests"]), (&25.0.into(), &8.into()));
    assert!(load(2, 0)["measured_carried"].is_boolean() && load(2, 0)["capacity_per_s"].is_f64());
    assert!(runs[1]["schedulers"][0]["batches_identical"].is_null(), "time decides online");
    let csv = fs::read_to_string(place.out().join("validation.csv")).unwrap();
    for part in ["offline,offline,1,no refill,,speedup,", ",poisson,,refill K=1,,capacity_requests_per_s,"] {
        assert!(csv.contains(part), "`{part}` is not in {csv}");
    }
    let plots = ["offline_speedup.svg", "offline_speedup.png", "latency_over_rate.svg", "latency_over_rate.png"];
    for file in plots.into_iter().chain(["requests.parquet", "steps.parquet"]) {
        assert!(place.out().join(file).metadata().is_ok_and(|meta| meta.len() > 0), "{file} is missing");
    }
}

/// A repeat that a busy neighbour slowed down: the live runs differ by 38% of their mean.
#[test]
fn repeats_that_differ_judge_nothing() {
    let place = Place::new(PROTOCOL.split("  - name: half").next().unwrap());
    passed(&place.run(&["--live", "cpu"]));
    let mut lines: Vec<Value> = place.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        line["served"]["metrics"]["throughput_tokens_per_s"] = if line["repeat"] == 0 { 1190.0 } else { 810.0 }.into();
        for latency in ["ttft", "tpot", "itl", "e2e", "normalized"] {
            for at in ["mean", "p50", "p90", "p95", "p99", "max"] {
                line["served"]["metrics"][latency][at] = 0.01.into();
            }
        }
    }
    let journal: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(place.out().join("live.jsonl"), journal.concat()).unwrap();
    let output = place.run(&["--live", "cpu", "--budget", "0s"]);
    let stdout = passed(&output);
    assert!(text(&output.stderr).contains("0 live runs made, 6 were there"), "{}", text(&output.stderr));
    // Its speed-up is that of two runs slowed alike, so the repeats agree on it. The share of the bound has the stages' real
    // times in it, which may differ as well.
    let differ = "not judged, because repeats differ: throughput_tokens_per_s by 38.0%";
    assert!(stdout.matches(differ).count() == 3 && !stdout.contains(&format!("{differ}, speedup")), "{stdout}");
    assert!(
        stdout.contains("not judged, because repeats differ: 3.") && stdout.contains("a quiet machine, longer runs"),
        "{stdout}"
    );
    let runs: Value = serde_json::from_slice(&fs::read(place.out().join("validation.json")).unwrap()).unwrap();
    let verdict = |metric: &str| {
        let verdicts = runs[0]["schedulers"][0]["verdicts"].as_array().unwrap().iter();
        verdicts.clone().find(|verdict| verdict["metric"] == metric).unwrap()
    };
    assert_eq!(verdict("throughput_tokens_per_s")["met"], Value::Null);
    assert_eq!(verdict("throughput_tokens_per_s")["not_judged"], "repeats differ by 38.0%");
    assert!(verdict("tpot_mean_s")["met"].is_boolean(), "the latencies agree");
    let csv = fs::read_to_string(place.out().join("validation.csv")).unwrap();
    assert!(
        csv.lines().any(|line| line.contains(",throughput_tokens_per_s,") && line.ends_with(",not judged")),
        "{csv}"
    );
    let page = fs::read_to_string(place.out().join("report.html")).unwrap();
    assert!(page.contains("not judged: repeats differ by 38.0%"));
}

#[test]
fn another_profile_predicts_anew_what_was_measured() {
    let place = Place::new(&PROTOCOL.split("  - name: half").next().unwrap().replace("repeats: 2", "repeats: 1"));
    passed(&place.run(&["--live", "cpu"]));
    let output = place.run(&["--live", "cpu", "--set", "profile.roofline.bandwidth_share=0.0002"]);
    passed(&output);
    assert!(text(&output.stderr).contains("0 live runs made, 3 were there"), "{}", text(&output.stderr));
    let output = place.run(&["--live", "cpu", "--set", "seed=9", "--budget", "0"]);
    assert!(text(&output.stderr).contains("0 live runs made, 0 were there, 3 left"), "{}", text(&output.stderr));
}

#[test]
fn bad_protocols_are_refused_in_their_place() {
    let with = |from: &str, to: &str| {
        assert!(PROTOCOL.contains(from), "{from}");
        PROTOCOL.replacen(from, to, 1)
    };
    let check = |from: &str, to: &str, said: &[&str]| refuses(&with(from, to), &["--live", "cpu"], said);
    check("max_num_seqs: 4", "max_num_seqs: 0", &["protocol.yaml:10", "must be a whole number from 1", "got 0"]);
    check("repeats: 2", "repeats: 0", &["protocol.yaml:17", "got 0"]);
    check("tier: 2", "teir: 2", &["teir", "protocol.yaml:30"]);
    check("name: most", "name: half", &["runs.2.name: two runs are called `half`"]);
    check("rate_share: 0.5", "rate_share: -1", &["must be finite and above 0, got -1"]);
    let endless = with("    window_s: 0.3\n", "").replace("0.5 } }\n", "0.5 } }\n      workload.requests: null\n");
    refuses(&endless, &[], &["runs.1", "give it `window_s`"]);
    check("    repeats: 2\n", "    window_s: 3\n", &["runs.0.window_s", "offline"]);
    check(
        "min_coda_batch: 2",
        "min_coda_batch: 5",
        &["runs.3.set.compare", "must be between 1 and max_num_seqs = 4, got 5"],
    );
    check(
        "compare: [{ mode: continuous_batching }, ",
        "compare: [",
        &["runs.3.set.compare", "mode: continuous_batching"],
    );
    check("set: { compare", "set: { scheduler.width: 3, compare", &["runs.3.set.scheduler.width", "width"]);
    let unknown = with("  slo: { ttft_ms: 1000 }\n", "").replace("continuous batching: 40, ", "");
    refuses(&unknown, &[], &["runs.1.rate_share", "capacity of `continuous batching` is not known"]);
    let gate = with("    distribution: { depths: { 2: 0.4, 3: 0.4, 4: 0.2 } }", "    gate: { threshold: 0.5 }");
    refuses(&gate, &["--live", "cpu"], &["base.exits", "exits must be known"]);
    refuses("base: nowhere.yaml\nruns: [{ name: a }]\n", &[], &["nowhere.yaml"]);
    refuses(PROTOCOL.split("runs:").next().unwrap(), &[], &["runs"]);
    refuses(PROTOCOL, &["--set", "kv.layout=deep"], &["--set kv.layout=deep"]);
    refuses(PROTOCOL, &["--live", "cpu", "--budget", "soon"], &["write it like 600s or 10m"]);
    refuses(PROTOCOL, &["--live", "cpu", "--set", "live.kv_fraction=0.8"], &["live.kv_fraction", "give kv.blocks"]);
    if !Path::new("/dev/nvidia0").exists() {
        refuses(PROTOCOL, &["--live", "cuda"], &["run `offline`", "--live cuda"]);
    }
}
