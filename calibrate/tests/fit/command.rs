//! The command: files in, files out, exit codes.

use std::path::Path;
use std::process::{Command, Output};

use engine::profile::Profile;

use crate::machine::{Timed, csv, shipped};

fn run(folder: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.current_dir(folder).arg("fit").args(options).output().expect("the binary runs")
}

fn folder_with_measurements() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let text = csv(&shipped("ouro-1.4b"), &[1, 2, 4], Timed::StepsAndStages, 0.003, 2);
    std::fs::write(folder.path().join("m.csv"), text).expect("writable");
    folder
}

fn profile(path: &Path) -> Profile {
    let text = std::fs::read_to_string(path).expect("a profile was written");
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn a_fit_writes_a_profile_and_prints_its_tables() {
    let folder = folder_with_measurements();
    let options = ["m.csv", "--model", "ouro-1.4b", "--device", "h100-80gb", "--resamples", "50", "--out", "p.yaml"];
    let output = run(folder.path(), &options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("saturation batch size"));
    let profile = profile(&folder.path().join("p.yaml"));
    profile.check().expect("a sound profile");
    assert_eq!((profile.name.as_str(), profile.model.as_str()), ("ouro-1.4b on h100-80gb", "ouro-1.4b"));
    assert!((profile.core.delta_ms - 5.4).abs() < 0.1, "{:?}", profile.core);
    let files = std::fs::read_dir(folder.path()).expect("readable").map(|file| file.expect("readable").file_name());
    let mut files: Vec<_> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    files.sort();
    assert_eq!(files, ["m.csv", "p.parquet", "p.yaml", "p_latency.svg", "p_residuals.svg"]);
    let same = run(folder.path(), &options);
    assert_eq!(output.stdout, same.stdout, "the same measurements and seed give the same bytes");
}

#[test]
fn a_profile_is_compared_with_times_that_it_was_not_fitted_to() {
    let folder = folder_with_measurements();
    let fit = run(folder.path(), &["m.csv", "--model", "ouro-1.4b", "--device", "h100-80gb", "--out", "p.yaml"]);
    assert!(fit.status.success(), "{}", String::from_utf8_lossy(&fit.stderr));
    let mut slower = shipped("ouro-1.4b");
    slower.core.delta_ms *= 1.2;
    for (machine, verdict, code) in [(shipped("ouro-1.4b"), "holds", 0), (slower, "does not hold", 1)] {
        let text = csv(&machine, &[1, 2, 4], Timed::StepsAndStages, 0.003, 5);
        std::fs::write(folder.path().join("other.csv"), text).expect("writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
        let output = command.current_dir(folder.path()).args(["compare", "p.yaml", "other.csv"]).output();
        let output = output.expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(verdict) && said.contains("prefill"), "{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
    }
}

#[test]
fn a_profile_is_adjusted_to_another_device_of_its_kind() {
    let folder = folder_with_measurements();
    let fit = run(folder.path(), &["m.csv", "--model", "ouro-1.4b", "--device", "h100-80gb", "--out", "p.yaml"]);
    assert!(fit.status.success(), "{}", String::from_utf8_lossy(&fit.stderr));
    let mut slower = shipped("ouro-1.4b");
    for cost in [&mut slower.core, &mut slower.prelude, &mut slower.coda] {
        let terms = [&mut cost.delta_ms, &mut cost.floor_ms, &mut cost.gamma_us, &mut cost.alpha_ns];
        terms.into_iter().for_each(|term| *term *= 1.15);
    }
    let text = csv(&slower, &[1, 2, 4], Timed::StepsAndStages, 0.003, 5);
    std::fs::write(folder.path().join("other.csv"), text).expect("writable");
    let calibrate = |options: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
        command.current_dir(folder.path()).args(options.split(' ')).output().expect("the binary runs")
    };
    assert_eq!(calibrate("compare p.yaml other.csv").status.code(), Some(1));
    let adjusted = calibrate("adjust p.yaml other.csv --name other --out q.yaml");
    assert!(adjusted.status.success(), "{}", String::from_utf8_lossy(&adjusted.stderr));
    assert!(String::from_utf8_lossy(&adjusted.stdout).contains("\"other\" holds"), "{adjusted:?}");
    assert_eq!(calibrate("compare q.yaml other.csv").status.code(), Some(0));
    let (before, after) = (profile(&folder.path().join("p.yaml")), profile(&folder.path().join("q.yaml")));
    let factor = after.core.delta_ms / before.core.delta_ms;
    assert!((factor - 1.15).abs() < 0.01, "{factor}");
    assert!(after.source.ends_with("then adjusted to another device's times, other.csv"), "{}", after.source);

    std::fs::write(folder.path().join("steps.csv"), csv(&slower, &[1, 2, 4], Timed::Steps, 0.003, 5))
        .expect("writable");
    let refused = calibrate("adjust p.yaml steps.csv --out r.yaml");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there are no rows of stage `core`"), "{refused:?}");
    assert!(!folder.path().join("r.yaml").exists());
}

#[test]
fn a_base_gives_what_was_not_measured() {
    let folder = folder_with_measurements();
    let base = shipped("ouro-1.4b");
    std::fs::write(folder.path().join("base.yaml"), serde_yaml::to_string(&base).expect("serialisable"))
        .expect("writable");
    let output = run(folder.path(), &["m.csv", "--model", "ouro-1.4b", "--base", "base.yaml", "--out", "p.yaml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let profile = profile(&folder.path().join("p.yaml"));
    assert_eq!((profile.host, profile.device), (base.host, base.device));
    let wrong = run(folder.path(), &["m.csv", "--model", "ouro-2.6b", "--base", "base.yaml", "--out", "q.yaml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--base: is a profile of ouro-1.4b"));
}

#[test]
fn times_that_do_not_grow_with_loops_in_a_line_are_warned_about() {
    let folder = folder_with_measurements();
    let path = folder.path().join("m.csv");
    let text = std::fs::read_to_string(&path).expect("readable");
    std::fs::write(&path, text + "1,128,3,30,step,\n").expect("writable");
    let options = ["m.csv", "--model", "ouro-1.4b", "--device", "h100-80gb", "--resamples", "9", "--out", "p.yaml"];
    let output = run(folder.path(), &options);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("warning: R^2 over loops is below 0.999 at 1 points, the first is batch 1, context 128"),
        "{said}"
    );
}

#[test]
fn bad_input_is_exit_code_2_and_leaves_no_profile() {
    let folder = folder_with_measurements();
    std::fs::write(folder.path().join("bad.csv"), "batch,context,loops,step_ms\n1,128,1,-6\n").expect("writable");
    let check = |options: &[&str], expected: &str| {
        let output = run(folder.path(), options);
        let said = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", " ");
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "no `{expected}` in {said}");
        assert!(output.stdout.is_empty());
        assert!(!folder.path().join("p.yaml").exists());
    };
    let out = ["--model", "ouro-1.4b", "--device", "h100-80gb", "--out", "p.yaml"];
    check(&[&["bad.csv"][..], &out].concat(), "bad.csv:2: step_ms: must be a time in ms");
    check(&[&["none.csv"][..], &out].concat(), "none.csv: No such file");
    check(&["m.csv", "--model", "ouro", "--device", "h200", "--out", "p.yaml"], "--model: there is no model `ouro`");
    check(
        &["m.csv", "--model", "ouro-1.4b", "--device", "mine", "--out", "p.yaml"],
        "--bandwidth-gb-per-s: is needed for",
    );
    check(
        &[&["m.csv", "--buckets", "4,2"][..], &out].concat(),
        "--buckets: must be exact, powers_of_two or a rising list",
    );
    check(&["m.csv", "--model", "ouro-1.4b", "--device", "h200", "--out", "no/p.yaml"], "no/p.yaml: cannot be written");
    check(&["m.csv", "--model", "ouro-1.4b", "--out", "p.yaml"], "--device");
}
