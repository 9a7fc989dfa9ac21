//! Tables that people made, and what is right for each.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use engine::profile::Profile;

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(name)
}

fn calibrate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.current_dir(folder).args(arguments).output().expect("the binary runs")
}

/// Without the report's frame and line breaks.
fn flat(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace(['│', '\n'], " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fits a table as it is, or changed, to `p.yaml`.
fn fit(folder: &Path, table: &str, options: &[&str]) -> Output {
    std::fs::write(folder.join("m.csv"), table).expect("writable");
    let common = ["fit", "m.csv", "--model", "ouro-1.4b", "--resamples", "9", "--out", "p.yaml"];
    calibrate(folder, &[&common[..], options].concat())
}

fn read(name: &str) -> String {
    std::fs::read_to_string(case(name)).expect("a case")
}

const H100: [&str; 2] = ["--device", "h100-80gb"];

#[test]
fn a_profile_is_judged_by_whole_steps_where_no_core_was_timed() {
    let folder = tempfile::tempdir().expect("a folder");
    let clean = read("fit_clean.csv");
    assert!(fit(folder.path(), &clean, &H100).status.success());
    let compared = calibrate(folder.path(), &["compare", "p.yaml", "m.csv"]);
    let said = flat(&compared.stdout);
    assert_eq!(compared.status.code(), Some(0), "{said}");
    assert!(said.contains("holds: whole steps (no core was timed by itself) are off by 0."), "{said}");
    let slower: String = clean
        .lines()
        .map(|line| match line.rsplit_once(',') {
            Some((point, ms)) => {
                format!("{point},{}\n", ms.parse::<f64>().map_or(ms.into(), |ms| (1.2 * ms).to_string()))
            }
            None => format!("{line}\n"),
        })
        .collect();
    std::fs::write(folder.path().join("slower.csv"), slower).expect("writable");
    let compared = calibrate(folder.path(), &["compare", "p.yaml", "slower.csv"]);
    let said = flat(&compared.stdout);
    assert_eq!(compared.status.code(), Some(1), "{said}");
    assert!(said.contains("does not hold: whole steps (no core was timed by itself) are off by 16."), "{said}");
}

#[test]
fn a_profile_cannot_be_judged_without_core_or_step() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(fit(folder.path(), &read("fit_clean.csv"), &H100).status.success());
    let chunks = "batch,context,loops,step_ms,stage,tokens\n1,0,,20,prefill,64\n";
    std::fs::write(folder.path().join("chunks.csv"), chunks).expect("writable");
    let compared = calibrate(folder.path(), &["compare", "p.yaml", "chunks.csv"]);
    let said = flat(&compared.stderr);
    assert_eq!(compared.status.code(), Some(2), "{said}");
    assert!(said.contains("there are no rows of stage `core`, nor of stage `step`"), "{said}");
    assert!(compared.stdout.is_empty());
    let profile = std::fs::read_to_string(folder.path().join("p.yaml")).expect("written");
    std::fs::write(folder.path().join("twice.yaml"), profile + "name: another\n").expect("writable");
    let compared = calibrate(folder.path(), &["compare", "twice.yaml", "m.csv"]);
    let said = flat(&compared.stderr);
    assert!(compared.status.code() == Some(2) && said.contains("`name`") && !said.contains("Options"), "{said}");
}

#[test]
fn times_that_no_memory_allows_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let seconds = read("fit_times_in_seconds.csv");
    let refused = fit(folder.path(), &seconds, &H100);
    let said = flat(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("are these times in seconds, or of another device than h100-80gb"), "{said}");
    assert!(said.contains("line 2: batch 1 at context 128 takes 0.0054 ms, and needs"), "{said}");
    assert!(!folder.path().join("p.yaml").exists());
    // In a device's cache a small model's weights may be read faster: a warning.
    let tiny = ["--model", "tiny-ouro", "--device", "slow", "--bandwidth-gb-per-s", "0.001", "--compute-tflops", "1"];
    std::fs::write(folder.path().join("m.csv"), &seconds).expect("writable");
    let warned =
        calibrate(folder.path(), &[&["fit", "m.csv", "--resamples", "9", "--out", "p.yaml"][..], &tiny].concat());
    assert!(warned.status.success(), "{warned:?}");
    assert!(flat(&warned.stderr).contains("weights that a cache holds?"), "{warned:?}");
    assert!(!flat(&fit(folder.path(), &read("fit_clean.csv"), &H100).stderr).contains("of the time in which"));
}

#[test]
fn rounds_that_disagree_are_reported_and_the_slow_one_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let fitted = fit(folder.path(), &read("fit_two_rounds_10x_apart.csv"), &H100);
    let said = flat(&fitted.stderr);
    assert!(fitted.status.success(), "{said}");
    assert!(said.contains("spread 163.6%, drift -90.0%"), "{said}");
    assert!(said.contains("warning: the times are noisy"), "{said}");
    assert!(said.contains("warning: round 0 (counted from 0) took 10.0"), "{said}");
    assert!(!said.contains("round 1 (counted from 0)"), "{said}");
    let profile = std::fs::read_to_string(folder.path().join("p.yaml")).expect("written");
    let profile: Profile = serde_yaml::from_str(&profile).expect("a profile");
    assert!(profile.source.contains("drift -90.0%"), "{}", profile.source);
}

#[test]
fn a_mean_context_may_lie_between_two_entries() {
    let folder = tempfile::tempdir().expect("a folder");
    let clean = read("fit_clean.csv");
    // 16 timed tokens after a prompt of L: L + 8.5 on average.
    let between: String = clean
        .lines()
        .map(|line| match line.split(',').collect::<Vec<_>>()[..] {
            [batch, context, loops, ms] if context != "context" => format!("{batch},{context}.5,{loops}.0,{ms}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let fitted = fit(folder.path(), &between, &H100);
    assert!(fitted.status.success(), "{}", flat(&fitted.stderr));
    let bad = |row: &str, expected: &str| {
        let refused = fit(folder.path(), &format!("batch,context,loops,step_ms\n{row}\n"), &H100);
        let said = flat(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(expected), "{said}");
    };
    bad("1,0.5,1,6", "m.csv:2: context: must be a number from 1 to 1073741824, got `0.5`");
    bad("1,inf,1,6", "m.csv:2: context: must be a number from 1");
    bad("4294967295,128,1,6", "m.csv:2: batch: must be a whole number from 1 to 65536, got `4294967295`");
    bad("1,128,256,6", "m.csv:2: loops: must be a whole number from 1 to 254, got `256`");
}

#[test]
fn resamplings_that_no_memory_holds_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("m.csv"), read("fit_clean.csv")).expect("writable");
    for resamples in ["100000000", "1e8", "4294967295"] {
        let common = ["fit", "m.csv", "--model", "ouro-1.4b", "--out", "p.yaml", "--resamples", resamples];
        let refused = calibrate(folder.path(), &[&common[..], &H100].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(flat(&refused.stderr).contains("must be at most 1000000, got"), "{refused:?}");
    }
}
