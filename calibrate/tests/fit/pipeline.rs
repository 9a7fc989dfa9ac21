//! From a table of measurements to a profile: what comes out predicts the machine.

use calibrate::calibration::{Calibration, Setup};
use calibrate::measurements::parse;
use calibrate::tables::render;
use engine::architecture::Architecture;
use engine::interval::student_t_95;
use engine::layout::Layout;
use engine::profile::Profile;

use crate::machine::{Timed, csv, shipped, step_ms};
use crate::synthetic::grid;

fn setup(machine: &Profile) -> Setup {
    let model = Architecture::builtin(&machine.model).expect("a shipped profile is for a built-in model");
    let base = Profile::roofline(&machine.device, &model);
    Setup {
        model,
        device: machine.device.clone(),
        buckets: machine.buckets,
        graphs: false,
        kv_tile_tokens: 0,
        layout: Layout::LastExited,
        base,
        resamples: 200,
        seed: 1,
    }
}

fn calibrated(machine: &Profile, loops: &[u32], timed: Timed, deviation: f64) -> (Calibration, Profile) {
    let setup = setup(machine);
    let table = parse(csv(machine, loops, timed, deviation, 11).as_bytes(), "synthetic.csv").expect("well-formed");
    let calibration = Calibration::new(&table.rows, &setup).expect("a full grid");
    let profile = calibration.profile(&setup, "fitted", "synthetic").expect("a sound profile");
    (calibration, profile)
}

/// The worst relative error of whole steps over the grid.
fn worst_step_error(profile: &Profile, machine: &Profile, loops: u32) -> f64 {
    let errors = grid().into_iter().map(|(batch, context)| {
        let truth = step_ms(machine, batch, context, loops);
        (step_ms(profile, batch, context, loops) / truth - 1.0).abs()
    });
    errors.fold(0.0, f64::max)
}

fn close(found: f64, truth: f64, share: f64, what: &str) {
    assert!((found - truth).abs() <= share * truth.abs() + 1e-9, "{what}: {found}, not {truth}");
}

#[test]
fn a_fitted_profile_predicts_the_machines_steps() {
    for (model, loops) in [("ouro-1.4b", [1, 2, 3, 4]), ("huginn-3.5b", [2, 4, 8, 16])] {
        let machine = shipped(model);
        for timed in [Timed::Steps, Timed::StepsAndStages] {
            let (_, profile) = calibrated(&machine, &loops, timed, 0.003);
            let worst = worst_step_error(&profile, &machine, loops[3]);
            assert!(worst < 0.01, "{model}: {worst}");
        }
    }
}

#[test]
fn without_noise_every_measured_term_is_the_machines() {
    let machine = shipped("huginn-3.5b");
    let (calibration, profile) = calibrated(&machine, &[2, 4, 8, 16], Timed::StepsAndStages, 0.0);
    close(profile.stage_overhead_us, machine.stage_overhead_us, 1e-3, "stage overhead");
    for (name, found, truth) in [
        ("core", profile.core, machine.core),
        ("prelude", profile.prelude, machine.prelude),
        ("coda", profile.coda, machine.coda),
    ] {
        close(found.delta_ms, truth.delta_ms, 1e-3, name);
        close(found.gamma_us, truth.gamma_us, 1e-3, name);
        close(found.alpha_ns, truth.alpha_ns, 1e-3, name);
    }
    close(profile.prefill.floor_ms + profile.prefill.delta_ms, machine.prefill.floor_ms, 1e-3, "prefill floor");
    close(profile.prefill.gamma_us, machine.prefill.gamma_us, 1e-3, "prefill gamma");
    close(profile.prefill.alpha_ns, machine.prefill.alpha_ns, 1e-3, "prefill alpha");
    let staged = calibration.boundary.staged.expect("stages were timed");
    assert!(staged.excess_ms.abs() < 1e-3, "{}", staged.excess_ms);
    assert_eq!(calibration.stage_overhead.expect("timed").points, grid().len());
}

#[test]
fn tau_0_divides_by_parameters_where_no_stage_was_timed() {
    let machine = shipped("huginn-3.5b");
    let (calibration, profile) = calibrated(&machine, &[2, 4, 8, 16], Timed::Steps, 0.0);
    assert!(calibration.boundary.staged.is_none());
    // The shipped boundary was divided by the same rule.
    close(profile.prelude.delta_ms, machine.prelude.delta_ms, 2e-3, "prelude delta");
    close(profile.coda.delta_ms, machine.coda.delta_ms, 2e-3, "coda delta");
    close(profile.prelude.alpha_ns, machine.prelude.alpha_ns, 2e-3, "prelude alpha");
    // Ouro's prelude is a lookup.
    let (_, profile) = calibrated(&shipped("ouro-1.4b"), &[1, 2, 3, 4], Timed::Steps, 0.0);
    assert_eq!(profile.prelude.delta_ms, 0.0);
    close(profile.coda.delta_ms, 0.4, 1e-3, "coda delta");
}

#[test]
fn unmeasured_terms_are_the_bases_and_named_in_the_source() {
    let machine = shipped("ouro-1.4b");
    let (_, profile) = calibrated(&machine, &[1, 4], Timed::Steps, 0.003);
    let roofline = setup(&machine).base;
    assert_eq!((profile.prefill, profile.host, profile.transfer), (roofline.prefill, roofline.host, roofline.transfer));
    let named = "not measured but taken from \"roofline of ouro-1.4b on h100-80gb\": prefill, stage overhead, host, offload, plane copies";
    assert!(profile.source.ends_with(named), "{}", profile.source);
}

#[test]
fn a_written_profile_reads_back_as_it_was() {
    let (_, profile) = calibrated(&shipped("huginn-3.5b"), &[2, 16], Timed::StepsAndStages, 0.003);
    let text = serde_yaml::to_string(&profile).expect("serialisable");
    let read: Profile = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read, profile, "{text}");
    let fit = read.fit.expect("a fitted profile");
    let covariance = fit.covariance.expect("the fit has one");
    let gamma = student_t_95(covariance.degrees as usize) * covariance.matrix[2][2].sqrt();
    assert!((gamma / fit.half_width["gamma_us"] - 1.0).abs() < 1e-4, "{gamma}");
}

#[test]
fn tables_show_every_fit() {
    let (calibration, _) = calibrated(&shipped("huginn-3.5b"), &[2, 16], Timed::StepsAndStages, 0.003);
    let text = render(&calibration);
    for expected in [
        "tau(r) = tau_0 + tau_r r",
        "left-out worst",
        "bootstrap 95%",
        "covariance",
        "residuals",
        "   8192  ",
        "timed by themselves, less the stage overhead",
        "stage overhead: ",
        "prefill: delta + gamma N_b",
    ] {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
}

#[test]
fn repeats_of_a_point_are_one_point() {
    let machine = shipped("ouro-1.4b");
    let once = csv(&machine, &[1, 2, 4], Timed::StepsAndStages, 0.003, 5);
    let again = csv(&machine, &[1, 2, 4], Timed::StepsAndStages, 0.003, 6);
    let both = format!("{once}{}", again.split_once('\n').expect("a header").1);
    let points = |text: &str| {
        let table = parse(text.as_bytes(), "synthetic.csv").expect("well-formed");
        let calibration = Calibration::new(&table.rows, &setup(&machine)).expect("a full grid");
        let staged = calibration.boundary.staged.expect("stages were timed");
        (
            calibration.core.samples.len(),
            staged.coda.samples.len(),
            calibration.prefill.expect("timed").judged.samples.len(),
        )
    };
    assert_eq!(points(&once), points(&both));
}
