//! What is wrong is said with its place, and with what to change.

use calibrate::calibration::{Calibration, Setup};
use calibrate::error::CalibrateError;
use calibrate::measurements::parse;
use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::profile::{Buckets, DeviceSpec, Profile};

fn fit(text: &str) -> Result<Calibration, CalibrateError> {
    let model = Architecture::builtin("ouro-1.4b").expect("built in");
    let device = DeviceSpec::datasheet("h100-80gb").expect("built in");
    let base = Profile::roofline(&device, &model);
    let setup = Setup {
        model,
        device,
        buckets: Buckets::PowersOfTwo,
        graphs: false,
        kv_tile_tokens: 0,
        layout: Layout::LastExited,
        base,
        resamples: 10,
        seed: 0,
    };
    Calibration::new(&parse(text.as_bytes(), "m.csv")?.rows, &setup)
}

fn check(text: &str, expected: &str) {
    match fit(text) {
        Ok(_) => panic!("no error, but expected `{expected}`"),
        Err(error) => assert!(error.to_string().contains(expected), "`{error}` does not contain `{expected}`"),
    }
}

/// Rows for the given points at two loop counts.
fn steps(points: &[(u32, u32)]) -> String {
    let row = |&(batch, context): &(u32, u32)| {
        let loop_ms = 5.0 + 0.03 * f64::from(batch) + 1e-4 * f64::from(batch) * f64::from(context);
        format!("{batch},{context},1,{}\n{batch},{context},4,{}\n", 0.4 + loop_ms, 0.4 + 4.0 * loop_ms)
    };
    let rows: String = points.iter().map(row).collect();
    format!("batch,context,loops,step_ms\n{rows}")
}

const GRID: [(u32, u32); 6] = [(1, 128), (16, 128), (64, 128), (1, 2048), (16, 2048), (64, 2048)];

/// The grid's rows with a stage column, and more rows.
fn with_stages(more: &str) -> String {
    let rows = steps(&GRID).replacen("step_ms", "step_ms,stage,tokens", 1);
    let rows: Vec<_> =
        rows.lines().map(|row| if row.starts_with('b') { row.into() } else { format!("{row},,") }).collect();
    format!("{}\n{more}", rows.join("\n"))
}

#[test]
fn the_grid_itself_is_fine() {
    assert!(fit(&steps(&GRID)).is_ok());
    assert!(fit(&with_stages("# a comment\n")).is_ok());
}

#[test]
fn a_bad_cell_is_named_by_file_line_and_column() {
    let cell = |row: &str, expected| check(&format!("batch,context,loops,step_ms\n1,128,1,6.0\n{row}\n"), expected);
    cell("1,128,2,NaN", "m.csv:3: step_ms: must be a time in ms, greater than zero, got `NaN`");
    cell("1,128,2,-4", "m.csv:3: step_ms: must be a time in ms, greater than zero, got `-4`");
    cell("1,128,2,inf", "m.csv:3: step_ms: must be a time in ms, greater than zero, got `inf`");
    cell("1,128,2,", "m.csv:3: step_ms: must be a time in ms, greater than zero, got ``");
    cell("0,128,2,6.0", "m.csv:3: batch: must be a whole number from 1 to 65536, got `0`");
    cell("1.5,128,2,6.0", "m.csv:3: batch: must be a whole number from 1 to 65536, got `1.5`");
    cell("1,0,2,6.0", "m.csv:3: context: must be a number from 1 to 1073741824, got `0`");
    cell("1,128,zwei,6.0", "m.csv:3: loops: must be a whole number from 1 to 254, got `zwei`");
    cell("1,128,2", "m.csv: CSV error: record 2 (line: 3");
    check(
        &with_stages("1,128,1,6.0,head,\n"),
        "stage: must be one of step, core, prelude, coda, prefill, offload, build, launch, read, or empty",
    );
    check(&with_stages("1,0,,6.0,prefill,\n"), "tokens: must be a whole number from 1 to 1073741824, got ``");
}

#[test]
fn a_table_without_its_columns_or_rows_says_which() {
    check("batch,loops,step_ms\n1,1,6.0\n", "there is no column `context`; the header has `batch`, `loops`, `step_ms`");
    check("", "there is no column `batch`");
    check("batch,context,loops,step_ms\n", "there are no rows of stage `step`");
}

#[test]
fn a_design_that_cannot_tell_coefficients_apart_says_what_to_measure() {
    check(&steps(&GRID[..5]), "core: 5 points (batch, context) are too few, measure at least 6");
    let one_batch = [128, 256, 512, 1024, 2048, 4096].map(|context| (8, context));
    check(&steps(&one_batch), "every point pads to 8 rows");
    // 5, 6, 7 and 8 rows pad to the same bucket.
    let one_bucket = [(5, 128), (6, 128), (7, 128), (8, 128), (5, 512), (8, 512)];
    check(&steps(&one_bucket), "every point pads to 8 rows");
    let one_context = [1, 2, 4, 8, 16, 32].map(|batch| (batch, 512));
    check(&steps(&one_context), "every point has context 512");
    // Padding would tell gamma from alpha here, by nothing but rounding.
    let padded = [1, 2, 3, 8, 12, 32].map(|batch| (batch, 512));
    check(&steps(&padded), "every point has context 512");
    let diagonal = [1, 2, 4, 8, 16, 32].map(|batch| (batch, 8192 / batch));
    check(&steps(&diagonal), "collinear");
    let lone = [(1, 128), (2, 128), (4, 128), (8, 128), (16, 128), (16, 2048)];
    check(&steps(&lone), "only batch 16 at context 2048 tells two coefficients apart");
}

#[test]
fn loops_must_vary_and_cost_time() {
    check(
        "batch,context,loops,step_ms\n1,128,4,6.0\n1,128,4,6.1\n",
        "line 2: batch 1 at context 128 was timed with 4 loops only",
    );
    check(
        "batch,context,loops,step_ms\n1,128,1,6.0\n1,128,4,5.0\n",
        "line 2: batch 1 at context 128: a loop takes -0.3333 ms",
    );
}

#[test]
fn stages_must_fit_together() {
    check(
        &with_stages("1,128,,0.2,coda,\n"),
        "there are rows of stage `coda` but none of `prelude`: time both, or neither",
    );
    check(
        &with_stages("7,128,,5.2,core,\n"),
        "the staged core was timed at batch 7, context 128, where there are no rows",
    );
    check(&with_stages("1,0,,22,prefill,64\n"), "prefill: 1 points (batch, context) are too few");
}
