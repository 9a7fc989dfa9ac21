//! The scenario's parts as YAML: what is accepted, what comes back, and where an error points.

use traces::{ExitsConfig, WorkloadConfig};

fn workload(text: &str) -> WorkloadConfig {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn exits(text: &str) -> ExitsConfig {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn written(config: &impl serde::Serialize) -> String {
    serde_yaml::to_string(config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_is_written_back_reads_the_same() {
    for text in [
        "{ lengths: sharegpt, requests: 6000, arrivals: offline }",
        "{ lengths: alpaca, arrivals: { poisson: { rate_per_s: 4, duration_s: 600 } } }",
        "{ lengths: arxiv, requests: 10, arrivals: { poisson: { rate_per_s: 0.5 } }, max_total_tokens: 8192 }",
        "{ lengths: { fixed: { prompt_tokens: 512, output_tokens: 128 } }, requests: 8, arrivals: offline }",
        "{ lengths: sharegpt, arrivals: { gamma: { rate_per_s: 4, burstiness: 0.5, duration_s: 60 } } }",
        "{ file: some/where.csv, arrivals: trace }",
    ] {
        let config = workload(text);
        assert_eq!(workload(&written(&config)), config);
    }
    for text in [
        "full_depth",
        "replay",
        "preset: { name: ouro-q0.2 }",
        "preset: { name: huginn-0.1, correlation: 0.3 }",
        "distribution: { depths: { 2: 0.25, 3: 0.55, 4: 0.2 }, correlation: 0.5 }",
    ] {
        let config = exits(text);
        assert_eq!(exits(&written(&config)), config);
    }
}

#[test]
fn the_papers_context_is_the_default_filter() {
    assert_eq!(workload("{ lengths: alpaca, arrivals: offline }").max_total_tokens.get(), 16_384);
}

#[test]
fn an_error_points_at_the_wrong_word() {
    /// `at` is the line and column, from 1.
    fn check<T: serde::de::DeserializeOwned>(text: &str, at: (u64, u64), expect: &str) {
        let error = serde_yaml::from_str::<T>(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
        assert!(error.to_string().contains(expect), "{error}\ndoes not say\n{expect}");
        let location = error.location().unwrap_or_else(|| panic!("{error} has no place"));
        assert_eq!((location.line(), location.column()), at, "{error}");
    }
    check::<WorkloadConfig>(
        "lengths: alpaca\narrivals:\n  poisson:\n    rate_per_s: -4\n",
        (4, 17),
        "a rate must be finite and positive, got -4",
    );
    check::<WorkloadConfig>(
        "lengths: alpaca\narrivals: { poisson: { rate_per_s: .nan } }\n",
        (2, 36),
        "a rate must be finite and positive, got NaN",
    );
    check::<WorkloadConfig>(
        "lengths: alpaca\narrivals: { gamma: { rate_per_s: 4, burstiness: 0 } }\n",
        (2, 49),
        "a burstiness must be between 0.01 and 1000 (1 is Poisson, less comes in bursts), got 0",
    );
    check::<WorkloadConfig>(
        "lengths: { fixed: { prompt_tokens: 0, output_tokens: 5 } }\narrivals: offline\n",
        (1, 36),
        "a number of tokens must be between 1 and 1,073,741,824, got 0",
    );
    check::<WorkloadConfig>(
        "lengths: alpaca\nrequests: -1\narrivals: offline\n",
        (2, 11),
        "a number of requests must be between 1 and 100,000,000, got -1",
    );
    check::<WorkloadConfig>("lengths: alpaca\narrivals: offline\nrequest: 5\n", (3, 1), "request");
    check::<WorkloadConfig>("lengths: longbench\narrivals: offline\n", (1, 10), "longbench");
    check::<ExitsConfig>(
        "preset: { name: ouro-q0.3 }\n",
        (1, 17),
        "there is no exit preset `ouro-q0.3`; there are ouro-q0.2, ouro-q0.4, ouro-q0.5, ouro-q0.7, ouro-q1.0, \
         huginn-0.28, huginn-0.16, huginn-0.1, huginn-0.0",
    );
    check::<ExitsConfig>(
        "distribution:\n  depths: { 2: 0.5, 3: -0.5 }\n",
        (2, 24),
        "a probability must be between 0 and 1, got -0.5",
    );
    check::<ExitsConfig>(
        "distribution:\n  depths: { 2: 0.5, 3: 0.4 }\n",
        (2, 11),
        "the probabilities of `depths` must sum to 1 (within 1e-6), they sum to 0.9",
    );
    check::<ExitsConfig>(
        "preset: { name: ouro-q0.2, correlation: 1 }\n",
        (1, 41),
        "a correlation of exit depths must be between 0 and 0.999, got 1",
    );
}
