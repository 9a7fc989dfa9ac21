//! What is measured on a known machine is that machine.

use calibrate::calibration::Calibration;
use calibrate::measure::{Journal, MeasurementPlan};
use calibrate::padding;
use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::profile::{Buckets, Profile};
use engine::units::Nanos;

use crate::fake::{machine, plan, run, setup};

fn close(found: f64, truth: f64, what: &str) {
    assert!((found - truth).abs() <= 1e-3 * truth.abs() + 1e-4, "{what}: {found}, not {truth}");
}

fn measured(machine: &Profile, plan: &MeasurementPlan) -> Journal {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(&folder.path().join("m.csv"), "a fake").expect("writable");
    let progress = run(machine, plan, &mut journal, u64::MAX).expect("the fake runs");
    assert_eq!(progress.rounds, plan.rounds);
    journal
}

#[test]
fn every_term_of_a_machine_is_found() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let machine = machine(model);
        for layout in [Layout::LastExited, Layout::Shared, Layout::FirstThenShared, Layout::DepthIndexed] {
            let architecture = Architecture::builtin(model).expect("built in");
            let plan = MeasurementPlan { layout, ..plan(&architecture, 2) };
            let journal = measured(&machine, &plan);
            let setup = setup(&machine, &plan);
            let calibration = Calibration::new(journal.rows(), &setup).expect("a full grid");
            assert_eq!(calibration.unmeasured(), ["plane copies"]);
            let found = calibration.profile(&setup, "found", "a fake").expect("sound");
            for (name, found, truth) in [
                ("core", found.core, machine.core),
                ("prelude", found.prelude, machine.prelude),
                ("coda", found.coda, machine.coda),
            ] {
                let what = |term: &str| format!("{model} {layout} {name} {term}");
                close(found.delta_ms + found.floor_ms, truth.delta_ms, &what("delta"));
                close(found.gamma_us, truth.gamma_us, &what("gamma"));
                close(found.alpha_ns, truth.alpha_ns, &what("alpha"));
            }
            close(found.prefill.gamma_us, machine.prefill.gamma_us, "prefill gamma");
            close(found.prefill.alpha_ns, machine.prefill.alpha_ns, "prefill alpha");
            close(found.stage_overhead_us, machine.stage_overhead_us, "stage overhead");
            close(found.host.launch_us, machine.host.launch_us, "launch");
            close(found.host.read_us, machine.host.read_us, "read");
            close(found.host.build_us + found.host.build_row_us, 0.0, "build");
            close(found.transfer.offload_gb_per_s, machine.transfer.offload_gb_per_s, "offload");
        }
    }
}

#[test]
fn the_padding_is_inferred_from_the_times() {
    let tiles = machine("tiny-ouro");
    for truth in padding::candidates(64) {
        let machine = Profile { buckets: truth, ..tiles.clone() };
        let plan = plan(&Architecture::builtin("tiny-ouro").expect("built in"), 1);
        let journal = measured(&machine, &plan);
        let setup = setup(&machine, &plan);
        let ranked = padding::rank(journal.rows(), &setup, padding::candidates(64)).expect("a full grid");
        let names: Vec<_> = ranked.iter().map(|(buckets, error)| (padding::name(buckets), *error)).collect();
        // With a floor of eight rows, no padding but a roofline says the same as at least a tile.
        let best = &ranked[0].0;
        assert!(*best == truth || matches!((best, &truth), (Buckets::Exact, Buckets::List(_))), "{names:?}");
        assert!(ranked[0].1 < 1e-5, "{names:?}");
    }
}

#[test]
fn a_small_budget_leaves_a_coarser_grid_that_can_be_fitted() {
    let machine = machine("tiny-ouro");
    let model = Architecture::builtin("tiny-ouro").expect("built in");
    let whole = plan(&model, 1);
    // Filling the caches takes about 5 s of the fake's time.
    let budget = Nanos::from_secs(8.0);
    let cut = MeasurementPlan { budget, ..whole };
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(&folder.path().join("m.csv"), "a fake").expect("writable");
    let progress = run(&machine, &cut, &mut journal, u64::MAX).expect("the fake runs");
    assert!(progress.rounds == 0 && progress.groups > 8, "{progress:?}");
    assert!(progress.groups < progress.groups_per_round, "{progress:?}");
    let calibration =
        Calibration::new(journal.rows(), &setup(&machine, &cut)).expect("batches at both ends come first");
    close(calibration.core.chosen().fit.coefficients[3], machine.core.alpha_ns, "alpha");
}

#[test]
fn a_budget_that_ends_before_the_first_point_is_an_error_that_says_so() {
    let machine = machine("tiny-ouro");
    let model = Architecture::builtin("tiny-ouro").expect("built in");
    let cut = MeasurementPlan { budget: Nanos::from_secs(1.0), ..plan(&model, 1) };
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(&folder.path().join("m.csv"), "a fake").expect("writable");
    let progress = run(&machine, &cut, &mut journal, u64::MAX).expect("the fake runs");
    let said = progress.check().expect_err("nothing was measured").to_string();
    assert!(said.starts_with("no point was measured within the budget"), "{said}");
    assert!(said.contains("raise --budget"), "{said}");
    assert_eq!(journal.rows(), []);
    let progress = run(&machine, &plan(&model, 1), &mut journal, u64::MAX).expect("the fake runs");
    progress.check().expect("all was measured");
}

#[test]
fn a_plan_that_cannot_be_measured_is_refused() {
    let model = Architecture::builtin("tiny-ouro").expect("built in");
    let good = plan(&model, 1);
    let check = |plan: MeasurementPlan, expected: &str| {
        let said = plan.check(&model).expect_err(expected).to_string();
        assert!(said.contains(expected), "`{said}` does not contain `{expected}`");
    };
    check(
        MeasurementPlan { batches: vec![4], ..good.clone() },
        "--batches: must be a rising list of two or more batch sizes, got [4]",
    );
    check(MeasurementPlan { contexts: vec![64, 32], ..good.clone() }, "--contexts: must be a rising list");
    check(MeasurementPlan { loops: vec![1, 2], ..good.clone() }, "that ends with the model's r_max = 4, got [1, 2]");
    check(
        MeasurementPlan { max_entries: 60, ..good.clone() },
        "--max-entries: must allow two batch sizes at two contexts, 128",
    );
    check(MeasurementPlan { rounds: 0, ..good }, "--rounds: must be at least 1, got 0");
}
