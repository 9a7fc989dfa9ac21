//! Exit sources: marginals, correlation, purity, and which tables a model refuses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use engine::architecture::{Architecture, Family};
use engine::executor::ExitSource;
use engine::request::RequestId;
use engine::units::Depth;
use proptest::prelude::*;
use traces::exits::distribution::Distribution;
use traces::exits::preset::{PRESETS, Preset};
use traces::numbers::Correlation;
use traces::{AllowedExits, Exits, ExitsConfig};

fn correlation(rho: f64) -> Correlation {
    Correlation::try_from(rho).unwrap()
}

fn distribution(preset: &Preset, rho: f64, seed: u64) -> Distribution {
    Distribution::new(&preset.table(), correlation(rho), seed)
}

fn exits(text: &str, model: &str) -> Result<Exits, String> {
    let config: ExitsConfig = serde_yaml::from_str(text).unwrap();
    let allowed = AllowedExits::of(&Architecture::builtin(model).unwrap(), false);
    Exits::new(&config, allowed, None, 1).map_err(|error| error.to_string())
}

/// Shares of each depth among `count` requests at one token.
fn shares(distribution: &Distribution, token: u32, count: u32) -> [f64; 17] {
    let mut shares = [0.0; 17];
    for request in 0..count {
        shares[usize::from(distribution.depth(RequestId(request), token).0)] += 1.0 / f64::from(count);
    }
    shares
}

#[test]
fn every_token_has_the_tables_probabilities_under_any_correlation() {
    const REQUESTS: u32 = 100_000;
    for preset in &PRESETS {
        for rho in [0.0, 0.5, 0.9] {
            let distribution = distribution(preset, rho, 7);
            for token in [1, 2, 40] {
                let shares = shares(&distribution, token, REQUESTS);
                for (depth, p) in preset.table().entries() {
                    let got = shares[usize::from(depth.0)];
                    // Five standard deviations of a share.
                    let tolerance = 5.0 * (p * (1.0 - p) / f64::from(REQUESTS)).sqrt() + 1e-9;
                    assert!((got - p).abs() <= tolerance, "{} {rho} {token} {depth}: {got} for {p}", preset.name);
                }
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "a depth outside the table");
            }
        }
    }
}

#[test]
fn depths_along_a_sequence_have_the_given_correlation() {
    let preset = Preset::named("huginn-0.16").unwrap();
    let mean = preset.mean_depth();
    let variance: f64 = preset.table().entries().map(|(depth, p)| p * (f64::from(depth.0) - mean).powi(2)).sum();
    for (rho, lag) in [(0.0, 1), (0.3, 1), (0.6, 1), (0.6, 2), (0.9, 3)] {
        let distribution = distribution(preset, rho, 3);
        let depth = |request, token| f64::from(distribution.depth(RequestId(request), token).0) - mean;
        let products: Vec<f64> = (0..3000)
            .flat_map(|request| (1..1000).map(move |token| (request, token)))
            .map(|(r, t)| depth(r, t) * depth(r, t + lag))
            .collect();
        let got = products.iter().sum::<f64>() / products.len() as f64 / variance;
        assert!((got - rho.powi(lag as i32)).abs() < 0.02, "{rho} at lag {lag}: {got}");
    }
}

#[test]
fn requests_are_independent_of_each_other() {
    let distribution = distribution(Preset::named("huginn-0.16").unwrap(), 0.9, 3);
    let mean = distribution.mean_depth();
    let depth = |request, token| f64::from(distribution.depth(RequestId(request), token).0) - mean;
    let products: f64 = (0..100_000).map(|request| depth(request, 5) * depth(request + 1, 5)).sum::<f64>() / 1e5;
    assert!(products.abs() < 0.05, "{products}");
}

proptest! {
    #[test]
    fn a_depth_is_a_pure_function_that_a_keeping_token_shares_with_the_one_before(
        seed: u64, request: u32, token in 2u32..5000, rho in 0.0f64..0.999
    ) {
        let distribution = distribution(Preset::named("ouro-q0.4").unwrap(), rho, seed);
        let depth = distribution.depth(RequestId(request), token);
        prop_assert!((2..=4).contains(&depth.0));
        prop_assert_eq!(depth, distribution.clone().depth(RequestId(request), token));
    }
}

#[test]
fn a_seed_decides_every_depth() {
    let preset = Preset::named("ouro-q0.2").unwrap();
    let depths = |seed| {
        let distribution = distribution(preset, 0.5, seed);
        (1..500).map(|token| distribution.depth(RequestId(9), token)).collect::<Vec<_>>()
    };
    assert_eq!(depths(1), depths(1));
    assert_ne!(depths(1), depths(2));
}

#[test]
fn full_depth_is_the_models() {
    let exits = exits("full_depth", "huginn-3.5b").unwrap();
    assert_eq!(exits.exit_depth(RequestId(3), 1), Depth(16));
}

#[test]
fn a_model_refuses_exits_that_it_cannot_have() {
    let check = |text, model, expect: &str| assert_eq!(exits(text, model).unwrap_err(), expect);
    check("replay", "ouro-1.4b", "`exits: replay` reads the workload's file: set `workload.file`");
    check(
        "preset: { name: huginn-0.28 }",
        "ouro-1.4b",
        "the exit preset `huginn-0.28` is a shape for huginn, and the model is of the family ouro",
    );
    check(
        "preset: { name: huginn-0.28 }",
        "tiny-huginn",
        "an exit at depth 9 is not possible: this model and overlap mode allow 1 to 8",
    );
    check(
        "distribution: { depths: { 3: 0.5, 5: 0.5 } }",
        "ouro-1.4b",
        "an exit at depth 5 is not possible: this model and overlap mode allow 1 to 4",
    );
    assert!(exits("distribution: { depths: { 3: 1, 5: 0 } }", "ouro-1.4b").is_ok());
}

#[test]
fn a_lookahead_needs_exits_at_r_min_or_deeper() {
    let huginn = Architecture::builtin("huginn-3.5b").unwrap();
    let config: ExitsConfig = serde_yaml::from_str("distribution: { depths: { 2: 0.5, 9: 0.5 } }").unwrap();
    let error = Exits::new(&config, AllowedExits::of(&huginn, true), None, 1).unwrap_err().to_string();
    assert_eq!(error, "an exit at depth 2 is not possible: this model and overlap mode allow 3 to 16");
    assert!(Exits::new(&config, AllowedExits::of(&huginn, false), None, 1).is_ok());
    assert_eq!(AllowedExits::of(&huginn, true).family, Family::HUGINN);
}
