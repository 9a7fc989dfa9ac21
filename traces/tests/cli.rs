//! The command line: results on stdout, exit code 2 for bad input, and files that are whole or not there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::path::Path;
use std::process::Command;

use traces::exits::preset::PresetName;
use traces::file::Rows;
use traces::numbers::{Correlation, RatePerS, RequestCount, TokenCount};
use traces::{AllowedExits, ArrivalsConfig, ExitsConfig, LengthsConfig, Workload, WorkloadConfig};

const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 10, \"hash_ids\": [1, 2]}\n\
                        {\"timestamp\": 3000, \"input_length\": \"?\", \"output_length\": 10}\n\
                        {\"timestamp\": 2000, \"input_length\": 300, \"output_length\": 30}\n";

/// Runs `traces` in a folder; its exit code, stdout and stderr.
fn traces(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_traces")).args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_import_counts_what_it_took_and_lists_what_it_could_not() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.jsonl"), MOONCAKE).unwrap();
    let (code, stdout, stderr) = traces(folder.path(), &["import", "m.jsonl", "w.csv"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(
        stdout,
        "m.jsonl: mooncake, 3 records read, 2 kept\n         1 malformed\n\
         written to w.csv: 2 requests, mean prompt 200.0 and output 20.0 tokens, 0.500 per second\n"
    );
    assert_eq!(
        stderr,
        "m.jsonl: hash_ids are of blocks of 64 tokens, told by the lengths\n\
         m.jsonl, line 2, field `input_length`: must be a whole number of tokens, got the text `?`\n\
         1 of 3 records are malformed:\n         1 `input_length` must be a whole number of tokens\n"
    );
    let written = std::fs::read_to_string(folder.path().join("w.csv")).unwrap();
    assert_eq!(
        written,
        "prompt_tokens,output_tokens,arrival_s,pieces\n100,10,0.000000000,1:64 2:36\n300,30,2.000000000,\n"
    );
}

#[test]
fn strict_refuses_and_leaves_the_old_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.jsonl"), MOONCAKE).unwrap();
    std::fs::write(folder.path().join("w.csv"), "old").unwrap();
    let (code, stdout, stderr) = traces(folder.path(), &["import", "m.jsonl", "w.csv", "--strict"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("field `input_length`") && stderr.contains("nothing was written"), "{stderr}");
    assert_eq!(std::fs::read_to_string(folder.path().join("w.csv")).unwrap(), "old");
    assert_eq!(names(folder.path()), ["m.jsonl", "w.csv"]);
}

#[test]
fn bad_input_ends_with_2_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.jsonl"), MOONCAKE).unwrap();
    std::fs::write(folder.path().join("a.json"), "[{\"instruction\": \"ab\", \"output\": \"ab\"}]").unwrap();
    let check = |arguments: &[&str], expect: &str| {
        let (code, stdout, stderr) = traces(folder.path(), arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        // miette wraps and decorates long lines.
        let words = stderr.replace(['│', '×'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(expect), "{arguments:?}: {words}");
        assert_eq!(names(folder.path()), ["a.json", "m.jsonl"], "{arguments:?}");
    };
    check(&["import", "none.json", "w.csv"], "none.json: No such file");
    check(&["import", "a.json", "w.csv"], "alpaca holds texts: give the model's tokenizer.json with --tokenizer");
    check(&["import", "m.jsonl", "w.txt"], "w.txt: a workload file's name ends in .csv or .parquet");
    check(&["import", "m.jsonl", "none/w.csv"], "none: No such file");
    check(&["import", "m.jsonl", "w.csv", "--format", "csv"], "a format is one of sharegpt, alpaca");
    check(&["import", "m.jsonl", "w.csv", "--threshold", "0.2"], "are for bundles, and this is mooncake");
    check(&["import", "m.jsonl", "w.csv", "--min-tokens", "1000"], "none of its 3 records was kept");
    check(
        &["import", "m.jsonl", "w.csv", "--limit", "0"],
        "a number of requests must be between 1 and 100,000,000, got 0",
    );
    check(&["generate", "w.csv", "--lengths", "sharegpt"], "nothing ends this workload");
    check(
        &["generate", "w.csv", "--lengths", "4", "--requests", "3"],
        "must be sharegpt, alpaca, arxiv or PROMPT:OUTPUT",
    );
    check(
        &["generate", "w.csv", "--lengths", "4:4", "--requests", "3", "--exits", "ouro"],
        "there is no exit preset `ouro`",
    );
    check(&["generate", "w.csv", "--lengths", "4:4", "--requests", "3", "--exits", "2:0.5"], "must sum to 1");
    check(
        &["generate", "w.csv", "--lengths", "4:4", "--requests", "3", "--rate-per-s", "3"],
        "says nothing about these arrivals",
    );
    check(&["generate", "w.csv", "--lengths", "4:4", "--requests", "3", "--arrivals", "poisson"], "--rate-per-s");
    check(
        &["generate", "w.csv", "--lengths", "4:4", "--requests", "3", "--arrivals", "poisson", "--rate-per-s", "-3"],
        "a rate must be finite and positive",
    );
    check(&["inspect", "m.jsonl"], "m.jsonl: a workload file's name ends in .csv or .parquet");
    check(&["convert", "a.json", "w.csv"], "a.json: a workload file's name ends in .csv or .parquet");
}

#[test]
fn a_generated_file_replays_as_the_scenario_draws_it() {
    let folder = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = traces(
        folder.path(),
        &[
            "generate",
            "w.csv",
            "--lengths",
            "alpaca",
            "--requests",
            "200",
            "--arrivals",
            "poisson",
            "--rate-per-s",
            "4",
            "--exits",
            "ouro-q0.2",
            "--correlation",
            "0.3",
            "--seed",
            "7",
        ],
    );
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("written to w.csv: 200 requests, mean prompt "), "{stdout}");

    let name = PresetName::try_from("ouro-q0.2".to_owned()).unwrap();
    let drawn = WorkloadConfig {
        lengths: Some(LengthsConfig::Alpaca),
        file: None,
        scheduler: None,
        requests: Some(RequestCount::try_from(200).unwrap()),
        arrivals: ArrivalsConfig::Poisson { rate_per_s: RatePerS::try_from(4.0).unwrap(), duration_s: None },
        max_total_tokens: TokenCount::PAPER_CONTEXT,
        shared_prefixes: None,
    };
    let exits = ExitsConfig::Preset { name, correlation: Correlation::try_from(0.3).unwrap() };
    let file = folder.path().join("w.csv");
    let replayed = WorkloadConfig { lengths: None, file: Some(file), arrivals: ArrivalsConfig::Trace, ..drawn.clone() };
    let drawn = Workload::new(&drawn, &exits, AllowedExits::ANY, 7).unwrap();
    let replayed = Workload::new(&replayed, &ExitsConfig::Replay, AllowedExits::ANY, 0).unwrap();
    use engine::executor::ExitSource;
    for (drawn_request, replayed_request) in drawn.arrivals().zip(replayed.arrivals()) {
        assert_eq!(drawn_request, replayed_request);
        for token in 1..drawn_request.output_tokens {
            let id = drawn_request.request.id;
            assert_eq!(drawn.exits().exit_depth(id, token), replayed.exits().exit_depth(id, token));
        }
    }
    assert_eq!(replayed.requests(), 200);
}

#[test]
fn converting_there_and_back_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let (code, stdout, stderr) = traces(folder.path(), arguments);
        assert_eq!(code, 0, "{stderr}");
        (stdout, stderr)
    };
    run(&[
        "generate",
        "a.csv",
        "--lengths",
        "alpaca",
        "--requests",
        "100",
        "--arrivals",
        "gamma",
        "--rate-per-s",
        "4",
        "--burstiness",
        "0.5",
        "--exits",
        "2:0.25,3:0.55,4:0.2",
    ]);
    run(&["convert", "a.csv", "b.parquet"]);
    run(&["convert", "b.parquet", "c.csv"]);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("a.csv"), read("c.csv"));

    std::fs::write(folder.path().join("d.csv"), "user,prompt_tokens,output_tokens\nx,5,6\n").unwrap();
    let (_, stderr) = run(&["convert", "d.csv", "e.parquet"]);
    assert!(stderr.contains("left out, since a workload has no such columns: user"), "{stderr}");
    assert_eq!(Rows::read_all(&folder.path().join("e.parquet"), None).unwrap().lengths(0), Some((5, 6)));
}

#[test]
fn inspect_shows_figures_and_writes_a_plot_and_quantiles() {
    let folder = tempfile::tempdir().unwrap();
    let text = "prompt_tokens,output_tokens,arrival_s,exit_depths\n10,2,0,4\n20,3,1,2 2\n30,3,4,4 2\n";
    std::fs::write(folder.path().join("w.csv"), text).unwrap();
    let (code, stdout, stderr) = traces(folder.path(), &["inspect", "w.csv", "--svg", "w.svg", "--quantiles", "q.csv"]);
    assert_eq!(code, 0, "{stderr}");
    let expect = "w.csv: 3 requests\n\n\
        tokens        mean      min      p50      p90      p95      p99      max           sum\n\
        prompt        20.0       10       20       30       30       30       30            60\n\
        output         2.7        2        3        3        3        3        3             8\n\
        total         22.7       12       23       33       33       33       33            68\n\n\
        correlation of prompt and output: Pearson +0.866, Spearman +0.866\n\
        arrivals: 0.500 per second over 4.0 s; gaps vary by 0.50 of their mean (Poisson: 1); 3 in the busiest 60 s\n\
        exit depths: mean 2.800 of 5 decoded tokens (3.333 of each request's first); correlation with the token before undefined\n             \
        2: 60.00%, 4: 40.00%\n\
        quantiles written to q.csv\nplot written to w.svg\n";
    assert_eq!(stdout, expect);
    let quantiles = std::fs::read_to_string(folder.path().join("q.csv")).unwrap();
    assert!(quantiles.starts_with("field,q,tokens\nprompt,0,10\n") && quantiles.contains("\noutput,0.5,3\n"));
    let svg = std::fs::read_to_string(folder.path().join("w.svg")).unwrap();
    for part in [
        "w.csv: lengths of 3 requests",
        "tokens (logarithmic)",
        "share of requests",
        "prompt, mean 20.0",
        ">10<",
        "</svg>\n",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}
