//! Sweeps give the same bytes however they come about, and say where a point is wrong.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SCENARIO: &str = "\
model: ouro-1.4b
profile: h100-paper
workload: { lengths: sharegpt, requests: 60, arrivals: offline }
exits: { preset: { name: ouro-q0.2 } }
compare: [{ mode: continuous_batching }, { mode: refill }]
output: { plots: false }
sweep:
  scheduler.max_num_seqs: [4, 8, 16]
  compare.1.min_coda_batch: [1, 2]
  exits.preset.name: [ouro-q0.2, ouro-q0.5, ouro-q0.7]
";
const POINTS: usize = 18;

fn sim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    sim(arguments).output().expect("the program starts")
}

fn scenario(folder: &Path, yaml: &str) -> String {
    let path = folder.join("scenario.yaml");
    fs::write(&path, yaml).expect("a temporary folder takes files");
    path.to_str().expect("a temporary path is text").into()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is text")
}

/// Everything that a sweep writes but its journal.
fn bytes(out: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(out).expect("the sweep's folder").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_type().expect("a type").is_file());
    let mut files: Vec<_> = files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

fn whole(scenario: &str, out: &Path) -> Vec<(String, Vec<u8>)> {
    let output = run(&["sweep", scenario, "--out", text(out)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    bytes(out)
}

fn journal(out: &Path) -> Vec<u8> {
    fs::read(out.join("points/0-of-1.jsonl")).unwrap_or_default()
}

#[test]
fn a_killed_sweep_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = scenario(folder.path(), SCENARIO);
    let direct = whole(&scenario, &folder.path().join("direct"));
    let out = folder.path().join("killed");
    for wanted in [1, 5, 6, 11, 17] {
        let lines = || journal(&out).iter().filter(|&&byte| byte == b'\n').count();
        let mut command = sim(&["sweep", &scenario, "--out", text(&out)]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
        while lines() < wanted && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let before = journal(&out);
        // SIGKILL: nothing is told to the program.
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(journal(&out).starts_with(&before), "a finished point was lost");
    }
    assert_eq!(whole(&scenario, &out), direct);
    let again = run(&["sweep", &scenario, "--out", text(&out)]);
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(stderr.contains(&format!("0 points run, {POINTS} were there")), "{stderr}");
}

#[test]
fn a_journal_cut_anywhere_is_completed_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = scenario(folder.path(), SCENARIO);
    let out = folder.path().join("cut");
    let direct = whole(&scenario, &out);
    let journal = journal(&out);
    for cut in [0, 1, journal.len() / 3, journal.len() / 2 + 7, journal.len() - 1] {
        fs::write(out.join("points/0-of-1.jsonl"), &journal[..cut]).expect("the journal");
        assert_eq!(whole(&scenario, &out), direct, "cut at byte {cut} of {}", journal.len());
    }
}

#[test]
fn shards_merge_to_the_bytes_of_a_direct_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = scenario(folder.path(), SCENARIO);
    let direct = whole(&scenario, &folder.path().join("direct"));
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let shard = |out: &Path, shard| run(&["sweep", &scenario, "--out", text(out), "--shard", shard]);
    assert!(shard(&here, "0/3").status.success() && shard(&there, "2/3").status.success());
    let merge = || run(&["merge", &scenario, text(&there), "--out", text(&here)]);
    let early = merge();
    let stderr = String::from_utf8_lossy(&early.stderr).into_owned();
    assert_eq!(early.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("6 of 18 points have not been run: 1, 4, 7, 10, 13, 16"), "{stderr}");
    assert!(shard(&here, "1/3").status.success());
    let late = merge();
    assert!(late.status.success(), "{}", String::from_utf8_lossy(&late.stderr));
    assert_eq!(bytes(&here), direct);
}

#[test]
fn a_scenario_alone_runs_its_sweep_and_only_what_a_change_adds() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let first = run(&[&scenario(folder.path(), SCENARIO), "--out", text(&out)]);
    assert!(first.status.success() && out.join("sweep.parquet").exists());
    let wider = scenario(folder.path(), &SCENARIO.replace("[4, 8, 16]", "[4, 8, 16, 32]"));
    let second = run(&["sweep", &wider, "--out", text(&out)]);
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert!(stderr.contains("6 points run, 18 were there"), "{stderr}");
}

/// The error for a scenario whose sweep is replaced: exit code 2, the words, and the place.
fn check(sweep: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (head, _) = SCENARIO.split_once("sweep:").expect("a sweep");
    let out = folder.path().join("out");
    let output = run(&["sweep", &scenario(folder.path(), &format!("{head}{sweep}")), "--out", text(&out)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    // Long messages are wrapped, with a rule at the left.
    let unwrapped = stderr.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    for words in expected {
        assert!(unwrapped.contains(words), "no `{words}` in\n{stderr}");
    }
    assert!(!out.exists(), "bad input wrote something");
}

#[test]
fn bad_sweeps_are_refused_with_their_place() {
    check("", &["nothing to sweep"]);
    check("sweep: { seed: [] }\n", &["at least one value", "scenario.yaml:7"]);
    check("sweep: { seed: [[1]] }\n", &["must be a scalar", "scenario.yaml:7"]);
    check("sweep: {}\n", &["name at least one field", "scenario.yaml:7"]);
    check("sweep:\n  scheduler.width: [1]\n", &["point 0", "scheduler.width", "unknown field", "scenario.yaml:8"]);
    check("sweep:\n  compare.7.mode: [refill]\n", &["the list has 2 entries", "scenario.yaml:8"]);
    check(
        "sweep:\n  seed: [1, 2]\n  scheduler.max_num_seqs:\n    - 4\n    - 0\n",
        &["point 1", "seed = 1, scheduler.max_num_seqs = 0", "whole number from 1", "scenario.yaml:11"],
    );
    check(
        "sweep:\n  exits.preset.name: [ouro-q0.2, huginn-0.28]\n",
        &["point 1", "exits.preset.name = huginn-0.28", "scenario.yaml:8"],
    );
}
