//! Inputs on which metrics once went wrong, with the values that are right: `tests/cases/`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use engine::metrics::{Limits, RequestRecord, Slo};
use serde_json::Value;
use sim::run::plan::Plan;
use sim::run::serve::{Discard, Sink, serve};
use sim::scenario::Scenario;
use sim::scenario::load::{self, Loaded};

const THREE: &str = "compare=[{ mode: continuous_batching }, { mode: no_refill }, { mode: refill }]";

/// What a command left behind.
struct Ran {
    output: Output,
    dir: tempfile::TempDir,
}

impl Ran {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn json(&self, file: &str) -> Value {
        let stderr = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success(), "{stderr}");
        serde_json::from_slice(&fs::read(self.dir.path().join("out").join(file)).unwrap()).unwrap()
    }
}

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(name)
}

/// Runs `sim` on a scenario, with what is set.
fn sim(subcommand: &[&str], scenario: &Path, set: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(subcommand).arg(scenario).arg("--out").arg(dir.path().join("out"));
    command.args(set.iter().flat_map(|set| ["--set", set]));
    Ran { output: command.env("NO_COLOR", "1").output().expect("sim was built"), dir }
}

/// `trace_base.yaml` on a file.
fn traced(file: &Path, set: &[&str]) -> Ran {
    let file = format!("workload.file={}", file.display());
    sim(&[], &case("trace_base.yaml"), &[&[file.as_str()], set].concat())
}

/// A scenario of its own.
fn scenario(subcommand: &[&str], yaml: &str, set: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scenario.yaml");
    fs::write(&path, yaml).unwrap();
    sim(subcommand, &path, set)
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} is no number"))
}

#[test]
fn requests_that_can_never_fit_change_no_figure_but_their_count() {
    let without = traced(&case("without.csv"), &[]).json("summary.json");
    let without = &without["schedulers"][0];
    for (file, arrived) in [("refused_many.csv", 2200), ("refused_first.csv", 201)] {
        let summary = traced(&case(file), &[]).json("summary.json");
        let run = &summary["schedulers"][0];
        assert_eq!(run["requests"]["arrived"], arrived, "{file}");
        assert_eq!((&run["requests"]["finished"], &run["requests"]["refused"]), (&200.into(), &(arrived - 200).into()));
        let same = ["arrival_window_s", "saturated", "prompt_tokens", "output_tokens"];
        same.iter().for_each(|key| assert_eq!(run[key], without[key], "{file}: {key}"));
        assert_eq!(run["goodput"]["share"], without["goodput"]["share"]);
        assert_eq!(run["send_delay_s"]["count"], 200, "{file}");
        // Exits are drawn by a request's number, which refused ones shift.
        let near =
            ["/throughput_tokens_per_s", "/makespan_s", "/goodput/requests_per_s", "/gpu_busy_share", "/e2e_s/mean"];
        for key in near {
            let (with, without) = (number(run, key), number(without, key));
            assert!((with / without - 1.0).abs() < 0.02, "{file}: {key} is {with}, without them {without}");
        }
        let said = summary["headline"][0].as_str().unwrap();
        let refused = format!("; {} of {} can never fit", arrived - 200, arrived);
        assert!(
            said.contains("keeps up with 5.0") && said.contains(&refused.replace("2000 of 2200", "2,000 of 2,200")),
            "{said}"
        );
    }
}

/// A file in which every so many requests is too long, at a rate.
fn capacity_with_refused(every: u32) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lengths.csv");
    let row = |n: u32| if n.is_multiple_of(every) { "20000,50\n" } else { "100,50\n" };
    fs::write(&file, "prompt_tokens,output_tokens\n".to_owned() + &(0..3000).map(row).collect::<String>()).unwrap();
    let yaml = format!(
        "model: ouro-1.4b\nprofile: h100-paper\nexits: full_depth\nslo: {{ ttft_ms: 500 }}\n\
         compare: [ {{ mode: continuous_batching }} ]\n\
         workload: {{ file: '{}', arrivals: {{ poisson: {{ rate_per_s: 8 }} }} }}",
        file.display()
    );
    scenario(&["capacity"], &yaml, &[])
}

#[test]
fn a_capacity_says_of_which_requests_it_speaks() {
    let ran = capacity_with_refused(20);
    let summary = ran.json("capacity/summary.json");
    let some = &summary["schedulers"][0];
    assert!(number(some, "/capacity_per_s") > 8.0, "{some}");
    assert_eq!(number(some, "/refused_share"), 0.05);
    assert!(ran.stdout().contains("5.0% of the arrivals can never fit and are refused"), "{}", ran.stdout());
    // More than the attainment of 90% leaves.
    let ran = capacity_with_refused(2);
    let summary = ran.json("capacity/summary.json");
    let half = &summary["schedulers"][0];
    assert_eq!((&half["capacity_per_s"], &half["carried_per_s"]), (&Value::Null, &Value::Null), "{half}");
    assert_eq!(number(half, "/failed_per_s"), 8.0, "no other rate is worth a try");
    assert!(half["open"].as_str().unwrap().contains("less than the attainment of 90%"), "{half}");
}

/// The same load for 600 s carries 13.82 and 20.20 requests per second.
#[test]
fn sixty_requests_are_too_few_for_a_capacity() {
    let ran = sim(&["capacity"], &case("few_requests_capacity.yaml"), &[]);
    let summary = ran.json("capacity/summary.json");
    for (run, true_per_s) in summary["schedulers"].as_array().unwrap().iter().zip([13.82, 20.20]) {
        assert_eq!((&run["capacity_per_s"], &run["failed_per_s"]), (&Value::Null, &Value::Null), "{run}");
        let at_least = number(run, "/carried_per_s");
        assert!(at_least >= 3.0 && at_least <= true_per_s, "{at_least} of {true_per_s}");
        assert!(run["open"].as_str().unwrap().contains("raise workload.requests"), "{run}");
        assert!(run["tried"].as_array().unwrap().iter().any(|tried| tried[1].is_null()), "{run}");
    }
    assert!(ran.stdout().contains("continuous batching: carries at least ") && !ran.stdout().contains("16384"));
}

#[test]
fn a_capacity_is_found_wherever_the_search_starts() {
    let found = |start: f64, duration_s: u32| {
        let arrivals = format!("workload.arrivals={{ poisson: {{ rate_per_s: {start}, duration_s: {duration_s} }} }}");
        let set = [arrivals.as_str(), "workload.requests=null", "compare=[{ mode: continuous_batching }]"];
        let summary = sim(&["capacity"], &case("few_requests_capacity.yaml"), &set).json("capacity/summary.json");
        let run = &summary["schedulers"][0];
        let (carried, failed) = (number(run, "/carried_per_s"), number(run, "/failed_per_s"));
        assert!(run["open"].is_null() && failed > carried && failed / carried <= 1.01, "from {start}: {run}");
        assert_eq!(number(run, "/capacity_per_s"), carried);
        carried
    };
    // A thousand times too low, and ten times too high.
    let low = found(0.0138, 600);
    assert!((low / 13.82 - 1.0).abs() < 0.02, "{low}");
    let (low, high) = (found(0.1, 60), found(140.0, 60));
    assert!((low / high - 1.0).abs() < 0.02, "{low} and {high}");
}

/// The finished requests of a run.
#[derive(Default)]
struct Records(Vec<RequestRecord>);

impl Sink for Records {
    type Error = std::convert::Infallible;

    fn request(&mut self, record: &RequestRecord) -> Result<(), Self::Error> {
        self.0.push(*record);
        Ok(())
    }
}

#[test]
fn what_a_recompute_makes_again_moves_neither_the_mean_depth_nor_the_steady_window() {
    let yaml = "model: ouro-1.4b\nprofile: h100-paper\nexits: full_depth\ncompare: [ { mode: refill } ]\n\
                workload: { lengths: { fixed: { prompt_tokens: 16, output_tokens: 3 } }, requests: 40, arrivals: offline }\n\
                kv: { blocks: 13, pressure: recompute }\nscheduler: { max_num_seqs: 12 }\n";
    let plan = Plan::new(load::parse(yaml).unwrap()).unwrap();
    let mut records = Records::default();
    let metrics = serve(&plan, &plan.schedulers[0], &mut records).unwrap().metrics();
    assert!(records.0.iter().any(|record| record.prefilled_tokens > 0) && metrics.requests.preemptions > 0);
    let depths: Vec<f64> = records.0.iter().filter_map(RequestRecord::mean_depth).collect();
    assert!(depths.len() > 20 && depths.iter().all(|depth| *depth == 4.0), "{depths:?}");
    assert_eq!(metrics.mean_exit_depth, 4.0);
    let last = records.0.iter().map(|record| record.admitted).max().unwrap();
    assert_eq!(metrics.steady.unwrap().closed_s, last.as_secs());
}

#[test]
fn a_pause_and_a_burst_are_no_saturation() {
    for (file, rate) in [("burst_then_one.csv", "0.030"), ("on_off.csv", "0.222")] {
        let summary = traced(&case(file), &[THREE]).json("summary.json");
        for (run, said) in summary["schedulers"].as_array().unwrap().iter().zip(summary["headline"].as_array().unwrap())
        {
            assert_eq!((&run["saturated"], &run["not_judged"]), (&Value::Bool(false), &Value::Null), "{file}");
            assert!(said.as_str().unwrap().contains(&format!("keeps up with {rate} requests/s")), "{file}: {said}");
        }
    }
}

/// `prompt_tokens,output_tokens,arrival_s` rows as a workload.
fn arriving(times_s: impl Iterator<Item = f64>) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("arrivals.csv");
    let rows: String = times_s.map(|at| format!("100,100,{at}\n")).collect();
    fs::write(&file, "prompt_tokens,output_tokens,arrival_s\n".to_owned() + &rows).unwrap();
    traced(&file, &[THREE]).json("summary.json")
}

#[test]
fn a_load_that_arrives_within_a_step_has_no_verdict_and_a_reason() {
    for gap_s in [0.0, 1e-5] {
        let summary = arriving((0..300).map(|n| f64::from(n) * gap_s));
        for run in summary["schedulers"].as_array().unwrap() {
            assert_eq!((&run["saturated"], &run["queue_growth_per_s"]), (&Value::Null, &Value::Null), "{gap_s}");
            assert!(run["not_judged"].as_str().unwrap().contains("too short to tell"), "{}", run["not_judged"]);
        }
        assert_eq!(summary["headline"].as_array().map(Vec::len), Some(3), "{}", summary["headline"]);
    }
}

#[test]
fn saturation_is_judged_where_the_load_is_offered() {
    // One request, an hour of nothing, and then five minutes of far too many.
    let summary = arriving((0..12_000).map(|n| if n == 0 { 0.0 } else { 3600.0 + f64::from(n) * 0.025 }));
    for run in summary["schedulers"].as_array().unwrap() {
        assert_eq!(run["saturated"], true, "{}", run["name"]);
    }
    let said = summary["headline"][0].as_str().unwrap();
    assert!(said.contains("past saturation at 40.00 requests/s"), "{said}");
}

#[test]
fn a_limit_and_a_percentile_agree_about_the_same_request() {
    let at = |limit: &str| {
        let ran = sim(&[], &case("limit_at_a_bucket_edge.yaml"), &[&format!("slo={limit}"), "output.capacity=false"]);
        ran.json("summary.json")["schedulers"][0].clone()
    };
    let first = at("{ ttft_ms: 22.117 }");
    assert_eq!(first["goodput"]["share"], 1.0);
    assert_eq!(first["ttft_s"]["p50"], first["ttft_s"]["max"], "three requests that never meet");
    assert!(number(&first, "/ttft_s/max") < 0.022_117, "{}", first["ttft_s"]);
    // The limit is the sample itself, and a nanosecond less.
    let max_ms = 1e3 * number(&first, "/ttft_s/max");
    assert_eq!(at(&format!("{{ ttft_ms: {max_ms:.6} }}"))["goodput"]["share"], 1.0);
    assert_eq!(at(&format!("{{ ttft_ms: {:.6} }}", max_ms - 1e-6))["goodput"]["share"], 0.0);
    let carried = |limit: f64| {
        let slo = Slo { p99: Some(Limits { ttft_ms: Some(limit), ..Limits::default() }), ..Slo::default() };
        let scenario = Loaded::read(&case("limit_at_a_bucket_edge.yaml"), &[]).unwrap().scenario;
        let plan = Plan::new(Scenario { slo: Some(slo), ..scenario }).unwrap();
        slo.carried(&serve(&plan, &plan.schedulers[0], &mut Discard).unwrap().metrics())
    };
    let limit = (max_ms * 1e6).round() / 1e6;
    assert_eq!((carried(22.117), carried(limit), carried(limit - 1e-6)), (true, true, false));
}

const NOTHING_FITS: &str = "model: ouro-1.4b
profile: h100-paper
exits: { preset: { name: ouro-q0.2 } }
workload: { lengths: { fixed: { prompt_tokens: 500, output_tokens: 50 } }, requests: 20, arrivals: offline }
kv: { blocks: 4 }
";

#[test]
fn where_nothing_is_served_there_is_no_verdict() {
    let poisson = "workload.arrivals={ poisson: { rate_per_s: 4 } }";
    for set in [&[][..], &[poisson], &[poisson, "slo={ ttft_ms: 500 }"]] {
        let ran = scenario(&[], NOTHING_FITS, set);
        let summary = ran.json("summary.json");
        let headline = summary["headline"].as_array().unwrap();
        assert_eq!(headline.len(), 3, "{headline:?}");
        let served = |said: &Value| said.as_str().unwrap().contains("no request was served; 20 of 20 can never fit");
        assert!(headline.iter().all(served), "{headline:?}");
        for run in summary["schedulers"].as_array().unwrap() {
            assert_eq!((&run["speedup"], &run["floor"], &run["saturated"]), (&Value::Null, &Value::Null, &Value::Null));
        }
        let page = fs::read_to_string(ran.dir.path().join("out/report.html")).unwrap();
        for text in [ran.stdout(), page] {
            assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        }
    }
}

#[test]
fn nothing_is_recommended_where_nothing_scores() {
    let refuses = |subcommand: &[&str], set: &[&str], said: &str| {
        let ran = scenario(subcommand, NOTHING_FITS, set);
        let stderr = String::from_utf8_lossy(&ran.output.stderr).replace(['│', '\n'], " ");
        let flat = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(ran.output.status.code(), Some(2), "{flat}");
        assert!(flat.contains(said) && ran.output.stdout.is_empty() && !ran.dir.path().join("out").exists(), "{flat}");
    };
    refuses(&["tune"], &[], "no request was served");
    refuses(&["explore"], &[], "no request was served");
    let online = ["kv.blocks=20480", "slo={ ttft_ms: 0.01 }", "workload.arrivals={ poisson: { rate_per_s: 4 } }"];
    refuses(&["tune", "--objective", "goodput"], &online, "no setting that was tried keeps it for a single request");
}

#[test]
fn a_protocol_lists_no_time_of_what_was_not_served() {
    let yaml = format!("base:\n  {}\nruns:\n  - name: nothing\n", NOTHING_FITS.trim_end().replace('\n', "\n  "));
    let ran = scenario(&["validate"], &yaml, &[]);
    assert!(ran.output.status.success(), "{}", String::from_utf8_lossy(&ran.output.stderr));
    let text = ran.stdout();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("nothing")).collect();
    // Requests and throughput stand, and nothing behind them until the number of live runs.
    assert_eq!(rows.len(), 3, "{text}");
    for row in rows {
        let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(row.contains("20 – 0.000 – – – – – – 1"), "{row}");
    }
}
