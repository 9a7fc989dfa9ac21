//! Whole reports: what is in them, and that it is always the same.

use std::error::Error;
use std::fs;
use std::path::Path;

use engine::scheduler::Mode;
use reports::{
    Bounds, Floor, Report, ReportError, SchedulerReport, TimelineWriter, WriteOptions, definitions, headline,
    summary_json, summary_text, write,
};
use serde_json::Value;

#[path = "../examples/sample_report/run.rs"]
mod run;

type TestResult = Result<(), Box<dyn Error>>;

#[test]
fn the_summary_has_what_scripts_ask_for() -> TestResult {
    let summary: Value = serde_json::from_str(&summary_json(&report(None))?)?;
    assert_eq!(summary["scenario"], "<b>&\"sample\"");
    let runs = summary["schedulers"].as_array().ok_or("a list")?;
    assert_eq!(runs.len(), 3);
    for run in runs {
        for key in ["throughput_tokens_per_s", "speedup", "s_dec", "s_e2e", "mean_core_batch", "prefill_share"] {
            assert!(run[key].is_number(), "{key}: {}", run[key]);
        }
        for latency in ["ttft_s", "tpot_s", "itl_s", "e2e_s", "normalized_s"] {
            for key in ["count", "mean", "p50", "p90", "p95", "p99", "max"] {
                assert!(run[latency][key].is_number(), "{latency}.{key}: {}", run[latency][key]);
            }
        }
        let count = |key: &str| run["requests"][key].as_u64();
        assert_eq!((count("arrived"), count("finished"), count("refused")), (Some(100), Some(98), Some(2)));
        let shares = run["exit_depths"].as_array().ok_or("a list")?.iter().filter_map(|depth| depth["share"].as_f64());
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(run["saturated"], Value::Null, "no verdict offline");
    }
    assert_eq!((&runs[0]["baseline"], &runs[0]["mean_coda_batch"]), (&Value::Bool(true), &Value::Null));
    assert_eq!((&runs[2]["mode"], &runs[2]["min_coda_batch"]), (&"refill".into(), &1.into()));
    Ok(())
}

#[test]
fn what_is_not_a_number_is_null() -> TestResult {
    let mut report = report(None);
    report.schedulers.truncate(1);
    report.schedulers[0].metrics.gpu_busy_share = f64::NAN;
    report.schedulers[0].metrics.tpot = Default::default();
    report.schedulers[0].bounds = report.schedulers[0].bounds.map(|b| Bounds { speedup: f64::INFINITY, ..b });
    let summary: Value = serde_json::from_str(&summary_json(&report)?)?;
    let run = &summary["schedulers"][0];
    assert_eq!([&run["gpu_busy_share"], &run["speedup"], &run["tpot_s"]["p50"]], [&Value::Null; 3]);
    write(&report, tempfile::tempdir()?.path(), WriteOptions::default())?;
    Ok(())
}

#[test]
fn the_same_report_gives_the_same_bytes() -> TestResult {
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    for folder in &folders {
        write(&report(Some(20.0)), folder.path(), WriteOptions::default())?;
    }
    let mut names: Vec<_> =
        fs::read_dir(folders[0].path())?.map(|entry| entry.map(|e| e.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    assert_eq!(names.len(), 13, "{names:?}");
    for name in names {
        let [a, b] = [&folders[0], &folders[1]].map(|folder| fs::read(folder.path().join(&name)));
        assert!(a? == b?, "{name:?} differs");
    }
    Ok(())
}

#[test]
fn files_come_in_order_and_options_leave_some_out() -> TestResult {
    let folder = tempfile::tempdir()?;
    let report = report(None);
    let names = |options| -> Result<String, ReportError> {
        let paths = write(&report, &folder.path().join("new/folder"), options)?;
        Ok(paths
            .iter()
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" "))
    };
    let svg_only = WriteOptions { png: false, ..WriteOptions::default() };
    assert_eq!(
        names(svg_only)?,
        "summary.json scenario.yaml throughput.svg latency_cdf.svg core_batch.svg exit_depths.svg queues_and_kv.svg report.html"
    );
    assert_eq!(names(WriteOptions { plots: false, png: true, html: false })?, "summary.json scenario.yaml");
    Ok(())
}

#[test]
fn the_page_is_whole_and_escapes_what_it_is_given() -> TestResult {
    let folder = tempfile::tempdir()?;
    let report = report(None);
    write(&report, folder.path(), WriteOptions { png: false, ..WriteOptions::default() })?;
    let page = fs::read_to_string(folder.path().join("report.html"))?;
    assert!(page.contains("<h1>&lt;b&gt;&amp;&quot;sample&quot;</h1>"));
    assert!(page.contains("assumed &lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains("<script"));
    assert!(page.contains("workload: &#39;&lt;many&gt;&#39;"));
    assert_eq!(page.matches("<svg ").count(), 5);
    let without_namespaces = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!without_namespaces.contains(outside), "the page asks for something outside: {outside}");
    }
    for definition in definitions::ALL {
        assert!(page.contains(&definition.name.replace('\'', "&#39;")), "{}", definition.name);
    }
    Ok(())
}

#[test]
fn plots_name_what_they_show() -> TestResult {
    let folder = tempfile::tempdir()?;
    write(&report(None), folder.path(), WriteOptions::default())?;
    for (name, labels) in [
        ("throughput", ["S_dec", "S_e2e", "speed-up, ×", "refill K=1"]),
        ("latency_cdf", ["TTFT, ", "TPOT, ms", "share of requests, %", "no refill"]),
        ("core_batch", ["time, s", "rows per core step", "refill K=1", "no refill"]),
        ("exit_depths", ["exit depth, loops", "share of decoded tokens, %", "continuous batching", "4"]),
        ("queues_and_kv", ["requests", "sequences", "blocks in use, %", "time, s"]),
    ] {
        let svg = fs::read_to_string(folder.path().join(format!("{name}.svg")))?;
        assert!(svg.ends_with("</svg>\n") && labels.iter().all(|label| svg.contains(label)), "{name}");
        let png = fs::read(folder.path().join(format!("{name}.png")))?;
        assert!(png.starts_with(b"\x89PNG") && png.len() > 20_000, "{name}");
    }
    Ok(())
}

#[test]
fn a_terminal_is_wide_enough() {
    let mut report = report(None);
    let many = report.schedulers.iter().cycle().take(9).cloned().collect();
    report.schedulers = many;
    let text = summary_text(&report);
    assert!(text.lines().all(|line| line.chars().count() <= 160 && !line.ends_with(' ')), "{text}");
    let table = text.lines().skip_while(|line| !line.is_empty());
    assert!(table.clone().all(|line| line.chars().count() <= 120), "{text}");
    assert_eq!(
        table.filter(|line| line.contains("realised share  ")).count(),
        2,
        "nine columns need two blocks\n{text}"
    );
    assert_eq!(headline(&report).len(), 6);
}

#[test]
fn a_timeline_says_what_it_leaves_out() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trace.json");
    let mut timeline = TimelineWriter::create(&path, 50)?;
    let mut steps = 0;
    for name in ["first \"quoted\"", "second"] {
        run::serve(Mode::NoRefill, &mut run::arrivals(20, None), &mut |step, _| {
            steps += 1;
            timeline.push(name, step).expect("the folder is writable");
        });
    }
    timeline.finish()?;
    let trace: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let events = trace["traceEvents"].as_array().ok_or("a list")?;
    let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(slices.len(), 100);
    assert!(slices.iter().all(|slice| slice["dur"].as_f64() > Some(0.0) && slice["args"]["rows"].is_number()));
    assert_eq!(trace["otherData"]["first \"quoted\""], format!("the first 50 of {} steps", steps / 2));
    let names = |kind: &str| events.iter().filter(|event| event["name"] == *kind).count();
    assert_eq!((names("process_name"), names("thread_name")), (2, 8), "prefill, prelude, core and coda have tracks");
    assert!(events.iter().any(|event| event["ph"] == "C" && event["args"]["blocks"].is_number()));
    Ok(())
}

#[test]
fn the_readme_defines_metrics_as_the_page_does() -> TestResult {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))?;
    assert!(
        readme.contains(&definitions::markdown()),
        "replace the table in README.md by:\n{}",
        definitions::markdown()
    );
    Ok(())
}

fn report(rate_per_s: Option<f64>) -> Report {
    let modes = [
        ("continuous batching", Mode::ContinuousBatching),
        ("no refill", Mode::NoRefill),
        ("refill K=1", Mode::Refill { min_coda_batch: 1 }),
    ];
    let schedulers = modes.map(|(name, mode)| {
        let recorder = run::serve(mode, &mut run::arrivals(100, rate_per_s), &mut |_, _| ());
        let blocks = run::KV_BLOCKS.into();
        let run = SchedulerReport::new(name, mode, recorder.metrics(), recorder.latencies().clone(), blocks);
        let baseline = mode == Mode::ContinuousBatching;
        let bounds = Bounds {
            baseline,
            speedup: 1.3,
            steady_speedup: None,
            s_dec: 1.5,
            s_e2e: 1.4,
            s_roof: None,
            realised_share: 0.93,
        };
        let floor = Floor { throughput_tokens_per_s: 1e4, speedup: 1.35, realised_share: 0.96 };
        match rate_per_s {
            None => SchedulerReport { bounds: Some(bounds), floor: Some(floor), ..run },
            Some(_) => run,
        }
    });
    Report {
        title: "<b>&\"sample\"".into(),
        facts: vec![("seed".into(), "1".into())],
        notes: vec!["assumed <script>alert(1)</script>".into()],
        scenario_yaml: "workload: '<many>'\n".into(),
        online: rate_per_s.is_some(),
        schedulers: schedulers.to_vec(),
        confidence: None,
    }
}
