//! The shipped profiles parse, are sound, say what the paper says, and are what their README derives.

use calibrate::adjust::adjust;
use calibrate::calibration::{Calibration, Setup};
use calibrate::check::{MEAN_MAX, WORST_MAX, errors};
use calibrate::measurements::{Timed, medians, parse};
use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::profile::{PrefillCost, Profile, StageCost};

const OURO: &str = include_str!("../profiles/h100-paper/ouro-1.4b.yaml");
const OURO_LARGE: &str = include_str!("../profiles/h100-paper/ouro-2.6b.yaml");
const HUGINN: &str = include_str!("../profiles/h100-paper/huginn-3.5b.yaml");

/// Measured ones, with their times.
const CPU: [(&str, &str); 2] = [
    (include_str!("../profiles/cpu/tiny-ouro.yaml"), include_str!("../profiles/cpu/tiny-ouro.csv")),
    (include_str!("../profiles/cpu/tiny-huginn.yaml"), include_str!("../profiles/cpu/tiny-huginn.csv")),
];

/// Those of a GPU, whose graphs have tables of their own.
const H200: [(&str, &str); 5] = [
    (include_str!("../profiles/h200/ouro-1.4b.yaml"), include_str!("../profiles/h200/ouro-1.4b.csv")),
    (include_str!("../profiles/h200/ouro-2.6b.yaml"), include_str!("../profiles/h200/ouro-2.6b.csv")),
    (include_str!("../profiles/h200/huginn-3.5b.yaml"), include_str!("../profiles/h200/huginn-3.5b.csv")),
    (include_str!("../profiles/h200/nanbeige-3b.yaml"), include_str!("../profiles/h200/nanbeige-3b.csv")),
    (
        include_str!("../profiles/h200/recurrent-llama-3.2.yaml"),
        include_str!("../profiles/h200/recurrent-llama-3.2.csv"),
    ),
];

/// B*(8192) of the nominal profile and of its variants.
const OURO_LONG: [(&str, f64); 3] = [("nominal", 7.0), ("flat", 9.5), ("steep", 4.0)];

fn profile(text: &str) -> Profile {
    let profile: Profile = serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
    profile.check().unwrap_or_else(|error| panic!("{}: {error}", profile.name));
    profile
}

/// The profile as it is and with each of its variants.
fn cases(text: &str) -> Vec<(String, Profile)> {
    let nominal = profile(text);
    let variants = nominal.variants.iter().map(|(name, variant)| (name.clone(), nominal.with(variant)));
    [("nominal".to_owned(), nominal.clone())].into_iter().chain(variants).collect()
}

/// Equal to the digits that a profile is written with.
fn close(found: f64, derived: f64, what: &str) {
    // Equal first: a rate that nobody measured has no limit on both sides.
    let close = found == derived || (found - derived).abs() <= 1e-3 * derived.abs();
    assert!(close, "{what}: {found} in the file, {derived} derived");
}

/// `delta, B*(128)` published and `alpha` give the core.
fn core(delta_ms: f64, short: f64, alpha_ns: f64) -> StageCost {
    StageCost { delta_ms, floor_ms: 0.0, gamma_us: delta_ms * 1e3 / short - 0.128 * alpha_ns, alpha_ns }
}

/// The alpha between two saturation batch sizes.
fn alpha_ns(delta_ms: f64, short: f64, long: f64) -> f64 {
    (delta_ms * 1e3 / long - delta_ms * 1e3 / short) / (8.192 - 0.128)
}

fn stages_are_close(found: StageCost, derived: StageCost, what: &str) {
    close(found.delta_ms, derived.delta_ms, &format!("{what} delta"));
    close(found.gamma_us, derived.gamma_us, &format!("{what} gamma"));
    close(found.alpha_ns, derived.alpha_ns, &format!("{what} alpha"));
}

#[test]
fn saturation_batches_are_the_papers_in_every_variant() {
    for (text, published) in [(OURO, 140.0), (OURO_LARGE, 140.0), (HUGINN, 80.0)] {
        for (variant, profile) in cases(text) {
            let [short, long] = [128, 8192].map(|context| profile.core.saturation_batch(context));
            assert!((short / published - 1.0).abs() < 0.005, "{} {variant}: B*(128) = {short}", profile.name);
            assert!((3.8..9.6).contains(&long), "{} {variant}: B*(8192) = {long}", profile.name);
        }
    }
}

#[test]
fn no_variant_streams_faster_than_the_datasheet() {
    for text in [OURO, OURO_LARGE, HUGINN] {
        for (variant, profile) in cases(text) {
            let model = Architecture::builtin(&profile.model).expect("built in");
            let roofline = Profile::roofline(&profile.device, &model);
            let what = format!("{} {variant}", profile.name);
            assert!(profile.core.alpha_ns > roofline.core.alpha_ns, "{what}: alpha");
            assert!(profile.core.gamma_us > roofline.core.gamma_us, "{what}: gamma");
            assert!(profile.core.delta_ms > roofline.core.floor_ms, "{what}: delta");
            assert!(profile.prefill.gamma_us > roofline.prefill.gamma_us, "{what}: prefill");
        }
    }
}

#[test]
fn ouros_core_is_derived_from_delta_and_two_saturation_batches() {
    for (text, times) in [(OURO, 1.0), (OURO_LARGE, 2.0)] {
        for (variant, profile) in cases(text) {
            let (_, long) = OURO_LONG.into_iter().rfind(|(name, _)| variant.starts_with(name)).unwrap_or(OURO_LONG[0]);
            let alpha = alpha_ns(5.4, 140.0, long);
            let derived = core(5.4 * times, 140.0, alpha * times);
            stages_are_close(profile.core, derived, &format!("{} {variant}", profile.name));
            // The published tau_0, at every batch size and context.
            let tau_0 = profile.prelude.time_ms(64, 64 * 8192) + profile.coda.time_ms(64, 64 * 8192);
            close(tau_0, 0.4, "tau_0");
        }
    }
}

#[test]
fn huginns_stages_are_derived_from_its_core_and_tau_0() {
    let model = Architecture::builtin("huginn-3.5b").expect("built in");
    let physical = model.core_kv_bytes() as f64 / 3350.0;
    let ouro_share = 196_608.0 / 3350.0 / alpha_ns(5.4, 140.0, 7.0);
    let boundary = model.boundary_params() as f64;
    for (variant, profile) in cases(HUGINN) {
        let alpha = match variant.split('_').next() {
            Some("flat") => 28.0,
            Some("steep") => 70.0,
            _ => physical / ouro_share,
        };
        let core = core(2.3, 80.0, alpha);
        stages_are_close(profile.core, core, &variant);
        let gamma = core.gamma_us * boundary / model.core_params() as f64;
        // Two layers each, against the core's four; tau_0 is 2.8 ms at batch 1 and context 128.
        let delta = 2.8 - gamma / 1e3 - 128.0 * alpha / 1e6;
        let share = model.prelude_params() as f64 / boundary;
        for (name, stage, share) in [("prelude", profile.prelude, share), ("coda", profile.coda, 1.0 - share)] {
            let derived =
                StageCost { delta_ms: delta * share, floor_ms: 0.0, gamma_us: gamma * share, alpha_ns: alpha / 2.0 };
            stages_are_close(stage, derived, &format!("{variant} {name}"));
        }
    }
}

/// Published: 2.8 ms at L = 128, 3.3 ms at L = 8192, about 1.2 tau_r. The batch size is not.
#[test]
fn huginns_tau_0_grows_as_published_between_batch_1_and_2() {
    let profile = profile(HUGINN);
    let tau_0 = |batch: u32, context: u64| {
        let entries = u64::from(batch) * context;
        profile.prelude.time_ms(batch, entries) + profile.coda.time_ms(batch, entries)
    };
    assert!((tau_0(1, 128) - 2.8).abs() < 0.01);
    assert!((3.1..3.3).contains(&tau_0(1, 8192)), "{}", tau_0(1, 8192));
    assert!((3.3..3.5).contains(&tau_0(2, 8192)), "{}", tau_0(2, 8192));
    for context in [128, 8192] {
        let ratio = tau_0(1, context) / profile.core.time_ms(1, context);
        assert!((1.15..1.25).contains(&ratio), "tau_0 is {ratio} tau_r at {context}");
    }
}

#[test]
fn prefill_is_derived_from_flops() {
    for (text, tau_0_ms) in [(OURO, 0.4), (OURO_LARGE, 0.4), (HUGINN, 2.8)] {
        for (variant, profile) in cases(text) {
            let model = Architecture::builtin(&profile.model).expect("built in");
            let share = match variant.rsplit_once("context_") {
                Some((_, "fast_prefill")) => 0.6,
                Some((_, "slow_prefill")) => 0.3,
                _ => 0.45,
            };
            let peak: PrefillCost = Profile::roofline(&profile.device, &model).prefill;
            let what = format!("{} {variant}", profile.name);
            close(profile.prefill.gamma_us, peak.gamma_us / share, &format!("{what} prefill gamma"));
            close(profile.prefill.alpha_ns, peak.alpha_ns / share, &format!("{what} prefill alpha"));
            let floor = tau_0_ms + f64::from(model.r_max.0) * profile.core.delta_ms;
            close(profile.prefill.floor_ms, floor, &format!("{what} prefill floor"));
        }
    }
}

#[test]
fn measured_profiles_are_what_their_times_give() {
    for (text, times) in CPU.into_iter().chain(H200) {
        let shipped = profile(text);
        let model = Architecture::builtin(&shipped.model).expect("built in");
        let rows = parse(times.as_bytes(), &shipped.name).expect("a table").rows;
        let graphs = !shipped.graphs.is_empty();
        let setup = Setup {
            base: Profile::roofline(&shipped.device, &model),
            device: shipped.device.clone(),
            buckets: shipped.buckets,
            graphs,
            kv_tile_tokens: if graphs { 128 } else { 0 },
            layout: Layout::LastExited,
            resamples: 0,
            seed: 0,
            model,
        };
        let fitted = Calibration::new(&rows, &setup).expect("a full grid");
        let fitted = fitted.profile(&setup, &shipped.name, "").expect("sound");
        assert_eq!((&shipped.graphs, shipped.kv_tile), (&fitted.graphs, fitted.kv_tile), "{}", shipped.name);
        let what = |term: &str| format!("{} {term}", shipped.name);
        for (name, found, derived) in [
            ("core", shipped.core, fitted.core),
            ("prelude", shipped.prelude, fitted.prelude),
            ("coda", shipped.coda, fitted.coda),
        ] {
            stages_are_close(found, derived, &what(name));
            close(found.floor_ms, derived.floor_ms, &what("floor"));
        }
        close(shipped.prefill.gamma_us, fitted.prefill.gamma_us, &what("prefill"));
        close(shipped.stage_overhead_us, fitted.stage_overhead_us, &what("stage overhead"));
        close(shipped.host.build_us, fitted.host.build_us, &what("build"));
        close(shipped.transfer.offload_gb_per_s, fitted.transfer.offload_gb_per_s, &what("offload"));
    }
}

#[test]
fn the_other_gpus_profile_is_adjusted_to_its_times() {
    let other = profile(include_str!("../profiles/h200/huginn-3.5b_gpu_b.yaml"));
    let times = include_str!("../profiles/h200/huginn-3.5b_gpu_b.csv");
    let times = medians(&parse(times.as_bytes(), "times").expect("a table").rows, false);
    let mine = profile(H200[2].0);
    let adjusted = adjust(&mine, &times).expect("times of the core");
    assert_eq!((&other.graphs, other.core, other.prefill), (&adjusted.graphs, adjusted.core, adjusted.prefill));
    let mean = |profile| errors(profile, &times)[&Timed::Core].mean;
    assert!(mean(&mine) > MEAN_MAX && mean(&other) < MEAN_MAX / 2.0, "{} and {}", mean(&mine), mean(&other));
}

#[test]
fn the_h200_profiles_predict_points_that_they_were_not_fitted_to() {
    let held_out = [
        (H200[0].0, include_str!("../profiles/h200/ouro-1.4b_held_out.csv")),
        (H200[2].0, include_str!("../profiles/h200/huginn-3.5b_held_out.csv")),
    ];
    for ((text, others), fitted) in held_out.into_iter().zip([H200[0].1, H200[2].1]) {
        let profile = profile(text);
        let [others, fitted] =
            [others, fitted].map(|times| parse(times.as_bytes(), &profile.name).expect("a table").rows);
        assert!(others.iter().all(|row| fitted.iter().all(|other| row.point != other.point)), "{}", profile.name);
        let core = errors(&profile, &others)[&Timed::Core];
        assert!(core.points >= 19 && core.mean <= MEAN_MAX && core.worst.abs() <= WORST_MAX, "{core:?}");
    }
}
