//! Writes two sample reports, offline and online, and a gallery of charts: `cargo run -p reports --example sample_report -- FOLDER`.

mod charts;
mod run;

use std::error::Error;
use std::path::{Path, PathBuf};

use engine::scheduler::Mode;
use reports::{
    Bounds, Floor, Report, RequestsWriter, SchedulerReport, StepsWriter, TIMELINE_STEPS, TimelineWriter, WriteOptions,
    summary_text, write,
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("reports/out/sample"), PathBuf::from);
    for (name, rate_per_s) in [("offline", None), ("online", Some(7.0))] {
        let folder = folder.join(name);
        let report = report(name, rate_per_s, &folder)?;
        print!("{}", summary_text(&report));
        for path in write(&report, &folder, WriteOptions::default())? {
            println!("{}", path.display());
        }
    }
    for path in charts::gallery().write(&folder, "gallery", true)? {
        println!("{}", path.display());
    }
    Ok(())
}

fn report(name: &str, rate_per_s: Option<f64>, folder: &Path) -> Result<Report, Box<dyn Error>> {
    let mut requests = RequestsWriter::create(&folder.join("requests.parquet"))?;
    let mut steps = StepsWriter::create(&folder.join("steps.parquet"))?;
    let mut timeline = TimelineWriter::create(&folder.join("trace.json"), TIMELINE_STEPS)?;
    let mut schedulers: Vec<SchedulerReport> = Vec::new();
    for (scheduler, mode) in [
        ("continuous batching", Mode::ContinuousBatching),
        ("no refill", Mode::NoRefill),
        ("refill K=1", Mode::Refill { min_coda_batch: 1 }),
        ("refill K=16", Mode::Refill { min_coda_batch: 16 }),
    ] {
        let mut failure = Ok(());
        let recorder = run::serve(mode, &mut run::arrivals(1000, rate_per_s), &mut |step, recorder| {
            let written = steps.push(scheduler, step).and_then(|()| timeline.push(scheduler, step));
            let mut records = recorder.take_finished();
            let written = written.and_then(|()| records.try_for_each(|record| requests.push(scheduler, &record)));
            if failure.is_ok() {
                failure = written;
            }
        });
        failure?;
        let (metrics, latencies) = (recorder.metrics(), recorder.latencies().clone());
        let run = SchedulerReport::new(scheduler, mode, metrics, latencies, run::KV_BLOCKS.into());
        let bounds = rate_per_s.is_none().then(|| against(schedulers.first().unwrap_or(&run), &run));
        let floor = bounds.filter(|bounds| !bounds.baseline).map(|bounds| Floor {
            throughput_tokens_per_s: 1.1 * run.metrics.throughput_tokens_per_s,
            speedup: 1.01 * bounds.speedup,
            realised_share: 1.01 * bounds.realised_share,
        });
        schedulers.push(SchedulerReport { bounds, floor, ..run });
    }
    requests.finish()?;
    steps.finish()?;
    timeline.finish()?;
    let facts = [("model", "made up"), ("profile", "made up"), ("workload", "1,000 skewed requests"), ("seed", "none")];
    Ok(Report {
        title: format!("sample <{name}>"),
        facts: facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        notes: vec![
            "The device, the requests and the exit depths are made up: this shows a report, not a result.".into(),
        ],
        scenario_yaml: format!("name: sample {name}\nworkload:\n  requests: 1000\n"),
        online: rate_per_s.is_some(),
        schedulers,
        confidence: None,
    })
}

/// With the bounds of a fully looped model, where `S_dec` is nearly the ratio of depths.
fn against(baseline: &SchedulerReport, run: &SchedulerReport) -> Bounds {
    let speedup = run.metrics.throughput_tokens_per_s / baseline.metrics.throughput_tokens_per_s;
    let s_dec = (0.05 + 4.0) / (0.05 + run.metrics.mean_exit_depth);
    let a = baseline.metrics.prefill_share;
    let s_e2e = 1.0 / (a + (1.0 - a) / s_dec);
    let steady = |run: &SchedulerReport| run.metrics.steady.map(|window| window.throughput_tokens_per_s);
    Bounds {
        baseline: run.mode == Mode::ContinuousBatching,
        speedup,
        steady_speedup: steady(run).zip(steady(baseline)).map(|(run, baseline)| run / baseline),
        s_dec,
        s_e2e,
        s_roof: None,
        realised_share: speedup / s_e2e,
    }
}
