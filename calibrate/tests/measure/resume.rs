//! A measurement that is cut off goes on where it stopped.

use std::io::Write;
use std::path::Path;

use calibrate::error::CalibrateError;
use calibrate::measure::{Journal, MeasurementPlan};
use calibrate::measurements;
use engine::architecture::Architecture;
use engine::profile::Profile;

use crate::fake::{machine, plan, run};

fn fixture() -> (Profile, MeasurementPlan) {
    let model = Architecture::builtin("tiny-huginn").expect("built in");
    (machine("tiny-huginn"), plan(&model, 2))
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).expect("readable").lines().map(str::to_owned).collect()
}

#[test]
fn a_broken_executor_is_an_error_and_what_was_measured_is_kept() {
    let (machine, plan) = fixture();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.csv");
    let mut journal = Journal::open(&path, "a fake").expect("writable");
    let whole = folder.path().join("whole.csv");
    run(&machine, &plan, &mut Journal::open(&whole, "a fake").expect("writable"), u64::MAX).expect("the fake runs");

    let error = run(&machine, &plan, &mut journal, 3).expect_err("it breaks");
    assert_eq!(error.to_string(), "filling the cache at 2 loops: the fake broke");
    let error = run(&machine, &plan, &mut journal, 9000).expect_err("it breaks");
    assert!(error.to_string().ends_with(": the fake broke"), "{error}");
    let kept = lines(&path).len();
    assert!(kept > 50 && kept < lines(&whole).len(), "{kept} lines");

    // Killed in the middle of a line.
    drop(journal);
    let mut file = std::fs::File::options().append(true).open(&path).expect("there");
    file.write_all(b"step,8,64,4,,1.2").expect("writable");
    let mut journal = Journal::open(&path, "a fake").expect("readable");
    assert_eq!(journal.resumed(), kept - 2);
    run(&machine, &plan, &mut journal, u64::MAX).expect("the fake runs");
    assert_eq!(lines(&path), lines(&whole), "an interruption changes nothing");

    journal.complete().expect("writable");
    let rows = measurements::read(&path).expect("a table that `fit` reads");
    assert!(rows.ignored.is_empty(), "{:?}", rows.ignored);
    assert_eq!(rows.rows.len(), journal.rows().len());
    assert_eq!(Journal::open(&path, "a fake").expect("writable").resumed(), 0, "what is complete is measured afresh");
}

#[test]
fn another_measurement_is_not_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.csv");
    let (machine, plan) = fixture();
    let mut journal = Journal::open(&path, "a fake").expect("writable");
    run(&machine, &plan, &mut journal, 9000).expect_err("it breaks");
    let before = lines(&path);
    let error = Journal::open(&path, "another fake").expect_err("another setup");
    assert!(matches!(error, CalibrateError::OtherSetup { .. }));
    let said = error.to_string();
    assert!(said.contains("delete it, or give another --out"), "{said}");
    assert!(said.contains("there: a fake\n  now:   another fake"), "{said}");
    assert_eq!(lines(&path), before);

    std::fs::write(&path, "a letter\nto somebody\n").expect("writable");
    let said = Journal::open(&path, "a fake").expect_err("no table of ours").to_string();
    assert!(said.contains("there: a letter"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = Journal::open(&folder.path().join("no/m.csv"), "a fake").expect_err("no folder").to_string();
    assert!(said.contains("no/m.csv: cannot be written"), "{said}");
}
