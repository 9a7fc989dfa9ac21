//! Importers: what becomes of each format's records, and that no record is lost.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::cell::Cell;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use traces::TracesError;
use traces::import::{Format, Imported, Options, Source, TokenCounter, detect, import};
use traces::numbers::{RequestCount, TokenCount};

fn counter() -> TokenCounter {
    TokenCounter::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer.json")).unwrap()
}

/// Imports `text` as a file of its detected format, which must be `format`.
fn import_text(text: &str, format: Format, options: Options) -> Result<Imported, TracesError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.txt");
    std::fs::write(&path, text).unwrap();
    assert_eq!(detect(&path).unwrap(), format);
    let counter = counter();
    let source = match format {
        Format::ShareGpt => Source::ShareGpt(&counter),
        Format::Alpaca => Source::Alpaca(&counter),
        Format::Arxiv => Source::Arxiv(&counter),
        Format::Azure => Source::Azure,
        Format::Mooncake => Source::Mooncake,
        Format::Bundle => unreachable!("bundles have a test file of their own"),
    };
    let seen = Cell::new((0, 0));
    let imported = import(&path, source, options, &|done, total| seen.set((done, total)));
    let bytes = text.len() as u64;
    assert!(seen.get().1 == bytes && seen.get().0 <= bytes);
    imported
}

fn imported(text: &str, format: Format) -> Imported {
    import_text(text, format, Options::default()).unwrap()
}

fn lengths(imported: &Imported) -> Vec<(u32, u32)> {
    (0..imported.rows.len()).map_while(|row| imported.rows.lengths(row)).collect()
}

fn arrivals(imported: &Imported) -> Vec<f64> {
    (0..imported.rows.len()).map_while(|row| imported.rows.arrival(row)).map(|time| time.as_secs()).collect()
}

fn problems(imported: &Imported) -> Vec<String> {
    imported.tally.first_problems().iter().map(ToString::to_string).collect()
}

#[test]
fn a_tokenizer_counts_every_token_and_no_special_one() {
    assert_eq!(counter().count(vec!["ab ab b", "", "ababab", "a\nb"]).unwrap(), [4, 0, 3, 3]);
}

#[test]
fn what_is_no_tokenizer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("t.json");
    let error = |path: &Path| TokenCounter::read(path).unwrap_err().to_string();
    assert!(error(&path).contains("No such file"));
    std::fs::write(&path, "{}").unwrap();
    assert!(error(&path).contains("t.json: must be a tokenizer.json of Hugging Face's tokenizers"), "{}", error(&path));
}

#[test]
fn sharegpt_gives_the_first_pair_of_each_conversation() {
    let text = r#"[
        {"id": "1", "conversations": [{"from": "human", "value": "ab ab"}, {"from": "gpt", "value": "ab"}, {"from": "human", "value": "b"}]},
        {"id": "2", "conversations": [{"from": "gpt", "value": "ab"}, {"from": "human", "value": "b"}]},
        {"id": "3", "conversations": "none"},
        {"id": "4", "conversations": [{"from": "human", "value": "a b"}, {"from": "gpt", "value": ""}]},
        {"id": "5", "conversations": [{"from": "human", "value": "ababab"}, {"from": "gpt", "value": "bb"}]}
    ]"#;
    let imported = imported(text, Format::ShareGpt);
    assert_eq!(lengths(&imported), [(2, 1), (3, 2)]);
    assert!(imported.rows.arrival(0).is_none());
    assert_eq!(problems(&imported), ["record 3 (line 4), field `conversations`: must be a list, got the text `none`"]);
    let left_out: Vec<_> = imported.tally.left_out().map(|(_, count)| count).collect();
    assert_eq!((imported.tally.read(), left_out), (5, vec![1, 1]));
}

#[test]
fn alpaca_joins_instruction_and_input_as_a_list_or_as_lines() {
    let records = [
        r#"{"instruction": "ab", "input": "ab", "output": "ab ab"}"#,
        r#"{"instruction": "ab", "input": "", "output": "b"}"#,
    ];
    for text in [format!("[{}]", records.join(",")), records.join("\n")] {
        assert_eq!(lengths(&imported(&text, Format::Alpaca)), [(3, 2), (1, 1)]);
    }
}

#[test]
fn arxiv_takes_text_or_lists_of_sentences() {
    let text = "{\"article_id\": \"x\", \"article_text\": [\"ab ab\", \"ab\"], \"abstract_text\": [\"<S>ab</S>\"]}\n\
                {\"article\": \"ab\", \"abstract\": \"ab ab\"}\n\
                {\"article\": \"ab\", \"abstract\": \n";
    let imported = imported(text, Format::Arxiv);
    assert_eq!(lengths(&imported), [(4, 1), (1, 2)]);
    assert!(problems(&imported)[0].starts_with("line 3: must be valid JSON, got an error: EOF"));
}

#[test]
fn azure_times_are_sorted_and_counted_from_the_first() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                2023-11-16 18:17:04.0000000,396,109\n\
                2023-11-16 18:17:03.9799600,374,44\n\
                2023-11-16 18:17:05,5,0\n\
                soon,1,2\n\
                2023-11-16 18:17:06,-1,2\n\
                2023-11-16 18:17:07,1\n\
                2023-11-16 18:17:14.4799600,7,8\n";
    let imported = imported(text, Format::Azure);
    assert_eq!(lengths(&imported), [(374, 44), (396, 109), (7, 8)]);
    assert_eq!(arrivals(&imported), [0.0, 0.02004, 10.5]);
    assert_eq!(
        problems(&imported),
        [
            "line 5, field `TIMESTAMP`: must be a time like 2023-11-16 18:15:46.680, got `soon`",
            "line 6, field `ContextTokens`: must be a whole number of tokens, got `-1`",
            "line 7, field `GeneratedTokens`: must be there, got nothing",
        ]
    );
}

#[test]
fn mooncake_milliseconds_become_seconds_and_block_ids_what_prompts_begin_with() {
    let text = "{\"timestamp\": 27000, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47]}\n\
                {\"timestamp\": 30000.5, \"input_length\": 5, \"output_length\": 6, \"hash_ids\": [1]}\n\
                {\"timestamp\": null, \"input_length\": 5, \"output_length\": 6}\n\
                {\"timestamp\": 1, \"input_length\": 5.5, \"output_length\": 6}\n";
    let imported = imported(text, Format::Mooncake);
    assert_eq!((lengths(&imported), arrivals(&imported)), (vec![(6955, 52), (5, 6)], vec![0.0, 3.0005]));
    let pieces = [0, 1].map(|row| traces::pieces::to_text(imported.rows.pieces(row)));
    assert_eq!(pieces, ["46:4096 47:2859", "1:5"]);
    assert_eq!(imported.remarks.last().unwrap(), "hash_ids are of blocks of 4096 tokens, told by the lengths");
    assert_eq!(
        problems(&imported),
        [
            "line 3, field `timestamp`: must be a number of milliseconds or seconds, got null",
            "line 4, field `input_length`: must be a whole number of tokens, got 5.5",
        ]
    );
}

#[test]
fn block_ids_that_say_nothing_of_tokens_are_counted() {
    let line = |tokens, ids| {
        format!("{{\"timestamp\": 1, \"input_length\": {tokens}, \"output_length\": 6, \"hash_ids\": {ids}}}\n")
    };
    let named = imported(&line(40, "[\"a\", \"b\"]"), Format::Mooncake);
    let no_size = imported(&(line(300, "[1, 2, 3]") + &line(100, "[1, 2, 3]")), Format::Mooncake);
    for (imported, count) in [(named, 2), (no_size, 6)] {
        assert_eq!(imported.tally.ignored().collect::<Vec<_>>(), [("hash_ids", count)]);
        assert!(!imported.rows.has_pieces());
    }
}

#[test]
fn a_filter_leaves_out_and_a_limit_stops_reading() {
    let line = |prompt: u32, output: u32| {
        format!("{{\"timestamp\": 0, \"input_length\": {prompt}, \"output_length\": {output}}}")
    };
    let text = [line(3, 9), line(9, 3), line(16_000, 384), line(16_000, 385), line(4, 4), "{".into()].join("\n");
    let imported = import_text(&text, Format::Mooncake, Options::PAPER).unwrap();
    assert_eq!(lengths(&imported), [(16_000, 384), (4, 4)]);
    assert_eq!(imported.tally.left_out().map(|(_, count)| count).collect::<Vec<_>>(), [1, 2]);
    let two = Options { limit: Some(RequestCount::try_from(2).unwrap()), ..Options::PAPER };
    let imported = import_text(&text, Format::Mooncake, two).unwrap();
    assert_eq!((imported.tally.read(), imported.tally.malformed()), (5, 0), "the line behind the last was not read");
    let short = Options { max_total_tokens: Some(TokenCount::try_from(12).unwrap()), ..Options::default() };
    assert_eq!(lengths(&import_text(&text, Format::Mooncake, short).unwrap()), [(3, 9), (9, 3), (4, 4)]);
}

#[test]
fn a_limit_holds_within_a_batch_of_texts() {
    let text = vec![r#"{"instruction": "ab", "output": "ab"}"#; 700].join("\n");
    let options = Options { limit: Some(RequestCount::try_from(300).unwrap()), ..Options::default() };
    let imported = import_text(&text, Format::Alpaca, options).unwrap();
    assert_eq!((imported.rows.len(), imported.tally.read()), (300, 300));
}

#[test]
fn a_file_that_was_cut_off_gives_its_whole_records() {
    let text = r#"[{"instruction": "ab", "output": "ab"}, {"instruction": "ab", "out"#;
    let imported = imported(text, Format::Alpaca);
    assert_eq!(imported.rows.len(), 1);
    assert_eq!(problems(&imported), ["record 2 (line 1): must be complete, got the file's end within it"]);
}

#[test]
fn ten_problems_are_listed_and_all_are_counted_by_reason() {
    let text = format!(
        "{{\"instruction\": \"ab\", \"output\": \"ab\"}}\n{}",
        "{\"instruction\": 1}\n".repeat(30) + "{\"instruction\": \"ab\"}\n"
    );
    let tally = imported(&text, Format::Alpaca).tally;
    assert_eq!((tally.first_problems().len(), tally.malformed()), (10, 31));
    assert_eq!(tally.malformed_by_reason(), [("instruction", "must be text", 30), ("output", "must be text", 1)]);
}

#[test]
fn a_file_of_no_format_says_what_it_looks_like() {
    let check = |text: &str, expect: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.txt");
        std::fs::write(&path, text).unwrap();
        let error = detect(&path).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check("", "looks like no known format: it is empty");
    check("a,b\n1,2\n", "it must be a JSON list or JSON Lines");
    check("prompt_tokens,output_tokens\n1,2\n", "is a workload file already");
    check("[1]", "its first record is no JSON object");
    check("[{\"text\": 1, \"label\": 2}]", "the fields of no known format: text, label; say what it is with --format");
}

#[test]
fn timestamps_of_two_ages_are_an_error() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n1970-01-01 00:00:00,1,2\n2023-11-16 18:17:04,1,2\n";
    let error = import_text(text, Format::Azure, Options::default()).unwrap_err().to_string();
    assert!(error.contains("its timestamps span 1.700e9 s, more than 1e9 s"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Requests are conserved: whatever the bytes, every record is kept, left out or malformed.
    #[test]
    fn every_record_is_accounted_for(kinds in prop::collection::vec(0usize..5, 1..40)) {
        let lines = [
            "{\"timestamp\": 5, \"input_length\": 5, \"output_length\": 6}",
            "{\"timestamp\": 3, \"input_length\": 0, \"output_length\": 6}",
            "{\"timestamp\": 3, \"input_length\": 1",
            "]",
            "\"",
        ];
        let text: Vec<&str> = std::iter::once(0).chain(kinds.iter().copied()).map(|kind| lines[kind]).collect();
        let imported = imported(&text.join("\n"), Format::Mooncake);
        let count = |kind| kinds.iter().filter(|other| **other == kind).count() as u64;
        let tally = &imported.tally;
        prop_assert_eq!((tally.read(), tally.kept()), (kinds.len() as u64 + 1, count(0) + 1));
        prop_assert_eq!(tally.malformed(), count(2) + count(3) + count(4));
        prop_assert_eq!(imported.rows.len() as u64, tally.kept());
    }

    /// A list of any bytes ends, and what is cut out of it is counted.
    #[test]
    fn no_bytes_of_a_list_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.json");
        std::fs::write(&path, [b"[", &bytes[..]].concat()).unwrap();
        let imported = import(&path, Source::Mooncake, Options::default(), &|_, _| {}).unwrap();
        prop_assert_eq!(imported.tally.read(), imported.tally.kept() + imported.tally.malformed());
    }
}
