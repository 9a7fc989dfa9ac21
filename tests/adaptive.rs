//! The adaptive coda against every fixed K on the same requests, in the paper's settings on reduced workloads.

use engine::scheduler::Mode;
use sim::run::plan::Plan;
use sim::run::serve::{Discard, serve};
use sim::scenario::load;

/// Output tokens per second of the adaptive coda and of K = 1, 2, 4, .., W.
fn throughputs(model: &str, exits: &str, lengths: &str, w: u32, requests: u32) -> (f64, Vec<(u32, f64)>) {
    let mut yaml = format!(
        "model: {model}\nprofile: h100-paper\nworkload: {{ lengths: {lengths}, requests: {requests}, arrivals: offline }}\n\
         exits: {{ preset: {{ name: {exits} }} }}\nscheduler: {{ max_num_seqs: {w} }}\nseed: 11\ncompare:\n\
         - mode: adaptive_refill\n"
    );
    for k in (0..=w.ilog2()).map(|e| 1 << e) {
        yaml.push_str(&format!("- {{ mode: refill, min_coda_batch: {k} }}\n"));
    }
    let plan = Plan::new(load::parse(&yaml).expect("YAML")).expect("a plan");
    let mut adaptive = 0.0;
    let mut fixed = Vec::new();
    for planned in &plan.schedulers {
        let Ok(recorder) = serve(&plan, planned, &mut Discard);
        let throughput = recorder.metrics().throughput_tokens_per_s;
        match planned.config.mode {
            Mode::Refill { min_coda_batch } => fixed.push((min_coda_batch, throughput)),
            _ => adaptive = throughput,
        }
    }
    (adaptive, fixed)
}

/// Within 1% of the best fixed K, whichever that is.
fn check(model: &str, exits: &str, lengths: &str, w: u32, requests: u32) {
    let (adaptive, fixed) = throughputs(model, exits, lengths, w, requests);
    let (k, best) = fixed.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).expect("K = 1 was run");
    assert!(
        adaptive > 0.99 * best,
        "{model}, {lengths}, {exits}, W = {w}: adaptive {adaptive} tokens/s, K = {k} {best} tokens/s"
    );
    if model.starts_with("huginn") {
        let quarter = fixed.iter().find(|(k, _)| *k == (w / 4).max(1)).expect("W is a power of two").1;
        assert!(adaptive > quarter, "{lengths}, {exits}, W = {w}: adaptive {adaptive}, K = W/4 {quarter} tokens/s");
    }
}

#[test]
fn ouro_at_every_width() {
    for (w, requests) in [(2, 40), (8, 100), (32, 300), (128, 800), (512, 2500)] {
        check("ouro-1.4b", "ouro-q0.2", "alpaca", w, requests);
    }
}

#[test]
fn huginn_at_every_width() {
    for (w, requests) in [(2, 40), (8, 100), (32, 300), (128, 800), (512, 2500)] {
        check("huginn-3.5b", "huginn-0.28", "alpaca", w, requests);
    }
}

#[test]
fn every_threshold() {
    for exits in ["ouro-q0.2", "ouro-q0.4", "ouro-q0.5", "ouro-q0.7"] {
        check("ouro-1.4b", exits, "sharegpt", 64, 300);
    }
    for exits in ["huginn-0.28", "huginn-0.16", "huginn-0.1"] {
        check("huginn-3.5b", exits, "sharegpt", 64, 300);
    }
}

#[test]
fn long_prompts() {
    check("ouro-1.4b", "ouro-q0.2", "arxiv", 8, 60);
    check("huginn-3.5b", "huginn-0.28", "arxiv", 8, 60);
}
