//! `sim observe` against a server that is not ours: what comes back is its known delays, and what it does not tell is said to
//! be missing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[path = "../client/tests/stub/mod.rs"]
mod stub;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use stub::Manner;

const SCENARIO: &str = "
model: tiny-ouro
profile: { roofline: { gpu: h200 } }
workload:
  lengths: { fixed: { prompt_tokens: 32, output_tokens: 16 } }
  requests: 40
  arrivals: { poisson: { rate_per_s: 40 } }
exits: full_depth
compare: [{ mode: continuous_batching }, { mode: refill }]
live: { repeats: 2 }
";

const MANNER: Manner = Manner {
    first: Duration::from_millis(50),
    gap: Duration::from_millis(10),
    takes_ids: false,
    strict: false,
    counts: true,
    breaks_every: 0,
};

fn observe(arguments: &[&str], dir: &Path, scenario: &str) -> Output {
    let file = dir.join("scenario.yaml");
    std::fs::write(&file, scenario).unwrap();
    let (file, out) = (file.to_str().unwrap(), dir.join("out"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(["observe"]).args(arguments).args([file, "--out", out.to_str().unwrap()]);
    command.env_remove("NO_COLOR").output().unwrap()
}

fn json(dir: &Path, file: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(dir.join("out").join(file)).unwrap()).unwrap()
}

#[test]
fn a_foreign_servers_delays_come_back_and_what_it_does_not_tell_is_missing() {
    let url = format!("http://{}", stub::start(MANNER));
    let dir = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } = observe(&[&url], dir.path(), SCENARIO);
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{stderr}");

    let validation = json(dir.path(), "validation.json");
    assert_eq!(validation["repeats"], 2);
    let scheduler = &validation["schedulers"][0];
    assert_eq!(scheduler["name"], "continuous batching");
    for (figure, known_s) in [("ttft_p50_s", 0.05), ("tpot_p50_s", 0.01), ("itl_p50_s", 0.01), ("e2e_p50_s", 0.2)] {
        let measured = scheduler["measured"][figure].as_f64().unwrap();
        // The client's own tests hold 1% or 1 ms; here three programs share the machine with other tests.
        assert!((measured / known_s - 1.0).abs() < 0.15, "{figure}: {measured}");
        assert!(scheduler["predicted"][figure].as_f64().unwrap() > 0.0);
    }
    for figure in ["gpu_busy_share", "prefill_share", "mean_core_batch", "mean_exit_depth", "preemptions"] {
        assert_eq!(scheduler["measured"].get(figure), None, "{figure} is not seen from outside");
    }

    let client = json(dir.path(), "client.json");
    let run = &client["runs"][0];
    assert_eq!((&run["sent"], &run["answered"], &run["shorter"]), (&40.into(), &40.into(), &0.into()));
    assert_eq!((&run["prompt_tokens_asked"], &run["prompt_tokens_counted"]), (&(40 * 32).into(), &(40 * 7).into()));
    assert_eq!((&client["server_tells_depths"], &client["model"]), (&false.into(), &"stub".into()));
    let (intended, achieved) = (run["intended_per_s"].as_f64().unwrap(), run["achieved_per_s"].as_f64().unwrap());
    assert!((achieved / intended - 1.0).abs() < 0.05, "{achieved} for {intended}");
    let missing: Vec<&str> = client["missing"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(missing.contains(&"mean_exit_depth") && missing.contains(&"gpu_busy_share"), "{missing:?}");
    for said in ["not seen from outside: mean_core_batch", "does not tell exit depths", "the server counted 280"] {
        assert!(stdout.contains(said), "`{said}` is not in\n{stdout}");
    }

    let summary = json(dir.path(), "summary.json");
    assert_eq!(summary["schedulers"][1]["name"], "continuous batching, measured");
    assert_eq!(summary["schedulers"][1]["kv"], Value::Null);
    assert!(dir.path().join("out/report.html").exists() && dir.path().join("out/requests.parquet").exists());
}

#[test]
fn failures_are_counted_by_kind_and_are_no_error_while_some_are_answered() {
    let url = format!("http://{}", stub::start(Manner { breaks_every: 2, ..MANNER }));
    let dir = tempfile::tempdir().unwrap();
    let answered = observe(&[&url, "--repeats", "1", "--only", "refill K=1"], dir.path(), SCENARIO);
    assert!(answered.status.success(), "{}", String::from_utf8_lossy(&answered.stderr));
    let run = &json(dir.path(), "client.json")["runs"][0];
    let broken = run["failures"]["connection broken off"]["count"].as_u64().unwrap();
    assert_eq!(run["answered"].as_u64().unwrap() + broken, 40);
    assert!(broken > 5, "{broken}");
    let measured = &json(dir.path(), "summary.json")["schedulers"][1]["requests"];
    assert_eq!(measured["failed"].as_u64(), Some(broken));
}

#[test]
fn what_cannot_be_observed_is_bad_input_and_leaves_nothing() {
    let url = format!("http://{}", stub::start(MANNER));
    let gate = SCENARIO.replace("full_depth", "{ gate: { threshold: 0.5 } }");
    for (arguments, scenario, said) in [
        (vec!["localhost:1"], SCENARIO, "http:// or https:// before it"),
        (vec!["http://127.0.0.1:9"], SCENARIO, "http://127.0.0.1:9/v1"),
        (vec![&url, "--api-key-env", "NOBODY_SETS_THIS"], SCENARIO, "NOBODY_SETS_THIS"),
        (vec![&url, "--repeats", "0"], SCENARIO, "from 1 to"),
        (vec![&url, "--only", "refill"], SCENARIO, "it has continuous batching, refill K=1"),
        (vec![&url], &gate, "the server does not tell after how many loops"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Output { status, stderr, .. } = observe(&arguments, dir.path(), scenario);
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}: {stderr}");
        let flat = stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert!(flat.contains(said), "{arguments:?}: {flat}");
        assert!(!dir.path().join("out").exists(), "{arguments:?} left something");
    }
}
