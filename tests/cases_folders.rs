//! Folders of results: nothing that is read is written over, and one run's results are never beside another's.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const SCENARIO: &str = "model: tiny-ouro
profile: { roofline: { gpu: h200, bandwidth_share: 0.001, compute_share: 0.001 } }
workload:
  lengths: { fixed: { prompt_tokens: 9, output_tokens: 6 } }
  requests: 12
  arrivals: offline
exits:
  distribution: { depths: { 2: 0.4, 3: 0.4, 4: 0.2 } }
scheduler: { max_num_seqs: 4 }
kv: { layout: last_exited, blocks: 512 }
live: { repeats: 1, threads: 1 }
";

const PROTOCOL: &str = "base: scenario.yaml\nruns: [{ name: only }]\n";

/// A folder in which commands run.
struct Place(tempfile::TempDir);

impl Place {
    /// With `scenario.yaml` and `protocol.yaml`.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary folder"));
        fs::write(place.at("scenario.yaml"), SCENARIO).unwrap();
        fs::write(place.at("protocol.yaml"), PROTOCOL).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sim(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
        command.args(arguments).current_dir(self.0.path()).env("NO_COLOR", "1").output().expect("sim was built")
    }

    fn runs(&self, arguments: &[&str]) {
        let output = self.sim(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", flat(&output));
    }

    /// Exit code 2 and an error that holds `said`; no file is other than before.
    fn refuses(&self, arguments: &[&str], said: &[&str]) {
        let before = content(self.0.path());
        let output = self.sim(arguments);
        let stderr = flat(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {stderr}");
        for part in said {
            assert!(stderr.contains(part), "{arguments:?}: `{part}` is not in {stderr}");
        }
        assert!(content(self.0.path()) == before, "{arguments:?} wrote something");
    }

    /// The names in a folder, sorted.
    fn names(&self, folder: &str) -> Vec<String> {
        let folder = self.at(folder);
        let entries = content(&folder).into_keys();
        entries.map(|path| path.strip_prefix(&folder).unwrap().display().to_string()).collect()
    }
}

fn flat(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).replace(['│', '×'], " ");
    stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every file below a folder.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(content(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn a_scenario_and_the_files_it_names_stay() {
    let place = Place::new();
    fs::create_dir(place.at("reports")).unwrap();
    place.refuses(
        &["scenario.yaml", "--out", "."],
        &["scenario.yaml would be written over, and it is read as scenario.yaml"],
    );
    place.refuses(&["./scenario.yaml", "--out", "reports/.."], &["it is read as ./scenario.yaml"]);
    place.runs(&["scenario.yaml", "--out", "w", "--set", "output.plots=false", "--only", "refill K=1"]);
    let replay = ["scenario.yaml", "--set", "workload.file=w/requests.parquet", "--out", "w"];
    place.refuses(&replay, &["--out: w/requests.parquet would be written over"]);
    // What is only taken away is gone as well.
    place.refuses(&[&replay[..], &["--set", "output.requests=false"]].concat(), &["w/requests.parquet"]);
    place.refuses(&["w/scenario.yaml", "--out", "w"], &["w/scenario.yaml would be written over"]);
    place.runs(&["scenario.yaml", "--set", "workload.file=w/requests.parquet", "--out", "v"]);
    let profile = ["scenario.yaml", "--set", "profile={ file: p/report.html }", "--out", "p"];
    fs::create_dir(place.at("p")).unwrap();
    fs::write(place.at("p/report.html"), profile_yaml()).unwrap();
    place.refuses(&profile, &["p/report.html would be written over"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(place.at("w"), place.at("link")).unwrap();
        place.refuses(&["w/scenario.yaml", "--out", "link"], &["link/scenario.yaml would be written over"]);
    }
}

/// A profile of tiny-ouro.
fn profile_yaml() -> String {
    "name: made up\nmodel: tiny-ouro\nsource: made up\ndevice: { name: d, bandwidth_gb_per_s: 10, compute_tflops: 1 }\n\
     core: { delta_ms: 0.1, gamma_us: 1, alpha_ns: 1 }\nprelude: { delta_ms: 0.1, gamma_us: 1, alpha_ns: 0 }\n\
     coda: { delta_ms: 0.1, gamma_us: 1, alpha_ns: 0 }\nprefill: { delta_ms: 0.1, gamma_us: 1, alpha_ns: 1 }\n\
     buckets: exact\ntransfer: { plane_copy_gb_per_s: 10, offload_gb_per_s: 10 }\n"
        .into()
}

#[test]
fn studies_sweeps_and_protocols_keep_what_they_read() {
    let place = Place::new();
    let copy = |to: &str, text: &str| {
        fs::create_dir_all(place.at(to).parent().unwrap()).unwrap();
        fs::write(place.at(to), text).unwrap();
    };
    let online =
        SCENARIO.replace("offline", "{ poisson: { rate_per_s: 4, duration_s: 5 } }") + "slo: { ttft_ms: 500 }\n";
    for study in ["capacity", "tune", "explore"] {
        let path = format!("{study}/scenario.yaml");
        copy(&path, &online);
        place.refuses(&[study, &path, "--out", "."], &["scenario.yaml would be written over"]);
    }
    copy("explore/summary.json", "- tiny-ouro\n");
    place.refuses(
        &["explore", "scenario.yaml", "--models", "explore/summary.json", "--out", "."],
        &["explore/summary.json would be written over"],
    );
    copy("s/own.yaml", &format!("{SCENARIO}sweep: {{ workload.file: [s/sweep.csv] }}\n"));
    copy("s/sweep.csv", "prompt_tokens,output_tokens\n5,3\n");
    for command in ["sweep", "merge"] {
        place.refuses(&[command, "s/own.yaml", "--out", "s"], &["s/sweep.csv would be written over"]);
    }
    copy("s/points/0-of-1.jsonl", &format!("{SCENARIO}sweep: {{ seed: [1] }}\n"));
    place.refuses(&["sweep", "s/points/0-of-1.jsonl", "--out", "s"], &["s/points/0-of-1.jsonl would be written over"]);
    copy("l/live.jsonl", PROTOCOL);
    place
        .refuses(&["validate", "l/live.jsonl", "--live", "cpu", "--out", "l"], &["l/live.jsonl would be written over"]);
    copy("l/validation.csv", SCENARIO);
    copy("l/protocol.yaml", "base: l/validation.csv\nruns: [{ name: only }]\n");
    place.refuses(
        &["validate", "l/protocol.yaml", "--live", "cpu", "--out", "l"],
        &["l/validation.csv would be written over"],
    );
}

#[test]
fn another_run_leaves_nothing_of_the_one_before() {
    let place = Place::new();
    let quiet = ["requests", "steps", "timeline", "plots"].map(|field| format!("output.{field}=false"));
    let quiet: Vec<&str> = quiet.iter().flat_map(|field| ["--set", field]).collect();
    let small = |command: &[&str]| place.runs(&[command, &["--out", "out"], &quiet].concat());
    place.runs(&["scenario.yaml", "--out", "out"]);
    assert!(place.names("out").len() > 10, "{:?}", place.names("out"));
    fs::write(place.at("out/notes.txt"), "mine").unwrap();
    fs::write(place.at("out/recorded_refill_K_1.csv"), "of a live run").unwrap();
    let kept = ["notes.txt", "recorded_refill_K_1.csv", "scenario.yaml", "summary.json"];
    small(&["scenario.yaml"]);
    assert_eq!(place.names("out"), kept);

    // A sweep's journal stays through all of it, so that its points are not run again.
    let sweep = ["sweep", "scenario.yaml", "--set", "sweep={ seed: [1, 2] }"];
    place.runs(&[&sweep[..], &["--out", "out"]].concat());
    let journal = fs::read(place.at("out/points/0-of-1.jsonl")).unwrap();
    assert!(!place.at("out/summary.json").exists() && place.at("out/sweep.svg").exists());
    small(&["scenario.yaml"]);
    let [notes, recorded, rest @ ..] = kept;
    assert_eq!(place.names("out"), [&[notes, "points/0-of-1.jsonl", recorded], &rest[..]].concat());
    small(&sweep);
    assert_eq!(fs::read(place.at("out/points/0-of-1.jsonl")).unwrap(), journal);
    let expect = [notes, "points/0-of-1.jsonl", recorded, "scenario.yaml", "sweep.csv", "sweep.parquet"];
    assert_eq!(place.names("out"), expect);

    // So does a protocol's.
    place.runs(&["validate", "protocol.yaml", "--live", "cpu", "--out", "out"]);
    assert!(!place.at("out/sweep.csv").exists() && place.at("out/offline_speedup.svg").exists());
    let journal = fs::read(place.at("out/live.jsonl")).unwrap();
    small(&["scenario.yaml"]);
    assert!(!place.at("out/validation.csv").exists() && !place.at("out/offline_speedup.svg").exists());
    assert_eq!(fs::read(place.at("out/live.jsonl")).unwrap(), journal);
}

#[test]
fn every_file_that_a_run_writes_is_known_as_one() {
    let place = Place::new();
    let check = |results: reports::Results, folder: &str, journals: &[&str]| {
        let known = results.files(Path::new(""));
        for name in place.names(folder) {
            let known = known.contains(Path::new(&name)) || journals.iter().any(|journal| name.starts_with(journal));
            assert!(known, "{results:?} leaves {name} behind");
        }
    };
    let gate = ["--live", "cpu", "--set", "exits={ gate: { threshold: 0.35, lookahead: true } }"];
    place.runs(&[&["scenario.yaml", "--out", "c"], &gate[..]].concat());
    check(reports::Results::Comparison, "c", &["recorded_"]);
    place.runs(&["sweep", "scenario.yaml", "--set", "sweep={ seed: [1, 2] }", "--out", "s"]);
    check(reports::Results::Sweep, "s", &["points/"]);
    let online =
        SCENARIO.replace("offline", "{ poisson: { rate_per_s: 4, duration_s: 5 } }") + "slo: { ttft_ms: 500 }\n";
    fs::write(place.at("online.yaml"), online).unwrap();
    for study in ["capacity", "tune", "explore"] {
        place.runs(&[study, "online.yaml", "--out", "o"]);
        check(reports::Results::Study(study), &format!("o/{study}"), &[]);
    }
    let rates = "capacity_per_s: { continuous batching: 40, no refill: 50, refill K=1: 50 }\nbase: online.yaml\n\
                 runs: [{ name: a, rate_share: 0.5, window_s: 0.3 }, { name: b, set: { workload.arrivals: offline } }]\n";
    fs::write(place.at("rates.yaml"), rates).unwrap();
    place.runs(&["validate", "rates.yaml", "--live", "cpu", "--out", "p"]);
    check(reports::Results::Protocol, "p", &["live.jsonl"]);
}

#[test]
fn a_comparison_is_replayed_once() {
    let place = Place::new();
    place.runs(&["scenario.yaml", "--out", "w", "--set", "output.plots=false"]);
    let replay = ["scenario.yaml", "--set", "workload.file=w/requests.parquet"];
    place.refuses(
        &[&replay[..], &["--out", "v"]].concat(),
        &[
            "once for each of 3 schedulers: name one (`workload.scheduler` in a scenario, --scheduler of `traces`)",
            "of `continuous batching`, `no refill`, `refill K=1`",
        ],
    );
    let unknown = ["--set", "workload.scheduler=best", "--out", "v"];
    place.refuses(&[&replay[..], &unknown].concat(), &["workload.scheduler", "no requests of a scheduler `best`"]);
    place.refuses(&["scenario.yaml", "--set", "workload.scheduler=best", "--out", "v"], &["set `workload.file`"]);
    place.runs(&[&replay[..], &["--set", "workload.scheduler=refill K=1", "--out", "v"]].concat());
    let summary: Value = serde_json::from_slice(&fs::read(place.at("v/summary.json")).unwrap()).unwrap();
    for scheduler in summary["schedulers"].as_array().unwrap() {
        assert_eq!(scheduler["requests"]["arrived"], 12);
    }
}

#[test]
fn a_run_over_time_is_replayed_as_it_arrived() {
    let place = Place::new();
    let arrivals = "workload.arrivals={ poisson: { rate_per_s: 2000 } }";
    let one = ["--only", "refill K=1", "--set", "output.plots=false"];
    place.runs(&[&["scenario.yaml", "--set", arrivals, "--out", "w"], &one[..]].concat());
    let replay = ["--set", "workload.file=w/requests.parquet", "--set", "workload.arrivals=trace", "--out", "v"];
    place.runs(&[&["scenario.yaml"], &replay[..], &one].concat());
    let requests = |folder: &str| fs::read(place.at(folder).join("requests.parquet")).unwrap();
    assert!(requests("w") == requests("v"), "the same requests at the same times are the same run");
}

#[test]
fn merge_names_the_folder_that_is_not_there() {
    let place = Place::new();
    let sweep = ["scenario.yaml", "--set", "sweep={ seed: [1, 2] }"];
    let merge = |dirs: &[&'static str]| [&["merge"], &sweep[..], &["--out"], dirs].concat();
    place.refuses(&merge(&["nowhere"]), &["nowhere: there is no such folder"]);
    place.runs(&[&["sweep"], &sweep[..], &["--shard", "0/1", "--out", "a"]].concat());
    place.refuses(&merge(&["new", "a", "nowhere"]), &["nowhere: there is no such folder"]);
    fs::create_dir(place.at("empty")).unwrap();
    place.refuses(&merge(&["new", "a", "empty"]), &["empty: there is no folder `points` in it"]);
    place.runs(&merge(&["new", "a"]));
}
