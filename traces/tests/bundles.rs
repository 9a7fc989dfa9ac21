//! The CDB authors' bundles, written here as numpy would write them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use half::f16;
use npyz::{AutoSerialize, WriterBuilder};
use traces::TracesError;
use traces::import::{DepthRule, Format, Imported, Options, Source, detect, import};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An array as a `.npy`.
fn npy<T: AutoSerialize + npyz::Serialize + Copy>(shape: &[u64], numbers: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype().shape(shape);
    let mut writer = options.writer(&mut bytes).begin_nd().unwrap();
    writer.extend(numbers.iter().copied()).unwrap();
    writer.finish().unwrap();
    bytes
}

fn halves(numbers: &[f32]) -> Vec<f16> {
    numbers.iter().copied().map(f16::from_f32).collect()
}

/// Writes w.json and its archive; the lengths are (prompt, output).
fn write(folder: &Path, lengths: &[(u32, u32)], arrays: &[(&str, Vec<u8>)], method: CompressionMethod) -> PathBuf {
    let requests: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(id, (prompt, output))| serde_json::json!({"id": id.to_string(), "input_len": prompt, "output_len": output}))
        .collect();
    let definition = serde_json::json!({
        "meta": {"dataset": "made up", "total_steps": 4},
        "exit_pdf_file": "w.exit_pdf.npz",
        "requests": requests,
    });
    let path = folder.join("w.json");
    std::fs::write(&path, definition.to_string()).unwrap();
    let mut archive = ZipWriter::new(File::create(folder.join("w.exit_pdf.npz")).unwrap());
    for (name, bytes) in arrays {
        let options = SimpleFileOptions::default().compression_method(method).large_file(true);
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
    path
}

fn read(lengths: &[(u32, u32)], arrays: &[(&str, Vec<u8>)], rule: DepthRule) -> Result<Imported, TracesError> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), lengths, arrays, CompressionMethod::Stored);
    import(&path, Source::Bundle(rule), Options::default(), &|_, _| {})
}

fn depths(imported: &Imported) -> Vec<Vec<u8>> {
    let exits = imported.rows.exits().unwrap();
    (0..imported.rows.len()).map(|row| exits.of(row).iter().map(|depth| depth.0).collect()).collect()
}

const LENGTHS: [(u32, u32); 3] = [(3, 2), (5, 1), (7, 3)];

fn offsets() -> (&'static str, Vec<u8>) {
    ("offsets", npy(&[4], &[0i64, 2, 3, 6]))
}

fn at(threshold: f64) -> DepthRule {
    DepthRule { threshold: Some(threshold), ..DepthRule::default() }
}

/// Six tokens of four steps; the first rows of the requests are 0, 2 and 3.
fn pdf() -> Vec<f32> {
    [
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.3, 0.3, 0.4],
        [1.0, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.1, 0.2, 0.7],
        [0.1, 0.5, 0.2, 0.2],
    ]
    .concat()
}

#[test]
fn a_pdf_becomes_depths_at_a_threshold_and_the_first_token_has_none() {
    for (name, array) in [
        ("float16", npy(&[6, 4], &halves(&pdf()))),
        ("float32", npy(&[6, 4], &pdf())),
        ("float64", npy(&[6, 4], &pdf().iter().copied().map(f64::from).collect::<Vec<_>>())),
    ] {
        let check = |rule, expect: [&[u8]; 3]| {
            let imported = read(&LENGTHS, &[offsets(), ("exit_pdf", array.clone())], rule).unwrap();
            assert_eq!(depths(&imported), expect, "{name} {rule:?}");
            assert_eq!(imported.rows.lengths(2), Some((7, 3)));
        };
        check(at(0.2), [&[2], &[], &[3, 2]]);
        check(at(0.5), [&[3], &[], &[4, 2]]);
        check(at(0.05), [&[2], &[], &[2, 1]]);
        check(DepthRule { min_depth: 2, delay: 1, ..at(0.05) }, [&[3], &[], &[3, 3]]);
    }
}

#[test]
fn values_and_depths_are_told_by_their_arrays_names() {
    let values =
        [[9.0; 4], [0.9, 0.5, 0.2, 0.1], [9.0; 4], [9.0; 4], [0.2, 0.1, 0.05, 0.0], [0.9, 0.8, 0.7, 0.6]].concat();
    let imported = read(&LENGTHS, &[("exit_values", npy(&[6, 4], &halves(&values))), offsets()], at(0.28)).unwrap();
    assert_eq!(depths(&imported), [vec![3], vec![], vec![1, 4]]);
    let rule = DepthRule { min_depth: 2, ..DepthRule::default() };
    let imported = read(&LENGTHS, &[offsets(), ("exit_depths", npy(&[6], &[9, 3i32, 9, 9, 1, 4]))], rule).unwrap();
    assert_eq!(depths(&imported), [vec![3], vec![], vec![2, 4]]);
}

#[test]
fn a_deflated_archive_is_read_and_a_bundle_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let arrays = [offsets(), ("exit_pdf", npy(&[6, 4], &halves(&pdf())))];
    let path = write(folder.path(), &LENGTHS, &arrays, CompressionMethod::Deflated);
    assert_eq!(detect(&path).unwrap(), Format::Bundle);
    let imported = import(&path, Source::Bundle(at(0.2)), Options::default(), &|_, _| {}).unwrap();
    assert_eq!(depths(&imported), [vec![2], vec![], vec![3, 2]]);
}

#[test]
fn a_malformed_request_does_not_move_the_next_ones_rows() {
    let mut wrong = pdf();
    wrong[5] = f32::NAN;
    let lengths = [(3, 2), (5, 2), (7, 3)];
    let imported = read(&lengths, &[offsets(), ("exit_pdf", npy(&[6, 4], &wrong))], at(0.2)).unwrap();
    assert_eq!(depths(&imported), [vec![3, 2]]);
    let problems: Vec<_> = imported.tally.first_problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "row 1, field `exit_pdf`: must be a probability, got NaN at output token 2",
            "row 2, field `output_len`: must be the number of rows that `offsets` gives the request, got 2 for 1 rows",
        ]
    );
}

#[test]
fn an_archive_that_does_not_fit_is_an_error() {
    let pdf = || ("exit_pdf", npy(&[6, 4], &halves(&pdf())));
    let check = |arrays: &[(&str, Vec<u8>)], rule, expect: &str| {
        let error = read(&LENGTHS, arrays, rule).unwrap_err().to_string();
        assert!(error.contains("w.exit_pdf.npz: ") && error.contains(expect), "{error}");
    };
    check(&[pdf()], at(0.2), "has no array `offsets`");
    check(&[offsets()], at(0.2), "must have one of the arrays exit_pdf, exit_values and exit_depths; it has: offsets");
    check(
        &[offsets(), pdf()],
        DepthRule::default(),
        "array `exit_pdf` becomes depths by a threshold: give --threshold",
    );
    check(&[("offsets", npy(&[3], &[0i64, 2, 6])), pdf()], at(0.2), "`offsets` must hold 4 integers, one more than");
    check(&[("offsets", npy(&[4], &[0i64, 3, 2, 6])), pdf()], at(0.2), "must rise from 0, and its entry 2 is 2");
    check(&[("offsets", npy(&[4], &[0i64, 2, 3, 5])), pdf()], at(0.2), "has 6 rows, and the last of `offsets` is 5");
    check(&[offsets(), ("exit_pdf", npy(&[6], &[0.5f32; 6]))], at(0.2), "must hold floats [tokens, steps]");
    check(&[offsets(), ("exit_depths", npy(&[6], &[0.5f32; 6]))], at(0.2), "must hold integers [tokens]");
    check(&[offsets(), ("exit_pdf", npy(&[6, 4], &[1u8; 24]))], at(0.2), "holds numbers of type");
    let mut short = npy(&[6, 4], &halves(&[0.5; 24]));
    short.truncate(short.len() - 10);
    check(&[offsets(), ("exit_pdf", short)], at(0.2), "request 3: ");
}

#[test]
fn a_bundle_without_its_archive_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &LENGTHS, &[offsets()], CompressionMethod::Stored);
    std::fs::remove_file(folder.path().join("w.exit_pdf.npz")).unwrap();
    let error = import(&path, Source::Bundle(at(0.2)), Options::default(), &|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("w.exit_pdf.npz") && error.contains("No such file"), "{error}");
}
