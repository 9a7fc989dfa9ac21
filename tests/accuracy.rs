//! `sim accuracy` on the small model that comes with loopbatch.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CONDITIONS: [&str; 4] = ["loops=4", "loops=1", "released=0.8", "lookahead=0.8"];

/// Every sixtieth held-out question.
fn accuracy(out: &Path, more: &[&str]) -> Output {
    let conditions = CONDITIONS.iter().flat_map(|name| ["--condition", *name]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(["accuracy", "--questions", "100", "--threads", "1", "--out", out.to_str().unwrap()]);
    command.args(conditions).args(more).output().unwrap()
}

fn figures(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("accuracy.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["conditions"].as_array().unwrap().clone()
}

#[test]
fn a_hundred_questions_show_what_loops_are_for_and_are_asked_once() {
    let dir = tempfile::tempdir().unwrap();
    let output = accuracy(dir.path(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [full, one, released, lookahead] = figures(dir.path()).try_into().unwrap();
    let share = |figures: &Value| figures["accuracy"]["mean"].as_f64().unwrap();
    // The model card has 99.8%, 53.5%, 99.1% and 99.8% of all questions.
    assert!(share(&full) >= 0.98, "{full}");
    assert!((0.35..0.7).contains(&share(&one)), "{one}");
    assert!(share(&released) >= 0.95 && share(&lookahead) >= 0.96, "{released} {lookahead}");
    let depth = |figures: &Value| figures["mean_depth"].as_f64().unwrap();
    assert_eq!((depth(&full), depth(&one)), (4.0, 1.0));
    assert!(depth(&released) < 2.0 && (2.0..2.6).contains(&depth(&lookahead)), "{released} {lookahead}");
    // What a model answers right it finds likely.
    assert!(full["nats_per_token"].as_f64().unwrap() < 0.1, "{full}");

    // A second run reads the journal: half a line is what a kill leaves, and its part is asked again.
    let journal = dir.path().join("answers.jsonl");
    let lines = fs::read_to_string(&journal).unwrap();
    assert_eq!(lines.lines().count(), CONDITIONS.len());
    let table = fs::read(dir.path().join("accuracy_by_task.csv")).unwrap();
    fs::write(&journal, &lines[..lines.len() - 20]).unwrap();
    assert!(accuracy(dir.path(), &[]).status.success());
    let again = fs::read_to_string(&journal).unwrap();
    assert_eq!(again.lines().count(), CONDITIONS.len());
    assert!(again.starts_with(&lines[..lines.rfind("{\"key\"").unwrap()]), "what was there stays");
    assert_eq!(fs::read(dir.path().join("accuracy_by_task.csv")).unwrap(), table);
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = dir.path().join("tasks.jsonl");
    fs::write(&tasks, "{\"prompt\": \"1+1=\", \"answer\": \"02\"}\n{\"prompt\": \"2+2=\"}\n").unwrap();
    let out = dir.path().join("out");
    for (arguments, said) in [
        (&["--tasks", tasks.to_str().unwrap()][..], "line 2: missing field `answer`"),
        (&["--condition", "loops=9"], "loops=9: "),
        (&["--max-tokens", "2000"], "lower --max-tokens"),
        (&["--model", "nowhere"], "nowhere"),
    ] {
        let output = accuracy(&out, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).replace(['│', '\n'], " ");
        let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(said), "{said}: {stderr}");
        assert!(!out.exists(), "{arguments:?}: something was written");
    }
}
