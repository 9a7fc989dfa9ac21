//! Workload files of other writers, and files that hold several runs' requests: read, or refused with the column and the row.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::fs::File;
use std::path::{Path, PathBuf};

use engine::architecture::Family;
use engine::units::Depth;
use polars::prelude::*;
use traces::file::{Rows, Wanted};
use traces::{AllowedExits, TracesError};

const EXITS: Option<AllowedExits> = Some(AllowedExits { family: Family::OURO, min: Depth(1), max: Depth(4) });
const ALL: Wanted<'_> = Wanted { arrivals: true, exits: EXITS, requests: None, scheduler: None };
const TIMED: Wanted<'_> = Wanted { exits: None, ..ALL };
const DEPTHS: Wanted<'_> = Wanted { arrivals: false, ..ALL };
const LENGTHS: Wanted<'_> = Wanted { arrivals: false, exits: None, ..ALL };

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(name)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn error(path: &Path, wanted: Wanted<'_>) -> String {
    let error = Rows::read(path, wanted).unwrap_err().to_string();
    let name = path.file_name().unwrap().to_str().unwrap();
    error[error.find(name).unwrap_or_else(|| panic!("{error}"))..].into()
}

/// Reads a table of three requests (10, 20 and 30 tokens in, 3 out) with some columns in place of those.
fn read(columns: Vec<Column>, wanted: Wanted<'_>) -> Result<Rows, TracesError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.parquet");
    let mut table =
        df!("prompt_tokens" => [10i64, 20, 30], "output_tokens" => [3i64; 3], "arrival_s" => [0.0, 0.5, 1.0]);
    for column in columns {
        table = table.map(|mut table| table.with_column(column).unwrap().clone());
    }
    ParquetWriter::new(File::create(&path).unwrap()).finish(&mut table.unwrap()).unwrap();
    Rows::read(&path, wanted)
}

fn depths(rows: &Rows) -> Vec<Vec<u8>> {
    let exits = rows.exits().unwrap();
    let of = |request| exits.of(request).iter().map(|depth| depth.0).collect();
    (0..rows.len()).map(of).collect()
}

#[test]
fn types_that_cannot_be_read_are_named_with_their_column() {
    let check = |path: PathBuf, wanted, expect: &str| assert_eq!(error(&path, wanted), expect);
    check(
        case("decimal_columns.parquet"),
        TIMED,
        "decimal_columns.parquet: the column `prompt_tokens` holds decimal(10, 0), and must hold integers, or floats that are whole",
    );
    let seconds = "and must hold seconds since the run's start, as floats or integers";
    check(
        fixture("timestamp_arrivals.parquet"),
        TIMED,
        &format!("timestamp_arrivals.parquet: the column `arrival_s` holds timestamps, {seconds}"),
    );
    check(
        fixture("duration_arrivals.parquet"),
        TIMED,
        &format!("duration_arrivals.parquet: the column `arrival_s` holds durations, {seconds}"),
    );
    check(
        fixture("fixed_list_exits.parquet"),
        DEPTHS,
        "fixed_list_exits.parquet: the column `exit_depths` holds lists of a fixed length (2) of int8, and must hold text, or \
         lists of integers",
    );
    check(
        fixture("category_scheduler.parquet"),
        LENGTHS,
        "category_scheduler.parquet: the column `scheduler` holds categories (a dictionary of text), and must hold text or integers",
    );
}

#[test]
fn columns_that_nobody_reads_may_hold_anything() {
    let rows = Rows::read(&fixture("odd_other_columns.parquet"), LENGTHS).unwrap();
    assert_eq!((rows.len(), rows.lengths(2)), (3, Some((30, 3))));
}

#[test]
fn a_null_among_exit_depths_names_its_row() {
    let error = error(&case("null_in_exit_depths.parquet"), DEPTHS);
    assert_eq!(error, "null_in_exit_depths.parquet, row 1, field `exit_depths`: has no value");
}

#[test]
fn numbers_of_any_width_are_read_and_others_name_their_row() {
    let prompts = |column: Column| read(vec![column], LENGTHS).map(|rows| rows.lengths(2).unwrap().0);
    assert_eq!(prompts(Column::new("prompt_tokens".into(), [10.0f64, 20.0, 30.0])).unwrap(), 30);
    assert_eq!(prompts(Column::new("prompt_tokens".into(), [10u64, 20, 30])).unwrap(), 30);
    assert_eq!(prompts(Column::new("prompt_tokens".into(), [10i8, 20, 30])).unwrap(), 30);
    let refused = |column, expect: &str| {
        let error = prompts(column).unwrap_err().to_string();
        assert!(error.ends_with(expect), "{error}");
    };
    refused(
        Column::new("prompt_tokens".into(), [10u64, u64::MAX, 30]),
        "row 2, field `prompt_tokens`: must be a whole number, got 18446744073709551615",
    );
    refused(
        Column::new("prompt_tokens".into(), [10.0f64, 20.5, 30.0]),
        "row 2, field `prompt_tokens`: must be a whole number, got 20.5",
    );
    refused(
        Column::new("prompt_tokens".into(), [Some(10i64), None, None]),
        "row 2, field `prompt_tokens`: has no value",
    );
    let none = Column::full_null("prompt_tokens".into(), 3, &DataType::Null);
    refused(none, "row 1, field `prompt_tokens`: has no value");
    refused(
        Column::new("prompt_tokens".into(), [true, false, true]),
        "the column `prompt_tokens` holds boolean, and must hold integers, or floats that are whole",
    );
}

#[test]
fn lists_of_any_numbers_are_depths_and_a_missing_list_is_none() {
    let lists = |lists: [Option<Series>; 3]| {
        let lists: ListChunked = lists.into_iter().collect();
        read(vec![lists.with_name("exit_depths".into()).into_column()], DEPTHS)
    };
    let list = |depths: &[f64]| Some(Series::new("".into(), depths));
    let rows = lists([list(&[2.0, 3.0]), list(&[2.0, 4.0]), list(&[4.0, 4.0])]).unwrap();
    assert_eq!(depths(&rows), [[2, 3], [2, 4], [4, 4]]);
    let error = lists([list(&[2.0, 3.0]), None, list(&[4.0, 4.0])]).unwrap_err().to_string();
    assert!(error.contains("row 2, field `exit_depths`: must list 2 depths"), "{error}");
    let one_token = Column::new("output_tokens".into(), [1i64; 3]);
    let none = Column::full_null("exit_depths".into(), 3, &DataType::Null);
    assert_eq!(depths(&read(vec![one_token, none], DEPTHS).unwrap()), [[0u8; 0]; 3]);
}

#[test]
fn a_csv_of_whole_floats_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.csv");
    std::fs::write(&path, "prompt_tokens,output_tokens,exit_depths\n655.0,3.0,2.0 4\n").unwrap();
    let rows = Rows::read(&path, DEPTHS).unwrap();
    assert_eq!((rows.lengths(0), depths(&rows)), (Some((655, 3)), vec![vec![2, 4]]));
}

#[test]
fn a_file_of_several_schedulers_is_read_for_one() {
    let names = ["no refill", "refill K=1", "no refill"];
    let column = |names: [&str; 3]| vec![Column::new("scheduler".into(), names)];
    let of = |scheduler| Wanted { scheduler, ..TIMED };
    let check = |columns: Vec<Column>, scheduler, expect: Result<Vec<u32>, &str>| {
        let rows = read(columns.clone(), of(scheduler)).map_err(|error| error.to_string());
        let prompts = rows.map(|rows| (0..rows.len()).map(|row| rows.lengths(row).unwrap().0).collect::<Vec<_>>());
        match (prompts, expect) {
            (Ok(prompts), Ok(expect)) => assert_eq!(prompts, expect),
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (got, expect) => panic!("{columns:?}, {scheduler:?}: {got:?} for {expect:?}"),
        }
    };
    check(column(names), Some("no refill"), Ok(vec![10, 30]));
    check(column(names), None, Err("once for each of 2 schedulers: name one"));
    check(column(names), None, Err("of `no refill`, `refill K=1`"));
    check(column(names), Some("refill"), Err("no requests of a scheduler `refill`; it has those of `no refill`"));
    check(column(["refill K=1"; 3]), None, Ok(vec![10, 20, 30]));
    check(Vec::new(), Some("no refill"), Err("it has no column `scheduler`"));
    let runs = [column(names), vec![Column::new("run".into(), ["a"; 3]), Column::new("repeat".into(), [0u32, 0, 1])]];
    check(runs.concat(), Some("no refill"), Err("once for each of its runs"));
    check(runs.concat(), Some("refill K=1"), Ok(vec![20]));
}

#[test]
fn a_runs_requests_come_in_the_order_of_the_workload() {
    let run = vec![Column::new("scheduler".into(), ["a"; 3]), Column::new("request".into(), [2u32, 0, 1])];
    let finished = Column::new("arrival_s".into(), [1.0, 0.0, 0.5]);
    let depths_of = Column::new("exit_depths".into(), ["2 2", "3 3", "4 4"]);
    let columns = [run.clone(), vec![finished, depths_of]].concat();
    let rows = read(columns.clone(), ALL).unwrap();
    let prompts: Vec<_> = (0..3).map(|row| rows.lengths(row).unwrap().0).collect();
    assert_eq!((prompts, depths(&rows)), (vec![20, 30, 10], vec![vec![3, 3], vec![4, 4], vec![2, 2]]));
    let first = read(columns, Wanted { requests: Some(1), ..ALL }).unwrap();
    assert_eq!((first.len(), first.lengths(0)), (1, Some((20, 3))));
    // The arrivals of the plain table rise with its rows, and so fall in the order of these requests.
    let error = read(run, TIMED).unwrap_err().to_string();
    assert!(error.contains("in the order of `request`, its `arrival_s` fall"), "{error}");
}

#[test]
fn a_csv_of_several_schedulers_is_read_for_one_whatever_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.csv");
    std::fs::write(&path, "scheduler,prompt_tokens,output_tokens\na,1,2\na,3,4\nb,1,2\n").unwrap();
    let one = Wanted { requests: Some(1), ..LENGTHS };
    assert!(error(&path, one).contains("once for each of 2 schedulers"));
    let rows = Rows::read(&path, Wanted { scheduler: Some("b"), ..one }).unwrap();
    assert_eq!((rows.len(), rows.lengths(0)), (1, Some((1, 2))));
}
