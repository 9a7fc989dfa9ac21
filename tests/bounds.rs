//! The bounds on speed-up: what they are of, where they can be exceeded, and what is said then.

use std::path::{Path, PathBuf};

use reports::{SchedulerReport, headline, summary_json, summary_text};
use sim::run::compare;
use sim::run::plan::Plan;
use sim::run::serve::{Discard, serve};
use sim::scenario::load::Loaded;
use sim::study::explore;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn plan(path: &str, overrides: &[&str]) -> Plan {
    let overrides: Vec<String> = overrides.iter().map(|field| (*field).into()).collect();
    let loaded = Loaded::read(&file(path), &overrides).expect("a scenario");
    Plan::new(loaded.scenario).expect("a plan")
}

fn compared(plan: &Plan) -> Vec<SchedulerReport> {
    let Ok(runs) = compare::compare(plan, |planned| serve(plan, planned, &mut Discard));
    runs
}

/// Long contexts on a device with much bandwidth: KV reads take the time, and exits save more than the FLOPs of linear layers.
#[test]
fn a_share_above_one_is_explained_and_the_other_bound_holds() {
    let plan = plan("cases/above_the_bound.yaml", &[]);
    let schedulers = compared(&plan);
    let refill = schedulers.iter().find(|run| run.name == "refill K=1").expect("compared by default");
    let bounds = refill.bounds.expect("offline");
    assert!((bounds.realised_share - 1.0059).abs() < 5e-4, "{}", bounds.realised_share);
    let s_roof = bounds.s_roof.expect("a datasheet's device");
    assert!(bounds.speedup < s_roof && s_roof < 1.05 * bounds.speedup, "{} of {s_roof}", bounds.speedup);
    let report = compare::report(&plan, "above", plan.yaml(), schedulers);
    let sentence =
        "S_e2e counts the FLOPs of linear layers and nothing else: where other things take the time, such as KV reads";
    let said = headline(&report);
    assert!(said[1].contains("100.6% of the bound S_e2e") && said[1].contains(sentence), "{said:?}");
    assert!(said[1].contains(&format!("S_roof, which counts bytes as well, is {s_roof:.2}×.")), "{said:?}");
    assert!(!said[0].contains(sentence), "no refill is below 100%: {said:?}");
    assert!(summary_text(&report).contains("S_roof"), "the table has it");
    assert!(summary_json(&report).expect("JSON").contains("\"s_roof\": "), "and the file");
}

/// An exploration shows speed-ups beside S_e2e, so it must say so too.
#[test]
fn an_exploration_knows_when_it_is_above() {
    let explored = |overrides: &[&str]| {
        let plan = plan("cases/above_the_bound.yaml", overrides);
        explore::explore(&plan, std::slice::from_ref(&plan.model), &[]).expect("a datasheet's device").remove(0)
    };
    let above = explored(&[]);
    assert!(above.is_above() && above.speedups.iter().all(|(.., speedup)| Some(*speedup) < above.s_roof));
    assert!(!explored(&["exits=full_depth"]).is_above());
}

/// Beside the law in `laws.rs`: real shapes, and profiles of whole devices.
#[test]
fn no_speedup_is_above_s_roof() {
    let requests = "workload.requests=150";
    for scenario in ["sharegpt_ouro", "arxiv_ouro", "alpaca_ouro", "sharegpt_huginn", "sharegpt_ouro_h200"] {
        for more in
            ["kv.layout=shared", "kv.layout=last_exited", "scheduler.max_num_seqs=8", "scheduler.overlap=synchronous"]
        {
            let plan = plan(&format!("../scenarios/{scenario}.yaml"), &[requests, "output.floor=false", more]);
            for run in compared(&plan) {
                let bounds = run.bounds.expect("offline");
                let s_roof = bounds.s_roof.expect("the device's limits are known");
                assert!(
                    bounds.speedup <= s_roof,
                    "{scenario}, {more}, {}: {} above {s_roof}",
                    run.name,
                    bounds.speedup
                );
            }
        }
    }
}

/// At the roofline itself nothing but the filling of batches is lost, so the bound is close.
#[test]
fn s_roof_is_close_where_nothing_but_the_work_takes_time() {
    let plan = plan(
        "../scenarios/sharegpt_ouro.yaml",
        &["workload.requests=2000", "profile={ roofline: { gpu: h200 } }", "output.floor=false"],
    );
    let refill = compared(&plan).pop().and_then(|run| run.bounds).expect("offline");
    let share = refill.speedup / refill.s_roof.expect("a datasheet's device");
    assert!((0.9..=1.0).contains(&share), "{share}");
}
