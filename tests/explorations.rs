//! Capacity search, tuning and the explorer, on workloads of seconds.

use engine::metrics::RunMetrics;
use engine::scheduler::Mode;
use sim::run::capacity;
use sim::run::plan::Plan;
use sim::scenario::ModeName;
use sim::scenario::load;
use sim::study;
use sim::study::explore::{self, Split};
use sim::study::tune::{self, Objective};

fn plan(yaml: &str) -> Plan {
    Plan::new(load::parse(yaml).expect("YAML")).expect("a plan")
}

fn online(slo: &str) -> Plan {
    plan(&format!(
        "model: ouro-1.4b\nprofile: h100-paper\nexits: {{ preset: {{ name: ouro-q0.2 }} }}\nseed: 5\nslo: {slo}\n\
         workload: {{ lengths: alpaca, arrivals: {{ poisson: {{ rate_per_s: 10, duration_s: 60 }} }} }}"
    ))
}

#[test]
fn a_capacity_lies_between_what_is_carried_and_what_is_not() {
    let plan = online("{ attainment: 0.99, ttft_ms: 2000, mean: { normalized_ms: 60 } }");
    let slo = plan.slo().expect("the scenario has one");
    for planned in &plan.schedulers {
        let found = capacity::search(&plan, planned, slo).expect("the arrivals have a rate");
        assert!(slo.carried(found.metrics().expect("some rate is carried")));
        let capacity_per_s = found.rates.capacity_per_s().expect("it is found");
        let above = found.tried.iter().filter(|tried| tried.rate_per_s > capacity_per_s);
        let nearest = above.map(|tried| tried.rate_per_s).fold(f64::INFINITY, f64::min);
        assert_eq!(Some(nearest), found.rates.failed_per_s);
        assert!(nearest / capacity_per_s < 1.011, "{}: {capacity_per_s} and {nearest}", planned.name);
    }
}

/// The paper's Figure 6 for Ouro: refill carries most, full depth least.
#[test]
fn capacities_are_ordered_as_in_the_paper() {
    let plan = online("{ mean: { normalized_ms: 60 } }");
    let curves = study::capacity::curves(&plan).expect("it has an SLO and a rate");
    let rates: Vec<f64> = curves.iter().map(|curve| curve.found.rates.capacity_per_s().expect("found")).collect();
    let [full_depth, no_refill, refill] = rates[..] else { panic!("three schedulers") };
    assert!(full_depth < no_refill && no_refill < refill, "{rates:?}");
    let latency = |metrics: &RunMetrics| metrics.normalized.mean;
    let last = curves.iter().map(|curve| latency(&curve.over_rate.last().expect("rates").metrics));
    let last: Vec<f64> = last.collect();
    assert!(last[0] > last[2], "past full depth's capacity its latency is higher: {last:?}");
}

#[test]
fn a_capacity_needs_limits_and_a_rate() {
    let offline = "model: tiny-ouro\nprofile: { roofline: { gpu: h200 } }\nexits: full_depth\n\
                   workload: { lengths: alpaca, requests: 10, arrivals: offline }\n";
    assert_eq!(study::capacity::curves(&plan(offline)).expect_err("no SLO").path, "slo");
    let with_slo = format!("{offline}slo: {{ ttft_ms: 5 }}\n");
    assert_eq!(study::capacity::curves(&plan(&with_slo)).expect_err("no rate").path, "workload.arrivals");
    assert_eq!(tune::tune(&plan(offline), Objective::Goodput).expect_err("no SLO").path, "slo");
}

#[test]
fn tuning_finds_refill_for_ouro_and_full_cohorts_or_better_for_huginn() {
    let offline = |model: &str, exits: &str| {
        plan(&format!(
            "model: {model}\nprofile: h100-paper\nexits: {{ preset: {{ name: {exits} }} }}\nseed: 5\n\
             workload: {{ lengths: alpaca, requests: 600, arrivals: offline }}"
        ))
    };
    let ouro = tune::tune(&offline("ouro-1.4b", "ouro-q0.2"), Objective::Throughput).expect("it can be run");
    assert!(matches!(ouro[0].candidate.mode, ModeName::Refill | ModeName::AdaptiveRefill), "{:?}", ouro[0].candidate);
    let huginn = tune::tune(&offline("huginn-3.5b", "huginn-0.28"), Objective::Throughput).expect("it can be run");
    assert_ne!(huginn[0].candidate.mode, ModeName::ContinuousBatching);
    for trials in [&ouro, &huginn] {
        let best = tune::score(&trials[0], Objective::Throughput);
        assert!(trials.iter().all(|trial| tune::score(trial, Objective::Throughput) <= 1.001 * best));
        let reasons = tune::explain(trials, Objective::Throughput);
        assert!(reasons.contains("B* =") && reasons.contains("Time goes to"), "{reasons}");
        let pasted = load::parse::<sim::scenario::Scenario>(&(trials[0].plan.yaml() + "")).expect("a scenario");
        assert_eq!(pasted.compare[0].mode, trials[0].candidate.mode);
    }
}

/// The paper's Figure 7 (right): the smaller the boundary, the better K = 1 does against K = W / 4.
#[test]
fn a_smaller_boundary_makes_an_immediate_coda_competitive() {
    let plan = plan(
        "model: huginn-3.5b\nprofile: { roofline: { gpu: h100-80gb } }\nexits: { preset: { name: huginn-0.28 } }\nseed: 5\n\
         workload: { lengths: alpaca, requests: 400, arrivals: offline }\ncompare:\n\
         - { mode: refill, min_coda_batch: 1 }\n- { mode: refill, min_coda_batch: 16 }\n",
    );
    let splits = ["2-4-2", "1-4-1", "0-4-0"].map(|text| Split::parse(text).expect("a split").of(&plan.model));
    let explored = explore::explore(&plan, &splits, &[]).expect("they can be run");
    let advantage = explored.iter().map(|one| one.speedups[0].2 / one.speedups[1].2);
    let advantage: Vec<f64> = advantage.collect();
    assert!(advantage.is_sorted(), "K = 1 over K = 16: {advantage:?}");
    assert!(advantage[2] > 0.99, "K = 1 is near optimal for a fully looped model: {advantage:?}");
    assert!(explored.iter().all(|one| matches!(one.speedups[0].1, Mode::Refill { min_coda_batch: 1 })));
}
