//! `calibrate --endpoint` against a server whose every step takes as long.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[path = "../../sim/client/tests/stub/mod.rs"]
mod stub;

use std::process::{Command, Output};
use std::time::Duration;

use engine::profile::Profile;
use stub::Manner;

const MANNER: Manner = Manner {
    first: Duration::from_millis(60),
    gap: Duration::from_millis(20),
    takes_ids: true,
    strict: false,
    counts: true,
    breaks_every: 0,
};

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().unwrap()
}

#[test]
fn a_steady_server_has_a_delta_and_little_else() {
    let url = format!("http://{}", stub::start(MANNER));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("stub.yaml");
    let Output { status, stdout, stderr } = calibrate(&[
        "--endpoint",
        &url,
        "--model",
        "tiny-ouro",
        "--out",
        out.to_str().unwrap(),
        "--batches",
        "1,2,4",
        "--contexts",
        "16,64,128",
        "--budget",
        "1s",
        "--rounds",
        "1",
        "--date",
        "today",
    ]);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{stderr}");
    assert!(stdout.contains("a whole step at full depth"), "{stdout}");
    assert!(stderr.contains("cannot be told apart: prelude, loops and coda"), "{stderr}");
    let profile: Profile = serde_yaml::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    profile.check().unwrap();
    // All of a step is in the core, a quarter a loop. A busy machine wakes sleepers late.
    for (batch, context) in [(1, 16), (2, 128), (4, 256)] {
        let step_ms = 4.0 * profile.core_ms(batch, context);
        assert!((step_ms / 20.0 - 1.0).abs() < 0.1, "{step_ms} ms with {batch} rows");
    }
    let prefill_ms = profile.prefill_ms([(0, 64)]);
    assert!((prefill_ms / 60.0 - 1.0).abs() < 0.1, "{prefill_ms} ms");
    assert!(profile.source.contains(&format!("--endpoint {url}")), "{}", profile.source);
    let table = std::fs::read_to_string(dir.path().join("stub.csv")).unwrap();
    assert!(table.lines().any(|line| line.starts_with("step,4,")), "{table}");
}

#[test]
fn what_cannot_be_timed_is_bad_input_and_leaves_nothing() {
    let url = format!("http://{}", stub::start(Manner { breaks_every: 1, ..MANNER }));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("stub.yaml");
    let with = |arguments: &[&str]| {
        calibrate(&[&["--model", "tiny-ouro", "--out", out.to_str().unwrap()], arguments].concat())
    };
    for (arguments, said) in [
        (vec!["--endpoint", &url], "connection broken off"),
        (vec!["--endpoint", "nowhere"], "http:// or https:// before it"),
        (vec!["--endpoint", &url, "--api-key-env", "NOBODY_SETS_THIS"], "NOBODY_SETS_THIS"),
        (vec!["--endpoint", &url, "--device", "cpu"], "cannot be used with"),
        (vec![], "--device: say cpu or cuda"),
    ] {
        let Output { status, stderr, .. } = with(&arguments);
        let flat = String::from_utf8_lossy(&stderr)
            .split_whitespace()
            .filter(|word| *word != "│")
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(status.code(), Some(2), "{arguments:?}: {flat}");
        assert!(flat.contains(said), "{arguments:?}: {flat}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{arguments:?} left something");
    }
}
