//! Repeats: intervals that hold, pairs that share their requests, and a profile's own uncertainty.

use std::collections::BTreeMap;

use engine::profile::{Covariance, Fit, Profile};
use reports::{Confidence, Measures, SchedulerReport};
use sim::run::compare::compare;
use sim::run::plan::Plan;
use sim::run::repeats::confidence;
use sim::run::serve::{Discard, serve};
use sim::scenario::load::parse;

const SCENARIO: &str = "\
model: ouro-1.4b
profile: h100-paper
workload: { lengths: sharegpt, requests: 200, arrivals: offline }
exits: { preset: { name: ouro-q0.2 } }
repeats: 4
seed: 3
output: { floor: false }
";

fn plan(yaml: &str) -> Plan {
    Plan::new(parse(yaml).expect("a scenario")).expect("a plan")
}

fn first(plan: &Plan) -> Vec<SchedulerReport> {
    let Ok(reports) = compare(plan, |planned| serve(plan, planned, &mut Discard));
    reports
}

fn repeated(plan: &Plan) -> Confidence {
    confidence(plan, &first(plan)).expect("every seed gives requests").expect("more than one repeat")
}

#[test]
fn repeats_are_the_runs_of_the_following_seeds() {
    let confidence = repeated(&plan(SCENARIO));
    assert_eq!(confidence.seeds, [3, 4, 5, 6]);
    let alone = plan(&SCENARIO.replace("seed: 3", "seed: 5"));
    for (scheduler, report) in confidence.repeats.iter().zip(first(&alone)) {
        assert_eq!(scheduler[2], Measures::from(&report));
    }
    assert!(confidence.profile.is_none(), "the paper's profile has no covariance");
}

#[test]
fn a_speedup_is_surer_than_the_throughputs_that_it_is_made_of() {
    let confidence = repeated(&plan(SCENARIO));
    let refill = Measures::intervals(&confidence.repeats[2]);
    let relative = |column: &str| {
        let index = Measures::ALL.iter().position(|measure| measure.column == column).expect(column);
        let interval = refill[index].expect("every seed has one");
        interval.half_width.expect("four repeats") / interval.mean
    };
    let (speedup, throughput) = (relative("speedup"), relative("throughput_tokens_per_s"));
    assert!(speedup < 0.5 * throughput, "{speedup} and {throughput}: pairs share their requests");
}

#[test]
fn one_run_has_no_interval() {
    let plan = plan(&SCENARIO.replace("repeats: 4", "repeats: 1"));
    assert!(confidence(&plan, &first(&plan)).expect("a plan").is_none());
}

/// Offline and in the linear form the makespan is linear in the coefficients: one percent of error in all of the core's
/// terms together is the core's share of one percent of the throughput.
#[test]
fn a_fits_covariance_moves_the_prediction_by_its_share_of_the_time() {
    let mut plan = plan(&SCENARIO.replace("repeats: 4", "repeats: 2"));
    let core = plan.profile.core;
    let one_percent = [core.delta_ms, core.floor_ms, core.gamma_us, core.alpha_ns].map(|value| 0.01 * value);
    let matrix = one_percent.map(|left| one_percent.map(|right| left * right));
    let fit = Fit {
        points: 100,
        r_squared: 1.0,
        cross_validated_error: 0.0,
        cross_validated_error_max: 0.0,
        rejected_form_error: None,
        form: "linear".into(),
        half_width: BTreeMap::new(),
        covariance: Some(Covariance { degrees: 97, matrix }),
    };
    plan.profile = Profile { fit: Some(fit), ..plan.profile };
    let reports = first(&plan);
    let half_widths = confidence(&plan, &reports).expect("a plan").expect("repeats").profile.expect("a covariance");
    for (report, half_widths) in reports.iter().zip(half_widths) {
        let throughput = report.metrics.throughput_tokens_per_s;
        let half_width = half_widths[0].expect("a throughput");
        let share = half_width / throughput / 0.01 / 1.985;
        // Prefill, coda and host take the rest.
        assert!((0.8..1.0).contains(&share), "{}: {share}", report.name);
        assert_eq!(Measures::ALL[1].column, "speedup");
    }
}
