//! The command on the real executor: files out, exit codes. The times are whatever this machine gives.

use std::path::Path;
use std::process::{Command, Output};

use engine::profile::Profile;

fn run(folder: &Path, options: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.current_dir(folder).args(options.split_whitespace()).output().expect("the binary runs")
}

const SMALL: &str = "--batches 1,8,32 --contexts 16,64,128 --rounds 2 --resamples 20 --budget 10min --threads 1";

const CHECKED: &str = "--batches 3,12 --contexts 24,96 --budget 20s --threads 1";

/// A busy machine can make loops seem to take no time, of which there is no profile.
const TRIES: usize = 4;

#[test]
fn tiny_models_are_calibrated_on_this_cpu() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let folder = tempfile::tempdir().expect("a folder");
        let command = format!("--model {model} --device cpu --out p.yaml --date 2026-01-02 --device-name here {SMALL}");
        let mut tries = (0..TRIES).map(|_| run(folder.path(), &command));
        let output = tries.find(|output| output.status.success()).expect("a quiet moment");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("round 2: "), "{said}");
        let tables = String::from_utf8_lossy(&output.stdout);
        for expected in ["rows are padded to", "residuals", "stage overhead", "prefill: ", "host\n", "offload: "] {
            assert!(tables.contains(expected), "no `{expected}` in {tables}");
        }
        let text = std::fs::read_to_string(folder.path().join("p.yaml")).expect("a profile was written");
        let profile: Profile = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        profile.check().expect("a sound profile");
        assert_eq!((profile.name, profile.model), (format!("{model} on here"), model.to_owned()));
        assert!(profile.source.starts_with("measured 2026-01-02 by `calibrate --model"), "{}", profile.source);

        // Other points are timed and compared; whether the profile holds is up to this machine.
        let check = run(folder.path(), &format!("check p.yaml --device cpu {CHECKED}"));
        assert!(matches!(check.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&check.stderr));
        let said = String::from_utf8_lossy(&check.stdout);
        for expected in ["mean error", "core", "step", "on average"] {
            assert!(said.contains(expected), "no `{expected}` in {said}");
        }

        // The table alone gives the same tables again.
        let fit = format!("fit p.csv --model {model} --base p.yaml --resamples 20 --out q.yaml");
        let again = run(folder.path(), &fit);
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        let again = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(tables.ends_with(&again), "{tables}\nis not\n{again}");
    }
}

#[test]
fn bad_options_are_exit_code_2_and_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |options: &str, expected: &str| {
        let output = run(folder.path(), options);
        let said = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", " ");
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "no `{expected}` in {said}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    };
    let good = "--model tiny-ouro --device cpu --out p.yaml";
    check("", "Usage: calibrate");
    check("--model tiny-ouro", "--out <OUT>");
    check("--model tiny-ouro --out p.yaml", "--device: say cpu or cuda");
    check("check nowhere.yaml --device cpu", "nowhere.yaml: No such file");
    check("--model tiny --device cpu --out p.yaml", "--model: there is no model `tiny`, only ");
    check("--model tiny-ouro --device abacus --out p.yaml", "invalid value 'abacus'");
    check(&format!("{good} --budget 60"), "must be a time with its unit, like 500ms, 60s or 8min, got `60`");
    check(&format!("{good} --budget=-1s"), "must be greater than zero, got `-1s`");
    check(&format!("{good} --layout flat"), "--layout: there is no layout `flat`");
    check(&format!("{good} --loops 1,2"), "--loops: must be a rising list");
    check(&format!("{good} --buckets 4,2"), "--buckets: must be exact, powers_of_two or a rising list");
    check(&format!("{good} --weights none"), "none: ");
    check(&format!("{good} fit"), "cannot be used with");
    check("--model tiny-ouro --device cpu --out p.csv", "--out: must not end in .csv");
    check("--model tiny-ouro --device cpu --out no/p.yaml", "no/p.csv: cannot be written");
}
