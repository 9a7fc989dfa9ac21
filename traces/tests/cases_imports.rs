//! Traces whose records or times were lost on the way in: what of each is kept, and when it arrives.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::path::{Path, PathBuf};
use std::process::Command;

use traces::file::{Rows, Wanted};
use traces::import::{Options, Source, import};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(name)
}

/// Imports a file with the command line; its exit code and stderr, flat, and the requests that were written.
fn imported(input: &Path, arguments: &[&str]) -> (i32, String, Vec<(f64, u32, u32)>) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("w.csv");
    let mut command = Command::new(env!("CARGO_BIN_EXE_traces"));
    let ran = command.arg("import").args([input, &output]).args(arguments).env("NO_COLOR", "1").output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap().replace(['│', '×'], " ");
    let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = Rows::read(&output, Wanted { arrivals: true, ..Wanted::default() });
    assert_eq!(ran.status.success(), rows.is_ok(), "{stderr}");
    let rows = rows.unwrap_or_default();
    let of = |row| Some((rows.arrival(row)?.as_secs(), rows.lengths(row)?.0, rows.lengths(row)?.1));
    (ran.status.code().unwrap(), stderr, (0..rows.len()).map_while(of).collect())
}

fn arrivals(input: &Path, arguments: &[&str]) -> Vec<f64> {
    imported(input, arguments).2.into_iter().map(|(arrival_s, ..)| arrival_s).collect()
}

/// The same of a text.
fn text(text: &str, arguments: &[&str]) -> (i32, String, Vec<(f64, u32, u32)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    imported(&path, arguments)
}

#[test]
fn seconds_are_not_taken_for_milliseconds() {
    assert_eq!(arrivals(&case("session_trace_in_seconds.jsonl"), &[]), [0.0, 1.386, 14.136, 60.0]);
    assert_eq!(arrivals(&case("timestamps_in_seconds.jsonl"), &[]), [0.0, 0.2, 0.4]);
    let (_, stderr, _) = imported(&case("timestamps_in_seconds.jsonl"), &[]);
    assert!(stderr.contains("taken as seconds, as milliseconds they would be 5000 requests per second"), "{stderr}");
}

#[test]
fn a_unit_that_is_given_holds() {
    assert_eq!(arrivals(&case("timestamps_in_seconds.jsonl"), &["--time-unit", "ms"]), [0.0, 0.0002, 0.0004]);
    let session = case("session_trace_in_seconds.jsonl");
    assert_eq!(arrivals(&session, &["--time-unit", "ms"]), [0.0, 0.001_386, 0.014_136, 0.06]);
    let (code, stderr, _) = imported(&session, &["--time-unit", "h"]);
    assert!(code == 2 && stderr.contains("a unit of time is one of s, ms, us, ns"), "{stderr}");
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,396,109\n";
    let (code, stderr, _) = text(azure, &["--time-unit", "s"]);
    assert!(code == 2 && stderr.contains("--time-unit is for the timestamps of mooncake"), "{stderr}");
}

fn lines(times: &[&str]) -> String {
    let line = |time: &&str| format!("{{\"timestamp\": {time}, \"input_length\": 10, \"output_length\": 5}}\n");
    times.iter().map(line).collect()
}

#[test]
fn whole_numbers_are_milliseconds_and_a_span_without_sense_is_warned_of() {
    let (code, stderr, rows) = text(&lines(&["27000", "30000", "30000"]), &[]);
    assert_eq!((code, stderr.as_str(), rows[2].0), (0, "", 3.0));
    let (code, stderr, _) = text(&lines(&["0", "1", "2", "3"]), &[]);
    assert!(code == 0 && stderr.contains("4 requests within 0.003 s make no sense (1000 per second)"), "{stderr}");
    let (code, stderr, rows) = text(&lines(&["0", "1", "2", "3"]), &["--time-unit", "s"]);
    assert_eq!((code, stderr.as_str(), rows[3].0), (0, "", 3.0));
}

#[test]
fn times_that_could_be_either_are_asked_for() {
    let times = lines(&["61.114", "62.5", "75.25", "121.114"]);
    let (code, stderr, _) = text(&times, &[]);
    assert!(code == 2 && stderr.contains("--time-unit s or --time-unit ms"), "{stderr}");
    assert_eq!(text(&times, &["--time-unit", "s"]).2[3].0, 60.0);
    assert_eq!(text(&lines(&["1700000000.5", "1700000001.75"]), &[]).2[1].0, 1.25);
}

#[test]
fn whole_floats_and_fields_that_are_only_counted_lose_no_record() {
    let path = case("optional_fields.jsonl");
    let imported = import(&path, Source::Mooncake, Options::default(), &|_, _| {}).unwrap();
    assert_eq!((imported.tally.read(), imported.tally.kept(), imported.tally.malformed()), (13, 5, 7));
    assert_eq!(arrivals(&path, &[]), [0.0, 0.001, 0.031, 0.041, 0.061]);
    let malformed: Vec<_> = imported.tally.first_problems().iter().map(|problem| problem.field).collect();
    let expect = ["timestamp", "output_length", "input_length", "timestamp", "output_length", "timestamp", "timestamp"];
    assert_eq!(malformed, expect);
}

#[test]
fn floats_and_offsets_of_a_csv_lose_no_record() {
    let header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    let rows = "2023-11-16 11:00:00 -07:00,655.0,52\n2023-11-16 18:00:01+00,7,8.0\n2023-11-16 18:00:02.5 UTC,1e3,9\n";
    let (code, stderr, rows) = text(&format!("{header}{rows}"), &["--strict"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(rows, [(0.0, 655, 52), (1.0, 7, 8), (2.5, 1000, 9)]);
}

#[test]
fn an_unknown_csv_says_which_columns_it_has() {
    let (code, stderr, _) = text("Timestamp,Model,Request tokens\n1,x,5\n", &[]);
    let said = "as a CSV it has the columns Timestamp, Model, Request tokens, and azure has TIMESTAMP, ContextTokens, \
                GeneratedTokens";
    assert!(code == 2 && stderr.contains(said), "{stderr}");
}
