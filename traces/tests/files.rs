//! Workload files: what is read, what is refused and with which words, and that writing and reading agree.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::path::{Path, PathBuf};

use engine::architecture::Family;
use engine::content::{Piece, Text};
use engine::request::RequestId;
use engine::units::{Depth, Nanos};
use proptest::prelude::*;
use traces::file::write::{Contents, FileWriter, RecordedRequest};
use traces::file::{Rows, Wanted};
use traces::{AllowedExits, TracesError};

const OURO: AllowedExits = AllowedExits { family: Family::OURO, min: Depth(1), max: Depth(4) };
const ALL: Wanted<'_> = Wanted { arrivals: true, exits: Some(OURO), requests: None, scheduler: None };
const LENGTHS: Wanted<'_> = Wanted { arrivals: false, exits: None, requests: None, scheduler: None };
const EXITS: Wanted<'_> = Wanted { arrivals: false, exits: Some(OURO), requests: None, scheduler: None };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Reads `text` as w.csv.
fn read_text(text: &str, wanted: Wanted<'_>) -> Result<Rows, TracesError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.csv");
    std::fs::write(&path, text).unwrap();
    Rows::read(&path, wanted)
}

/// The error of `text`, without the folder's name.
fn error(text: &str, wanted: Wanted<'_>) -> String {
    let error = read_text(text, wanted).unwrap_err().to_string();
    error[error.find("w.csv").unwrap()..].into()
}

#[test]
fn a_csv_file_gives_lengths_arrivals_and_exits_by_column_name() {
    let mut rows = Rows::read(&fixture("replay.csv"), ALL).unwrap();
    let lengths: Vec<_> = (0..5).map_while(|row| rows.lengths(row)).collect();
    assert_eq!(lengths, [(406, 4), (17, 1), (1200, 3), (35, 2)]);
    let times: Vec<_> = (0..5).map_while(|row| rows.arrival(row)).map(Nanos::as_secs).collect();
    assert_eq!(times, [0.0, 0.5, 0.5, 2.25]);
    let exits = rows.take_exits().unwrap();
    assert_eq!(exits.of(0), [Depth(2), Depth(3), Depth(4)]);
    assert_eq!(exits.of(1), []);
    assert_eq!(exits.depth(RequestId(3), 1), Depth(2));
}

#[test]
fn columns_may_come_in_any_order_with_spaces_quotes_and_a_byte_order_mark() {
    let text = "\u{feff}output_tokens , exit_depths,prompt_tokens\r\n 3,\" 2  4 \",7\r\n1,,9\r\n";
    let mut rows = read_text(text, EXITS).unwrap();
    assert_eq!((rows.lengths(0), rows.lengths(1), rows.len()), (Some((7, 3)), Some((9, 1)), 2));
    assert_eq!(rows.take_exits().unwrap().of(0), [Depth(2), Depth(4)]);
}

#[test]
fn only_what_is_wanted_is_read() {
    let text = "prompt_tokens,output_tokens,arrival_s,exit_depths\n5,6,never,9\n7,8,0,\nx,y,0,\n";
    let rows = read_text(text, Wanted { requests: Some(2), ..LENGTHS }).unwrap();
    assert_eq!((rows.len(), rows.lengths(1), rows.arrival(0)), (2, Some((7, 8)), None));
}

#[test]
fn a_bad_field_is_named_with_file_line_and_column() {
    let check = |row: &str, expect: &str| {
        let text = format!("prompt_tokens,output_tokens,arrival_s,exit_depths\n5,2,1.5,3\n{row}\n");
        assert_eq!(error(&text, ALL), format!("w.csv, line 3, {expect}"), "{row}");
    };
    check("0,2,2,3", "field `prompt_tokens`: must be a whole number from 1 to 1073741824, got 0");
    check("5,-2,2,3", "field `output_tokens`: must be a whole number from 1 to 1073741824, got -2");
    check("5.5,2,2,3", "field `prompt_tokens`: must be a whole number, got `5.5`");
    check("5,,2,3", "field `output_tokens`: must be a whole number, got ``");
    check("5,2,NaN,3", "field `arrival_s`: must be seconds since the run's start, from 0 to 1e9, got NaN");
    check("5,2,-1,3", "field `arrival_s`: must be seconds since the run's start, from 0 to 1e9, got -1");
    check(
        "5,2,1700000000,3",
        "field `arrival_s`: must be seconds since the run's start, from 0 to 1e9, got 1700000000",
    );
    check("5,2,soon,3", "field `arrival_s`: must be a number, got `soon`");
    check("5,2,1.25,3", "field `arrival_s`: 1.25 is earlier than the row before (1.5): sort the rows by arrival_s");
    check("5,3,2,3", "field `exit_depths`: must list 2 depths, one per output token after the first, got 1");
    check("5,1,2,3", "field `exit_depths`: must list 0 depths, one per output token after the first, got 1");
    check(
        "5,3,2,3 0",
        "field `exit_depths`: depth 2 must be from 1 to 4, which is what the model and the overlap mode allow, got 0",
    );
    check(
        "5,2,2,5",
        "field `exit_depths`: depth 1 must be from 1 to 4, which is what the model and the overlap mode allow, got 5",
    );
    check("5,2,2,3;4", "field `exit_depths`: must be whole numbers separated by spaces, got `3;4`");
}

#[test]
fn a_bad_file_says_what_is_missing() {
    let check = |text, wanted, expect: &str| assert_eq!(error(text, wanted), expect);
    check("", LENGTHS, "w.csv: the file holds no request");
    check("prompt_tokens,output_tokens\n", LENGTHS, "w.csv: the file holds no request");
    check(
        "prompt,output_tokens\n5,6\n",
        LENGTHS,
        "w.csv: there is no column `prompt_tokens`; the file has: prompt, output_tokens. \
         Known columns are prompt_tokens, output_tokens, arrival_s, exit_depths",
    );
    check(
        "prompt_tokens,output_tokens,exit_depth\n5,2,3\n",
        EXITS,
        "w.csv: there is no column `exit_depths`, which `exits: replay` reads; the file has: \
         prompt_tokens, output_tokens, exit_depth. \
         Known columns are prompt_tokens, output_tokens, arrival_s, exit_depths",
    );
    check(
        "prompt_tokens,output_tokens,prompt_tokens\n5,2,3\n",
        LENGTHS,
        "w.csv: the column `prompt_tokens` is there twice",
    );
    assert!(error("prompt_tokens,output_tokens\n5,6\n7\n", LENGTHS).contains("line: 3"));
}

#[test]
fn a_file_that_is_not_there_or_not_what_its_name_says_is_an_error() {
    let check = |name: &str, content: Option<&str>, expect: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let error = Rows::read(&path, LENGTHS).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expect), "{error}");
    };
    check("none.csv", None, "No such file");
    check("none.parquet", None, "No such file");
    check("w.txt", Some("1,2"), "a workload file's name ends in .csv or .parquet");
    check("w.parquet", Some("prompt_tokens,output_tokens\n1,2\n"), "parquet");
    check("empty.parquet", Some(""), "parquet");
}

#[test]
fn parquet_files_of_other_writers_are_read() {
    for name in ["exit_depths_list_u8.parquet", "exit_depths_list_i64.parquet"] {
        let mut rows = Rows::read(&fixture(name), EXITS).unwrap();
        assert_eq!([rows.lengths(0), rows.lengths(1), rows.lengths(2)], [Some((10, 3)), Some((20, 1)), Some((30, 2))]);
        let exits = rows.take_exits().unwrap();
        let depths: Vec<_> = (0..3).map(|request| exits.of(request).to_vec()).collect();
        assert_eq!(depths, [vec![Depth(2), Depth(3)], vec![], vec![Depth(4)]], "{name}");

        let error = Rows::read(&fixture(name), ALL).unwrap_err().to_string();
        assert!(error.contains("there is no column `arrival_s`, which `arrivals: trace` reads"), "{error}");
        let shallow = Wanted { exits: Some(AllowedExits { max: Depth(3), ..OURO }), ..EXITS };
        let error = Rows::read(&fixture(name), shallow).unwrap_err().to_string();
        assert!(error.contains("row 3, field `exit_depths`: depth 1 must be from 1 to 3"), "{error}");
    }
}

/// Some clients give up, after as many microseconds as their prompt has tokens.
fn cancel_after(prompt_tokens: u32) -> Option<Nanos> {
    prompt_tokens.is_multiple_of(3).then(|| Nanos(u64::from(prompt_tokens) * 1000))
}

/// Some begin alike.
fn pieces(prompt_tokens: u32) -> Vec<Piece> {
    let text = Text::Written(u64::from(prompt_tokens % 3));
    (!prompt_tokens.is_multiple_of(4)).then_some(Piece { text, first: 0, count: prompt_tokens }).into_iter().collect()
}

fn write(path: &Path, rows: &[(u32, u64, Vec<u8>)]) {
    let mut writer = FileWriter::create(path, Contents::ALL).unwrap();
    for (prompt_tokens, arrival_ns, depths) in rows {
        let exit_depths: Vec<Depth> = depths.iter().copied().map(Depth).collect();
        writer
            .push(&RecordedRequest {
                prompt_tokens: *prompt_tokens,
                output_tokens: exit_depths.len() as u32 + 1,
                arrival: Nanos(*arrival_ns),
                cancel_after: cancel_after(*prompt_tokens),
                pieces: &pieces(*prompt_tokens),
                exit_depths: &exit_depths,
            })
            .unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn what_is_written_is_read(
        rows in prop::collection::vec((1u32..20_000, 0u64..10_000_000_000, prop::collection::vec(1u8..=4, 0..20)), 1..50)
    ) {
        let mut time_ns = 0;
        let rows: Vec<_> = rows.into_iter().map(|(prompt, gap_ns, depths)| {
            time_ns += gap_ns;
            (prompt, time_ns, depths)
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        for name in ["w.csv", "w.parquet"] {
            let path = folder.path().join(name);
            write(&path, &rows);
            let mut read = Rows::read(&path, ALL).unwrap();
            let exits = read.take_exits().unwrap();
            prop_assert_eq!(read.len(), rows.len());
            for (index, (prompt, time_ns, depths)) in rows.iter().enumerate() {
                prop_assert_eq!(read.lengths(index), Some((*prompt, depths.len() as u32 + 1)));
                prop_assert_eq!(read.arrival(index), Some(Nanos(*time_ns)));
                prop_assert_eq!(read.cancel_after(index), cancel_after(*prompt));
                prop_assert_eq!(read.pieces(index), pieces(*prompt));
                let of: Vec<u8> = exits.of(index).iter().map(|depth| depth.0).collect();
                prop_assert_eq!(&of, depths);
            }
        }
    }
}

#[test]
fn a_client_that_gives_up_is_read_wherever_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.csv");
    std::fs::write(&path, "cancel_after_s,prompt_tokens,output_tokens\n,4,2\n0.25,4,2\n").unwrap();
    let rows = Rows::read(&path, Wanted::default()).unwrap();
    assert_eq!([0, 1].map(|row| rows.cancel_after(row)), [None, Some(Nanos(250_000_000))]);
    std::fs::write(&path, "prompt_tokens,output_tokens,cancel_after_s\n4,2,-1\n").unwrap();
    let error = Rows::read(&path, Wanted::default()).unwrap_err().to_string();
    assert!(error.contains("line 2, field `cancel_after_s`: must be seconds since the request's arrival"), "{error}");
}

#[test]
fn what_a_prompt_begins_with_must_be_pieces_of_it() {
    let read = |pieces: &str| {
        let text = format!("prompt_tokens,output_tokens,pieces\n9,2,\n9,2,{pieces}\n");
        read_text(&text, LENGTHS).map_err(|error| error.to_string())
    };
    let rows = read("7:4 o0@1:5").unwrap();
    assert_eq!((rows.pieces(0).len(), rows.pieces(1).len()), (0, 2));
    let error = read("7:4 o0@1:6").unwrap_err();
    assert!(
        error.ends_with("line 3, field `pieces`: must have at most the prompt's 9 tokens together, got 10"),
        "{error}"
    );
    let error = read("7").unwrap_err();
    assert!(error.contains("field `pieces`: must list pieces such as `7:512`"), "{error}");
}

#[test]
fn several_row_groups_are_read_in_order() {
    let rows: Vec<_> = (0..150_000u32)
        .map(|row| (row % 1000 + 1, u64::from(row), vec![(row % 4) as u8 + 1; (row % 3) as usize]))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.parquet");
    write(&path, &rows);
    let mut read = Rows::read(&path, ALL).unwrap();
    let exits = read.take_exits().unwrap();
    assert_eq!(read.len(), rows.len());
    for row in [0, 65_535, 65_536, 131_072, 149_999] {
        let (prompt, time_ns, depths) = &rows[row];
        assert_eq!(read.lengths(row), Some((*prompt, depths.len() as u32 + 1)));
        assert_eq!(read.arrival(row), Some(Nanos(*time_ns)));
        assert_eq!(exits.of(row).len(), depths.len());
    }
    let some = Rows::read(&path, Wanted { requests: Some(70_000), ..ALL }).unwrap();
    assert_eq!(some.len(), 70_000);
}
