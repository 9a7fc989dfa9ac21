//! Several engines behind a router: what each gets, and when it is over.

use std::convert::Infallible;

use engine::metrics::{RequestRecord, RunMetrics};
use engine::units::Nanos;
use sim::run::plan::Plan;
use sim::run::serve::{Sink, serve};
use sim::scenario::{Scenario, load};

/// Requests in order of finishing.
#[derive(Default)]
struct Records(Vec<RequestRecord>);

impl Sink for Records {
    type Error = Infallible;

    fn request(&mut self, record: &RequestRecord) -> Result<(), Infallible> {
        self.0.push(*record);
        Ok(())
    }
}

/// Refill with exits that are early, on a calibrated device.
fn run(workload: &str, rest: &str) -> (Vec<RequestRecord>, RunMetrics) {
    let model = "profile: h200\nexits: { preset: { name: ouro-q0.2 } }\ncompare: [{ mode: refill }]";
    run_scenario(&format!("{model}\nworkload: {workload}\n{rest}\n"))
}

fn run_at_full_depth(workload: &str, rest: &str) -> (Vec<RequestRecord>, RunMetrics) {
    let model = "profile: { roofline: { gpu: h200 } }\nexits: full_depth\ncompare: [{ mode: continuous_batching }]";
    run_scenario(&format!("{model}\nworkload: {workload}\n{rest}\n"))
}

/// Runs the only scheduler of a scenario.
fn run_scenario(yaml: &str) -> (Vec<RequestRecord>, RunMetrics) {
    let scenario: Scenario = load::parse(&format!("model: ouro-1.4b\n{yaml}")).expect("valid YAML");
    let plan = Plan::new(scenario).unwrap_or_else(|error| panic!("{error}"));
    let mut records = Records::default();
    let Ok(recorder) = serve(&plan, &plan.schedulers[0], &mut records);
    records.0.sort_unstable_by_key(|record| record.request);
    (records.0, recorder.metrics())
}

const OVERLAPS: [&str; 3] = ["synchronous", "asynchronous", "lookahead"];

const LOADS: [&str; 4] = [
    "{ lengths: alpaca, requests: 150, arrivals: offline }",
    "{ lengths: alpaca, requests: 150, arrivals: { poisson: { rate_per_s: 40 } } }",
    "{ lengths: alpaca, requests: 150, arrivals: { closed: { concurrency: 20 } } }",
    "{ lengths: alpaca, requests: 150, arrivals: { closed: { concurrency: 20, think_s: 0.3 } } }",
];

#[test]
fn one_replica_is_an_engine() {
    for (load, overlap) in LOADS.into_iter().flat_map(|load| OVERLAPS.map(|overlap| (load, overlap))) {
        let scheduler = format!("scheduler: {{ max_num_seqs: 8, overlap: {overlap} }}\n");
        let (records, metrics) = run(load, &scheduler);
        for routing in ["round_robin", "least_loaded"] {
            let replicas = format!("{scheduler}replicas: {{ count: 1, routing: {routing} }}");
            let (routed, of_routed) = run(load, &replicas);
            assert!(routed == records, "{load}, {overlap}, {routing}: the records differ");
            let known = of_routed.replicas.clone().expect("replicas are told apart");
            assert_eq!((known.requests, known.imbalance), (vec![150], 1.0));
            let of_routed = RunMetrics { replicas: None, ..of_routed };
            assert!(of_routed == metrics, "{load}, {overlap}, {routing}: {of_routed:?}\n{metrics:?}");
        }
    }
}

/// Offline each of them has a run of its own, at the end of which nobody waits for the others.
#[test]
fn in_turn_every_engine_serves_its_own_requests_as_if_alone() {
    let load = |requests| {
        format!(
            "{{ lengths: {{ fixed: {{ prompt_tokens: 30, output_tokens: 9 }} }}, requests: {requests}, arrivals: offline }}"
        )
    };
    for overlap in OVERLAPS {
        // At full depth all requests are alike.
        let settings = format!("scheduler: {{ max_num_seqs: 8, overlap: {overlap} }}\n");
        let alone = run_at_full_depth(&load(40), &settings).0;
        let (records, metrics) =
            run_at_full_depth(&load(120), &format!("{settings}replicas: {{ count: 3, routing: round_robin }}"));
        for (index, record) in records.iter().enumerate() {
            let same = alone[index / 3];
            assert_eq!((record.admitted, record.finish), (same.admitted, same.finish), "{overlap}, request {index}");
        }
        let replicas = metrics.replicas.expect("replicas are told apart");
        assert_eq!(replicas.requests, [40, 40, 40]);
        assert!((replicas.imbalance - 1.0).abs() < 1e-12);
        assert!(replicas.busy_share.iter().all(|share| (share - metrics.gpu_busy_share).abs() < 1e-12));
    }
}

/// One request at a time and all alike: then who is least loaded can be counted by hand.
#[test]
fn whoever_has_the_fewest_requests_gets_the_next() {
    let load = |requests, rate| {
        format!(
            "{{ lengths: {{ fixed: {{ prompt_tokens: 30, output_tokens: 9 }} }}, requests: {requests}, \
             arrivals: {{ poisson: {{ rate_per_s: {rate} }} }} }}"
        )
    };
    let one_slot = "scheduler: { max_num_seqs: 1, overlap: synchronous }\n";
    let alone = run_at_full_depth(&load(1, 1.0), one_slot).0[0];
    let service = alone.finish - alone.arrival;
    for count in [2, 3, 5] {
        // Nine tenths of what they can serve.
        let rate = 0.9 * f64::from(count) / service.as_secs();
        let replicas = format!("{one_slot}replicas: {{ count: {count}, routing: least_loaded }}");
        let (records, metrics) = run_at_full_depth(&load(400, rate), &replicas);
        let mut finishes: Vec<Vec<Nanos>> = vec![Vec::new(); count as usize];
        for record in &records {
            let load = |all: &Vec<Nanos>| all.iter().filter(|&&finish| finish > record.arrival).count();
            let least = finishes.iter_mut().min_by_key(|all| load(all)).expect("there are some");
            let finish = least.last().copied().unwrap_or_default().max(record.arrival) + service;
            assert_eq!(record.finish, finish, "{count} replicas, request {}", record.request.0);
            least.push(finish);
        }
        let requests: Vec<u64> = finishes.iter().map(|all| all.len() as u64).collect();
        assert_eq!(metrics.replicas.expect("replicas are told apart").requests, requests);
    }
}

/// Where requests wait for slots, and are long and short.
#[test]
fn where_requests_wait_the_least_loaded_is_the_better_choice() {
    let load = "{ lengths: sharegpt, requests: 600, arrivals: { poisson: { rate_per_s: 14 } } }";
    let wait = |routing| {
        let rest = format!("scheduler: {{ max_num_seqs: 4 }}\nreplicas: {{ count: 4, routing: {routing} }}");
        run(load, &rest).1.ttft.mean
    };
    let (in_turn, least) = (wait("round_robin"), wait("least_loaded"));
    assert!(in_turn > 0.05 && least < 0.8 * in_turn, "{least} s and {in_turn} s");
}
