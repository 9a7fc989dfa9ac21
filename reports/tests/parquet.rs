//! Parquet files read back.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use engine::batch::Stage;
use engine::metrics::RequestRecord;
use engine::request::RequestId;
use engine::scheduler::Mode;
use engine::units::Nanos;
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use reports::{LiveRun, LiveStep, ROW_GROUP_ROWS, RequestsWriter, StepsWriter, write_live_requests, write_live_steps};

#[path = "../examples/sample_report/run.rs"]
mod run;

type TestResult = Result<(), Box<dyn Error>>;

#[test]
fn requests_come_back_as_they_were() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("requests.parquet");
    let rows = ROW_GROUP_ROWS + 10;
    let mut writer = RequestsWriter::create(&path)?;
    for id in 0..rows as u32 {
        writer.push(if id < 5 { "first" } else { "second" }, &record(id))?;
    }
    assert!(!path.exists(), "the file must not appear before it is whole");
    writer.finish()?;
    let table = read(&path)?;
    assert_eq!(table.height(), rows);
    let names: Vec<&str> = table.get_column_names().iter().map(|name| name.as_str()).collect();
    assert_eq!(
        names.join(","),
        "scheduler,request,arrival_s,sent_s,admitted_s,first_token_s,finish_s,prompt_tokens,\
        output_tokens,ttft_s,tpot_s,e2e_s,normalized_s,mean_exit_depth,preemptions"
    );
    let text = |column, row| {
        table.column(column).and_then(|column| column.get(row)).map_or_else(|e| e.to_string(), |v| v.to_string())
    };
    assert_eq!(text("scheduler", 4), "\"first\"");
    assert_eq!(text("scheduler", rows - 1), "\"second\"");
    assert_eq!(text("request", rows - 1), (rows - 1).to_string());
    assert_eq!(
        (text("output_tokens", 0), text("tpot_s", 0), text("mean_exit_depth", 0)),
        ("1".into(), "null".into(), "null".into())
    );
    assert_eq!(
        (text("output_tokens", 2), text("tpot_s", 2), text("mean_exit_depth", 2)),
        ("3".into(), "1.0".into(), "2.5".into())
    );
    assert_eq!(
        (text("ttft_s", 7), text("arrival_s", 7), text("preemptions", 7)),
        ("1.5".into(), "7.0".into(), "2".into())
    );
    Ok(())
}

#[test]
fn steps_come_back_with_their_depths() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("steps.parquet");
    let mut writer = StepsWriter::create(&path)?;
    let mode = Mode::Refill { min_coda_batch: 1 };
    let recorder = run::serve(mode, &mut run::arrivals(40, None), &mut |step, _| {
        writer.push("refill K=1", step).expect("the folder is writable");
    });
    writer.finish()?;
    let table = read(&path)?;
    let metrics = recorder.metrics();
    assert_eq!(table.height() as u64, metrics.stages.iter().map(|(_, totals)| totals.steps).sum::<u64>());
    assert_eq!(
        table.column("exits")?.as_materialized_series().sum::<u64>()?,
        metrics.exit_depths.iter().sum::<u64>(),
        "every decoded token left the loop once"
    );
    let depths = table.column("depths")?.str()?;
    let stages = table.column("stage")?.str()?;
    assert!(stages.iter().zip(depths.iter()).all(|(stage, depths)| (stage == Some("core")) == depths.is_some()));
    assert!(depths.iter().flatten().any(|depths| depths.contains("r1:") && depths.contains(" r3:")));
    Ok(())
}

#[test]
fn live_runs_come_back_beside_their_predictions() -> TestResult {
    let folder = tempfile::tempdir()?;
    let live = LiveRun { run: "Poisson, 70%", scheduler: "refill K=1", repeat: 1 };
    let (measured, predicted) = (record(7), RequestRecord { first_token: Nanos(8_250_000_000), ..record(7) });
    let requests = write_live_requests(&folder.path().join("requests.parquet"), [(live, &measured, &predicted)])?;
    let step = LiveStep { step: 3, stage: Stage::Core, rows: 5, took_ms: 1.25, predicted_ms: Some(1.5) };
    let unknown = LiveStep { predicted_ms: None, ..step };
    let steps = write_live_steps(&folder.path().join("steps.parquet"), [(live, step), (live, unknown)])?;
    let row = |table: &DataFrame, row: usize| -> Result<String, Box<dyn Error>> {
        let values = table.columns().iter().map(|column| Ok(column.get(row)?.to_string()));
        Ok(values.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(" | "))
    };
    assert_eq!(
        row(&read(&requests)?, 0)?,
        "\"Poisson, 70%\" | \"refill K=1\" | 1 | 7 | 10 | 2 | 7.0 | 1.5 | 2.5 | 1.25 | 2.5"
    );
    let steps = read(&steps)?;
    assert_eq!(row(&steps, 0)?, "\"Poisson, 70%\" | \"refill K=1\" | 1 | 3 | \"core\" | 5 | 1.25 | 1.5");
    assert!(row(&steps, 1)?.ends_with("1.25 | null"));
    Ok(())
}

#[test]
fn an_empty_file_has_its_columns_and_a_dropped_writer_leaves_none() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("requests.parquet");
    drop(RequestsWriter::create(&path)?);
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
    RequestsWriter::create(&path)?.finish()?;
    assert_eq!(read(&path)?.shape(), (0, 15));
    Ok(())
}

#[test]
fn errors_name_the_file() -> TestResult {
    let folder = tempfile::tempdir()?;
    let blocked = folder.path().join("blocked");
    std::fs::write(&blocked, b"")?;
    let error = StepsWriter::create(&blocked.join("steps.parquet")).err().expect("a file is no folder");
    assert!(error.to_string().contains("blocked"), "{error}");
    Ok(())
}

fn record(id: u32) -> RequestRecord {
    let second = |n: u32| Nanos(u64::from(n) * 1_000_000_000);
    let output_tokens = id % 3 + 1;
    RequestRecord {
        request: RequestId(id),
        arrival: second(id),
        sent: second(id),
        admitted: second(id + 1),
        first_token: second(id) + Nanos(1_500_000_000),
        finish: second(id + output_tokens - 1) + Nanos(1_500_000_000),
        prompt_tokens: 10,
        output_tokens,
        depth_sum: u64::from(output_tokens - 1) * 5 / 2,
        prefilled_tokens: 0,
        preemptions: 2,
    }
}

fn read(path: &Path) -> Result<DataFrame, Box<dyn Error>> {
    Ok(ParquetReader::new(File::open(path)?).finish()?)
}
