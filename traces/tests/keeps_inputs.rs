//! No command writes over what it reads, however the path is spelled, and then nothing is written at all.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::path::Path;
use std::process::Command;

const WORKLOAD: &str = "prompt_tokens,output_tokens\n5,6\n7,8\n";
const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,396,109\n";

/// Every file of a folder with its content.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.is_file())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn inputs_stay() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("w.csv"), WORKLOAD).unwrap();
    std::fs::write(folder.path().join("a.csv"), AZURE).unwrap();
    std::fs::write(folder.path().join("w.svg"), "").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path().join("w.csv"), folder.path().join("link.csv")).unwrap();
    let before = content(folder.path());
    let refuses = |arguments: &[&str], said: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_traces"));
        let ran = command.args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap().replace(['│', '×'], " ");
        let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{arguments:?}: {words}");
        for part in said {
            assert!(words.contains(part), "{arguments:?}: `{part}` is not in {words}");
        }
        assert_eq!(content(folder.path()), before, "{arguments:?}");
    };
    refuses(&["convert", "w.csv", "w.csv"], &["w.csv would be written over, and it is read as w.csv"]);
    refuses(
        &["convert", "w.csv", "./sub/../w.csv"],
        &["./sub/../w.csv would be written over, and it is read as w.csv"],
    );
    refuses(&["import", "a.csv", "a.csv"], &["a.csv would be written over"]);
    refuses(&["generate", "w.csv", "--file", "w.csv"], &["w.csv would be written over"]);
    refuses(&["inspect", "w.csv", "--quantiles", "w.csv"], &["w.csv would be written over"]);
    refuses(&["inspect", "w.csv", "--quantiles", "w.svg", "--svg", "w.svg"], &["would be written to the same place"]);
    #[cfg(unix)]
    {
        refuses(&["convert", "link.csv", "w.csv"], &["w.csv would be written over, and it is read as link.csv"]);
        refuses(&["convert", "w.csv", "link.csv"], &["link.csv would be written over, and it is read as w.csv"]);
    }
}
