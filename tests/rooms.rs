//! Rooms: which part of the code may know of which, told from the sources themselves.

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file under a folder, but those under `without`.
fn sources(folder: &Path, without: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        if path.is_dir() && !without.contains(&name.as_str()) {
            sources(&path, without, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Fails if a file of the folder has one of these words.
fn check(folder: &str, without: &[&str], forbidden: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut files = Vec::new();
    sources(&root, without, &mut files);
    assert!(!files.is_empty(), "{folder} has moved");
    for file in files {
        let text = fs::read_to_string(&file).expect("it can be read");
        // Tests of a file stand at its end, and may compare with whom they like.
        for (number, line) in text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]") {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = forbidden.iter().find(|word| code.contains(**word)) {
                panic!("{}:{}: `{word}` has no place in {folder}", file.display(), number + 1);
            }
        }
    }
}

#[test]
fn the_engine_but_for_live_runs_knows_no_device_no_file_no_clock_and_no_thread() {
    let std =
        ["std::fs", "std::io::Read", "std::time", "std::thread", "std::net", "std::env", "std::process", "Instant"];
    let crates = ["cudarc", "gemm", "safetensors::", "memmap2", "rayon", "crate::live"];
    check("engine/src", &["live", "bin"], &[&std[..], &crates].concat());
}

#[test]
fn the_scheduler_knows_requests_batches_pages_costs_and_a_models_shape_and_nothing_else() {
    let others = ["models", "profile", "metrics", "bounds", "event_loop", "executor", "submission"];
    let others = others.map(|room| format!("crate::{room}"));
    check("engine/src/scheduler", &[], &others.each_ref().map(String::as_str));
}

#[test]
fn what_a_model_is_does_not_depend_on_how_it_is_run() {
    check("engine/src/models", &[], &["crate::scheduler", "crate::batch", "crate::profile", "crate::metrics"]);
}

#[test]
fn no_backend_takes_from_the_other() {
    check("engine/src/live/cuda", &[], &["live::cpu"]);
    check("engine/src/live/cpu", &[], &["live::cuda"]);
}

#[test]
fn the_simulators_rooms_know_only_those_before_them() {
    let rooms = ["scenario", "run", "study", "live", "validate", "observe", "accuracy"];
    for (index, room) in rooms.iter().enumerate() {
        let mut behind: Vec<String> = rooms[index + 1..].iter().map(|room| format!("crate::{room}")).collect();
        if *room == "live" {
            behind.push("crate::study".into());
        }
        let words: Vec<&str> = behind.iter().map(String::as_str).collect();
        check(&format!("sim/src/{room}"), &[], &words);
    }
}

#[test]
fn only_command_lines_print_to_stdout() {
    check("sim/src", &["cli"], &[" println!"]);
    check("engine/src", &["bin"], &[" println!"]);
    check("reports/src", &[], &[" println!"]);
}
