//! Closed loops: who is served decides when the next request comes.

use std::convert::Infallible;

use engine::event_loop::Step;
use engine::metrics::{RequestRecord, RunMetrics};
use engine::units::Nanos;
use sim::run::plan::Plan;
use sim::run::serve::{Sink, serve};
use sim::scenario::{Scenario, load};

const REQUESTS: usize = 60;

/// Everything that a run gave.
#[derive(Default)]
struct Kept {
    steps: Vec<Step>,
    records: Vec<RequestRecord>,
}

impl Sink for Kept {
    type Error = Infallible;

    fn step(&mut self, step: &Step) -> Result<(), Infallible> {
        self.steps.push(step.clone());
        Ok(())
    }

    fn request(&mut self, record: &RequestRecord) -> Result<(), Infallible> {
        self.records.push(*record);
        Ok(())
    }
}

/// Runs every scheduler of the scenario under these arrivals.
fn run(arrivals: &str, overlap: &str) -> Vec<(Kept, RunMetrics)> {
    let yaml = format!(
        "model: ouro-1.4b
profile: h200
workload: {{ lengths: alpaca, requests: {REQUESTS}, arrivals: {arrivals} }}
exits: {{ preset: {{ name: ouro-q0.2 }} }}
scheduler: {{ max_num_seqs: 16, overlap: {overlap} }}
compare: [{{ mode: continuous_batching }}, {{ mode: no_refill }}, {{ mode: refill }}]
"
    );
    let scenario: Scenario = load::parse(&yaml).expect("valid YAML");
    let plan = Plan::new(scenario).expect("a valid scenario");
    let serve = |planned| {
        let mut kept = Kept::default();
        let Ok(recorder) = serve(&plan, planned, &mut kept);
        (kept, recorder.metrics())
    };
    plan.schedulers.iter().map(serve).collect()
}

fn overlaps() -> [&'static str; 3] {
    ["synchronous", "asynchronous", "lookahead"]
}

#[test]
fn clients_for_every_request_are_an_offline_run() {
    for overlap in overlaps() {
        let closed = run(&format!("{{ closed: {{ concurrency: {REQUESTS}, think_s: 3 }} }}"), overlap);
        for ((closed, of_closed), (offline, of_offline)) in closed.iter().zip(run("offline", overlap)) {
            assert_eq!((&closed.steps, &closed.records), (&offline.steps, &offline.records), "{overlap}");
            assert_eq!(of_closed.throughput_tokens_per_s, of_offline.throughput_tokens_per_s, "{overlap}");
        }
    }
}

/// All but the first `concurrency` requests are sent at an answer and a time to think, and every answer but the last ones has
/// one sent behind it. So there are never more in the system than clients.
#[test]
fn every_request_is_sent_when_a_client_has_thought_about_an_answer() {
    for overlap in overlaps() {
        for (concurrency, think_s) in [(1, 0.0), (1, 0.25), (7, 0.0), (7, 0.5), (40, 0.01)] {
            let arrivals = format!("{{ closed: {{ concurrency: {concurrency}, think_s: {think_s} }} }}");
            for (Kept { records, .. }, _) in run(&arrivals, overlap) {
                assert_eq!(records.len(), REQUESTS);
                let mut sent: Vec<Nanos> = records.iter().map(|record| record.arrival).collect();
                let mut answered: Vec<Nanos> = records.iter().map(|record| record.finish).collect();
                sent.sort_unstable();
                answered.sort_unstable();
                let think = Nanos::from_secs(think_s);
                let answers = answered[..REQUESTS - concurrency].iter().map(|&answered| answered + think);
                let expected: Vec<Nanos> = std::iter::repeat_n(Nanos::ZERO, concurrency).chain(answers).collect();
                assert_eq!(sent, expected, "{overlap}, {arrivals}");
            }
        }
    }
}

/// Little's law: clients that are served or think are all there are.
#[test]
fn throughput_is_concurrency_over_what_a_round_takes() {
    for (Kept { records, .. }, metrics) in run("{ closed: { concurrency: 1, think_s: 0.5 } }", "lookahead") {
        let served: f64 = records.iter().map(|record| record.e2e().as_secs()).sum();
        let thought = 0.5 * (REQUESTS - 1) as f64;
        let makespan = records.iter().map(|record| record.finish.as_secs()).fold(0.0, f64::max);
        assert!((served + thought - makespan).abs() < 1e-6, "{served} + {thought} s in {makespan} s");
        assert!((metrics.e2e.mean - served / REQUESTS as f64).abs() < 1e-9 * metrics.e2e.mean);
    }
}
