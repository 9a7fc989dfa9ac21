//! On measurements of a known machine the fit finds the machine, and its intervals hold it as often as they say.

use calibrate::bootstrap::resample;
use calibrate::cost::{COEFFICIENTS, CostFit, Form, Sample, Shape, fit};
use calibrate::measurements::Timed;
use calibrate::validation::judge;
use engine::profile::StageCost;

use crate::synthetic::{LINEAR, ROOFLINE, dense_grid, grid, samples, samples_at, truth};

const SEEDS: u64 = 600;

fn shape(form: Form) -> Shape {
    Shape { form, reads_kv: true }
}

fn fitted(samples: &[Sample], form: Form) -> CostFit {
    fit(samples, shape(form)).expect("a grid has a fit")
}

/// How often each coefficient's 95% interval holds the true one.
fn coverage(cost: StageCost, form: Form) -> [f64; 4] {
    let mut held = [0.0; 4];
    for seed in 0..SEEDS {
        let fit = fitted(&samples(cost, 0.01, seed), form);
        for (i, truth) in truth(cost).into_iter().enumerate() {
            let holds = fit.half_width(i).is_some_and(|half| (fit.coefficients[i] - truth).abs() <= half);
            held[i] += f64::from(u8::from(holds)) / SEEDS as f64;
        }
    }
    held
}

#[test]
fn without_noise_each_form_finds_its_coefficients() {
    for (cost, form) in [(LINEAR, Form::Linear), (ROOFLINE, Form::Roofline)] {
        let fit = fitted(&samples(cost, 0.0, 0), form);
        for ((name, found), truth) in COEFFICIENTS.iter().zip(fit.coefficients).zip(truth(cost)) {
            assert!((found - truth).abs() <= 1e-8 * truth.max(1.0), "{name}: {found}, not {truth}");
        }
        assert!(fit.r_squared > 1.0 - 1e-12);
    }
}

#[test]
fn a_floor_that_ends_at_a_bucket_is_found_too() {
    let cost = StageCost { floor_ms: 64.0 * ROOFLINE.gamma_us / 1e3, ..ROOFLINE };
    let fit = fitted(&samples(cost, 0.0, 0), Form::Roofline);
    for (found, truth) in fit.coefficients.into_iter().zip(truth(cost)) {
        assert!((found - truth).abs() <= 1e-8 * truth.max(1.0), "{:?}", fit.coefficients);
    }
}

#[test]
fn a_95_percent_interval_holds_the_truth_95_percent_of_the_time() {
    // Three standard deviations of a share of 0.95 over the seeds.
    let margin = 3.0 * (0.95 * 0.05 / SEEDS as f64).sqrt();
    let linear = coverage(LINEAR, Form::Linear);
    println!("linear {linear:?}");
    for i in [0, 2, 3] {
        assert!((linear[i] - 0.95).abs() < margin, "linear {}: {}", COEFFICIENTS[i], linear[i]);
    }
    let roofline = coverage(ROOFLINE, Form::Roofline);
    println!("roofline {roofline:?}");
    for (name, held) in COEFFICIENTS.iter().zip(roofline) {
        assert!((held - 0.95).abs() < margin, "roofline {name}: {held}");
    }
}

#[test]
fn cross_validation_picks_the_true_form() {
    let picked = |cost, form| {
        let right = (0..200).filter(|&seed| {
            let judged = judge(Timed::Core, samples(cost, 0.01, seed), true).expect("a grid can be judged");
            judged.form == form
        });
        right.count()
    };
    let (linear, roofline) = (picked(LINEAR, Form::Linear), picked(ROOFLINE, Form::Roofline));
    println!("linear {linear} of 200, roofline {roofline} of 200");
    assert_eq!(roofline, 200, "a floor of 48% of a step is far above 1% of noise");
    assert!(linear >= 180, "linear picked {linear} times of 200");
}

#[test]
fn the_left_out_error_is_the_noise() {
    let judged = judge(Timed::Core, samples(LINEAR, 0.01, 3), true).expect("a grid can be judged");
    // The mean absolute value of a normal variable is 0.8 standard deviations.
    assert!((0.005..0.012).contains(&judged.chosen().error_mean()), "{}", judged.chosen().error_mean());
    assert!(judged.chosen().error_max() < 0.04);
}

/// Widths of bootstrap intervals over those from the covariance, averaged over seeds.
fn bootstrap_over_covariance(points: &[(u32, u32)], cost: StageCost, form: Form) -> [f64; 4] {
    const REPEATS: u64 = 10;
    let mut ratios = [0.0; 4];
    for seed in 0..REPEATS {
        let samples = samples_at(points, cost, 0.01, seed);
        let fit = fitted(&samples, form);
        let resampled = resample(&samples, shape(form), 400, seed).expect("a grid resamples");
        for (i, ratio) in ratios.iter_mut().enumerate() {
            let half = fit.half_width(i).unwrap_or(f64::INFINITY);
            *ratio += (resampled.high[i] - resampled.low[i]) / (2.0 * half) / REPEATS as f64;
        }
    }
    println!("{form:?}: bootstrap over covariance {ratios:?}");
    ratios
}

#[test]
fn resampling_agrees_with_the_covariance() {
    let [delta, _, gamma, alpha] = bootstrap_over_covariance(&grid(), LINEAR, Form::Linear);
    assert!([delta, gamma, alpha].iter().all(|ratio| (0.75..1.3).contains(ratio)), "{delta} {gamma} {alpha}");
    // Powers of two leave seven points above the floor, and a resampling may draw one of them; a dense grid does not.
    let dense = bootstrap_over_covariance(&dense_grid(), ROOFLINE, Form::Roofline);
    assert!(dense.iter().all(|ratio| (0.75..1.3).contains(ratio)), "{dense:?}");
}

#[test]
fn a_seed_gives_the_same_intervals_and_another_seed_others() {
    let samples = samples(LINEAR, 0.01, 1);
    let resampled = |seed| resample(&samples, shape(Form::Linear), 100, seed).expect("a grid resamples");
    assert_eq!(resampled(7), resampled(7));
    assert_ne!(resampled(7), resampled(8));
}

#[test]
fn the_saturation_batch_has_an_interval_around_the_truth() {
    let fit = fitted(&samples(LINEAR, 0.01, 5), Form::Linear);
    for context in [128, 8192] {
        let (batch, half) = fit.saturation_batch(context);
        let truth = LINEAR.saturation_batch(context);
        assert!((batch - truth).abs() < 1.5 * half && half < 0.05 * truth, "{context}: {batch} +- {half}, not {truth}");
    }
}
