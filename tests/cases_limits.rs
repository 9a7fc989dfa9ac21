//! What people type that cannot be, or that could be meant in two ways: said in a sentence, before anything is allocated or written.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::process::{Command, Output};

const SCENARIO: &str = "model: tiny-ouro
profile: { roofline: { gpu: h200 } }
workload:
  lengths: { fixed: { prompt_tokens: 9, output_tokens: 6 } }
  requests: 12
  arrivals: offline
exits:
  distribution: { depths: { 2: 0.4, 3: 0.4, 4: 0.2 } }
scheduler: { max_num_seqs: 4 }
kv: { blocks: 512 }
output: { plots: false }
";

struct Place(tempfile::TempDir);

impl Place {
    fn new(yaml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("s.yaml"), yaml).unwrap();
        Self(dir)
    }

    /// `sim`, with `S` for the scenario's path.
    fn sim(&self, arguments: &[&str]) -> Output {
        let scenario = self.0.path().join("s.yaml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
        for argument in arguments {
            match *argument {
                "S" => command.arg(&scenario),
                other => command.arg(other),
            };
        }
        command.arg("--out").arg(self.0.path().join("out")).env("NO_COLOR", "1").output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Without the report's frame and line breaks.
fn flat(bytes: &[u8]) -> String {
    text(bytes).replace(['│', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Exit code 2, nothing written, and an error with every one of `said`.
fn refuses(yaml: &str, arguments: &[&str], said: &[&str]) {
    let place = Place::new(yaml);
    let output = place.sim(arguments);
    let stderr = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(!place.0.path().join("out").exists(), "something was written");
    for part in said {
        assert!(stderr.contains(part), "`{part}` is not in: {stderr}");
    }
}

fn set(argument: &str, said: &[&str]) {
    refuses(SCENARIO, &["S", "--set", argument], said);
}

/// The resolved scenario of a run that succeeds.
fn resolved(yaml: &str, arguments: &[&str]) -> String {
    let place = Place::new(yaml);
    let output = place.sim(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    fs::read_to_string(place.0.path().join("out/scenario.yaml")).unwrap()
}

#[test]
fn sizes_that_no_memory_holds_are_refused_before_any_is_taken() {
    for size in ["100000000", "1e8", "4294967295"] {
        set(&format!("scheduler.max_num_seqs={size}"), &["scheduler.max_num_seqs: must be between 1 and 65536"]);
        set(&format!("kv.blocks={size}"), &["kv.blocks: must be between 1 and 33554432"]);
        set(&format!("repeats={size}"), &["must be a whole number from 1 to 10000, got"]);
        set(&format!("live.repeats={size}"), &["must be a whole number from 1 to 10000, got"]);
        set(&format!("live.threads={size}"), &["must be a whole number from 0 to 1024, got"]);
    }
    set("workload.requests=100000001", &["a number of requests must be between 1 and 100,000,000"]);
    if std::path::Path::new("/proc/meminfo").exists() {
        let huge = ["S", "--live", "cpu", "--set", "kv={ blocks: 33554432, block_tokens: 1000000 }"];
        refuses(SCENARIO, &huge, &["kv.blocks: the KV pool would take", "GB free: give it at most"]);
    }
    let protocol = "base: b.yaml\nruns: [{ name: a, repeats: 100000000 }]\n";
    refuses(protocol, &["validate", "S"], &["must be a whole number from 1 to 10000, got 100000000"]);
}

#[test]
fn a_capacity_of_an_unknown_scheduler_is_refused() {
    let base: String = SCENARIO.lines().map(|line| format!("  {line}\n")).collect();
    let protocol = |name: &str| format!("base:\n{base}capacity_per_s: {{ {name}: 40 }}\nruns: [{{ name: a }}]\n");
    refuses(
        &protocol("refil K=1"),
        &["validate", "S"],
        &["capacity_per_s.refil K=1: no run has a scheduler of this name", "`no refill`, `refill K=1`", "s.yaml:13"],
    );
    let place = Place::new(&protocol("refill K=1"));
    let output = place.sim(&["validate", "S"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_whole_number_may_be_written_as_a_float_and_nothing_else_is_one() {
    let said = |field: &str, value: &str, expected: &str| {
        set(&format!("{field}={value}"), &[expected]);
        let line = SCENARIO.lines().find(|line| line.trim_start().starts_with(&format!("{field}:")));
        if let Some(line) = line {
            let with =
                SCENARIO.replace(line, &format!("{}{field}: {value}", &line[..line.len() - line.trim_start().len()]));
            refuses(&with, &["S"], &[expected, "s.yaml:"]);
        }
    };
    for field in ["seed", "kv.blocks", "workload.requests", "live.prompt_seed"] {
        said(field, "1.5", "a whole number is needed, got 1.5");
        said(field, "yes", "a whole number is needed, got yes");
        said(field, "many", "a whole number is needed, got `many`");
    }
    let requests = SCENARIO.replace("requests: 12", "requests: lots");
    refuses(&requests, &["S"], &["a whole number is needed, got `lots`", "s.yaml:5"]);
    refuses(&SCENARIO.replace("{ 2: 0.4", "{ 2: most"), &["S"], &["a number is needed", "s.yaml:8"]);
    let floats = SCENARIO.replace("requests: 12", "requests: 1.2e1").replace("max_num_seqs: 4", "max_num_seqs: 4.0");
    let expected = resolved(SCENARIO, &["S", "--set", "seed=1000"]);
    assert_eq!(resolved(&floats, &["S", "--set", "seed=1e3", "--set", "kv.blocks=512.0"]), expected);
}

#[test]
fn a_key_that_is_there_twice_is_named_without_the_parsers_options() {
    let twice = format!("{SCENARIO}seed: 1\nseed: 2\n");
    refuses(&twice, &["S"], &["`seed` is there twice: keep one", "s.yaml:13"]);
    let stderr = flat(&Place::new(&twice).sim(&["S"]).stderr);
    assert!(!stderr.contains("Policy") && !stderr.contains("Options"), "{stderr}");
    set("kv={ blocks: 4, blocks: 5 }", &["the value is not YAML: `blocks` is there twice: keep one"]);
}

#[test]
fn a_set_reaches_the_default_schedulers_and_a_swept_fields_values() {
    let third = resolved(SCENARIO, &["S", "--set", "compare.2.min_coda_batch=3"]);
    let spelled = format!(
        "{SCENARIO}compare: [{{ mode: continuous_batching }}, {{ mode: no_refill }}, {{ mode: refill, min_coda_batch: 3 }}]\n"
    );
    assert_eq!(third, resolved(&spelled, &["S"]));
    set("compare.3.mode=refill", &["--set compare.3.mode=refill: the list has 3 entries, there is no 3"]);
    let rows = |yaml: &str, arguments: &[&str]| {
        let place = Place::new(yaml);
        let output = place.sim(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        fs::read_to_string(place.0.path().join("out/sweep.csv")).unwrap().lines().count() - 1
    };
    let sweep = "sweep.scheduler.max_num_seqs=[2, 4]";
    assert_eq!(rows(SCENARIO, &["sweep", "S", "--set", sweep]), 2 * 3);
    let swept = format!("{SCENARIO}sweep: {{ scheduler.max_num_seqs: [1, 2, 4] }}\n");
    assert_eq!(rows(&swept, &["sweep", "S", "--set", sweep]), 2 * 3);
    assert_eq!(rows(&swept, &["sweep", "S", "--set", "sweep.scheduler.max_num_seqs.1=3"]), 3 * 3);
    let overlapping = format!("{SCENARIO}sweep: {{ exits: [full_depth], exits.preset.name: [ouro-q0.2] }}\n");
    refuses(&overlapping, &["sweep", "S"], &["`exits.preset.name` and `exits` set the same field"]);
}

#[test]
fn a_low_rate_is_printed_with_its_digits() {
    let trace = "prompt_tokens,output_tokens,arrival_s\n9,4,0\n9,4,10000\n9,4,20000\n";
    let place = Place::new(&SCENARIO.replace("arrivals: offline", "arrivals: trace"));
    let file = place.0.path().join("t.csv");
    fs::write(&file, trace).unwrap();
    let output = place.sim(&["S", "--set", &format!("workload.file={}", file.display())]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!stdout.contains("0.000 requests/s"), "{stdout}");
}
