//! What the paper says of its H100, across the whole range that its published figures leave open.

use engine::scheduler::Mode;
use reports::Bounds;
use sim::run::compare;
use sim::run::plan::Plan;
use sim::run::serve::{Discard, serve};
use sim::scenario::{ModeName, Scenario, SchedulerEntry};

/// Every variant of the profile that a scenario names, and the nominal values.
fn across_the_range(scenario: &Scenario, check: impl Fn(&str, &Plan)) {
    let nominal = Plan::new(scenario.clone()).expect("the scenario can be run");
    assert!(nominal.profile.variants.len() >= 4, "the profile carries its range");
    for variant in nominal.profile.variants.keys().cloned().map(Some).chain([None]) {
        let name = variant.clone().unwrap_or_else(|| "nominal".into());
        let scenario = Scenario { variant, ..scenario.clone() };
        check(&name, &Plan::new(scenario).expect("a variant can be run"));
    }
}

fn ouro(lengths: &str, requests: u32) -> Scenario {
    let yaml = format!(
        "model: ouro-1.4b\nprofile: h100-paper\nworkload: {{ lengths: {lengths}, requests: {requests}, arrivals: offline }}\n\
         exits: {{ preset: {{ name: ouro-q0.2 }} }}\nseed: 1\noutput: {{ floor: false }}"
    );
    sim::scenario::load::parse(&yaml).expect("valid YAML")
}

fn bounds(plan: &Plan) -> Vec<Bounds> {
    let Ok(reports) = compare::compare(plan, |planned| serve(plan, planned, &mut Discard));
    reports.into_iter().map(|report| report.bounds.expect("an offline plan has bounds")).collect()
}

fn refill_nearly_reaches_the_bound(lengths: &str, requests: u32) {
    across_the_range(&ouro(lengths, requests), |variant, plan| {
        let bounds = bounds(plan);
        let [_, no_refill, refill] = bounds.as_slice() else { panic!("three schedulers") };
        let share = refill.realised_share;
        assert!((0.95..=1.0).contains(&share), "{lengths}, {variant}: refill realises {share} of S_e2e");
        assert!(
            refill.speedup > no_refill.speedup,
            "{lengths}, {variant}: refill {} no refill {}",
            refill.speedup,
            no_refill.speedup
        );
    });
}

#[test]
fn refill_on_ouro_nearly_reaches_the_bound_on_sharegpt() {
    refill_nearly_reaches_the_bound("sharegpt", 1500);
}

#[test]
fn refill_on_ouro_nearly_reaches_the_bound_on_alpaca() {
    refill_nearly_reaches_the_bound("alpaca", 4000);
}

/// The paper: CDB at full depth keeps 95 to 99% of continuous batching.
#[test]
fn at_full_depth_stages_cost_little() {
    let full_depth =
        |mode| SchedulerEntry { mode, min_coda_batch: None, coda_share: None, full_depth: true, name: None };
    for (lengths, requests) in [("sharegpt", 1500), ("alpaca", 4000)] {
        let compare = [ModeName::NoRefill, ModeName::Refill].map(full_depth).into();
        across_the_range(&Scenario { compare, ..ouro(lengths, requests) }, |variant, plan| {
            for (planned, bounds) in plan.schedulers.iter().zip(bounds(plan)) {
                let kept = bounds.speedup;
                assert!((0.95..=1.0).contains(&kept), "{lengths}, {variant}: {} keeps {kept}", planned.name);
                assert_ne!(planned.config.mode, Mode::ContinuousBatching);
            }
        });
    }
}

/// At 6 requests per second of ShareGPT lengths, full depth is past saturation and refill carries more.
#[test]
fn the_verdict_says_that_full_depth_is_saturated() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/bench/poisson_600s.yaml");
    let scenario =
        sim::scenario::load::Loaded::read(path.as_ref(), &["workload.arrivals.poisson.duration_s=200".into()]);
    let plan = Plan::new(scenario.expect("a scenario").scenario).expect("a plan");
    let Ok(reports) = compare::compare(&plan, |planned| serve(&plan, planned, &mut Discard));
    assert_eq!(reports[0].mode, Mode::ContinuousBatching);
    assert_eq!(reports[0].metrics.saturated(), Some(true));
    let growth = |index: usize| reports[index].metrics.queue_growth_per_s().expect("an online run");
    assert!(growth(1) < growth(0), "refill's queue grows at {} per s, full depth's at {}", growth(1), growth(0));
}
