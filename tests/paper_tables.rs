//! The paper's Tables 2 and 3: its own stage traces, every column, in all three overlap modes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use engine::scheduler::Overlap;
use sim::run::plan::Plan;
use sim::scenario::load::Loaded;

fn check(name: &str, golden: &str) {
    let path = format!("{}/../scenarios/paper/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let mut scenario = Loaded::read(path.as_ref(), &[]).expect("the scenario is valid").scenario;
    for overlap in [Overlap::Synchronous, Overlap::Asynchronous, Overlap::Lookahead] {
        scenario.scheduler.overlap = overlap;
        let plan = Plan::new(scenario.clone()).expect("the scenario can be run");
        let mut trace = Vec::new();
        sim::run::steps::write(&plan, 20, &mut trace).expect("a vector takes every byte");
        // The fixtures have the line ends of their origin.
        assert_eq!(String::from_utf8(trace).unwrap(), golden.replace("\r\n", "\n"), "{name}, {overlap:?}");
    }
}

#[test]
fn table_2_ouro_refill_k1() {
    check("table2_ouro_refill_k1", include_str!("fixtures/golden/ouro_refill_k1.csv"));
}

#[test]
fn table_2_huginn_refill_k1() {
    check("table2_huginn_refill_k1", include_str!("fixtures/golden/huginn_refill_k1.csv"));
}

#[test]
fn table_3_ouro_no_refill() {
    check("table3_ouro_no_refill", include_str!("fixtures/golden/ouro_no_refill.csv"));
}

#[test]
fn table_3_ouro_refill_k16() {
    check("table3_ouro_refill_k16", include_str!("fixtures/golden/ouro_refill_k16.csv"));
}
