//! Workloads: restartable, repeatable, extendable, and clear about what ends them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::path::Path;

use engine::architecture::Architecture;
use engine::executor::ExitSource;
use engine::request::{Arrival, RequestId};
use engine::units::{Depth, Nanos};
use traces::{AllowedExits, Workload, WorkloadConfig};

fn build(workload: &str, exits: &str, seed: u64) -> Result<Workload, String> {
    let allowed = AllowedExits::of(&Architecture::builtin("ouro-1.4b").unwrap(), false);
    let config: WorkloadConfig = serde_yaml::from_str(workload).unwrap();
    Workload::new(&config, &serde_yaml::from_str(exits).unwrap(), allowed, seed).map_err(|error| error.to_string())
}

fn arrivals(workload: &str, seed: u64) -> Vec<Arrival> {
    build(workload, "full_depth", seed).unwrap().arrivals().collect()
}

fn fixture() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/replay.csv");
    path.to_str().unwrap().into()
}

#[test]
fn the_same_seed_gives_the_same_requests_again_and_another_seed_others() {
    let text = "{ lengths: sharegpt, requests: 500, arrivals: { poisson: { rate_per_s: 4 } } }";
    let workload = build(text, "full_depth", 7).unwrap();
    let first: Vec<_> = workload.arrivals().collect();
    assert_eq!(first, workload.arrivals().collect::<Vec<_>>());
    assert_eq!(first, arrivals(text, 7));
    assert_ne!(first, arrivals(text, 8));
    assert!(first.iter().enumerate().all(|(index, arrival)| arrival.request.id == RequestId(index as u32)));
    assert!(first.is_sorted_by_key(|arrival| arrival.request.arrival));
}

#[test]
fn a_longer_workload_begins_with_the_shorter_one() {
    for lengths in ["sharegpt", "alpaca", "arxiv"] {
        let text = |requests| {
            format!(
                "{{ lengths: {lengths}, requests: {requests}, arrivals: {{ gamma: {{ rate_per_s: 2, burstiness: 0.5 }} }} }}"
            )
        };
        let (short, long) = (arrivals(&text(100), 3), arrivals(&text(1000), 3));
        assert_eq!((short.len(), long.len()), (100, 1000));
        assert_eq!(short, long[..100]);
    }
}

#[test]
fn arrivals_and_lengths_move_each_other_not() {
    let lengths = |arrival: &Arrival| (arrival.request.prompt_tokens, arrival.output_tokens);
    let offline = arrivals("{ lengths: sharegpt, requests: 300, arrivals: offline }", 5);
    let poisson = arrivals("{ lengths: sharegpt, requests: 300, arrivals: { poisson: { rate_per_s: 9 } } }", 5);
    assert!(offline.iter().map(lengths).eq(poisson.iter().map(lengths)));
    let arxiv = arrivals("{ lengths: arxiv, requests: 300, arrivals: { poisson: { rate_per_s: 9 } } }", 5);
    assert!(poisson.iter().map(|a| a.request.arrival).eq(arxiv.iter().map(|a| a.request.arrival)));
}

#[test]
fn requests_and_duration_end_a_workload_whichever_comes_first() {
    let count = |text: &str| build(text, "full_depth", 1).unwrap().requests();
    let by_time = count("{ lengths: alpaca, arrivals: { poisson: { rate_per_s: 10, duration_s: 60 } } }");
    assert!((500..700).contains(&by_time), "{by_time}");
    assert_eq!(
        count("{ lengths: alpaca, requests: 50, arrivals: { poisson: { rate_per_s: 10, duration_s: 60 } } }"),
        50
    );
    let few = count("{ lengths: alpaca, requests: 9000, arrivals: { poisson: { rate_per_s: 10, duration_s: 60 } } }");
    assert_eq!(few, by_time);
}

#[test]
fn the_number_of_requests_is_known_before_they_are_drawn() {
    let workload =
        build("{ lengths: alpaca, arrivals: { poisson: { rate_per_s: 10, duration_s: 60 } } }", "full_depth", 1)
            .unwrap();
    let mut requests = workload.arrivals();
    assert_eq!(requests.len(), workload.requests() as usize);
    requests.next();
    assert_eq!(requests.len(), workload.requests() as usize - 1);
    assert_eq!(requests.count(), workload.requests() as usize - 1);
}

#[test]
fn a_file_overrides_lengths_and_gives_arrivals_and_exits() {
    let text = format!("{{ lengths: arxiv, file: '{}', requests: 6000, arrivals: trace }}", fixture());
    let workload = build(&text, "replay", 1).unwrap();
    let lengths: Vec<_> = workload.arrivals().map(|a| (a.request.prompt_tokens, a.output_tokens)).collect();
    assert_eq!(lengths, [(406, 4), (17, 1), (1200, 3), (35, 2)]);
    let times: Vec<_> = workload.arrivals().map(|a| a.request.arrival).collect();
    assert_eq!(times, [0.0, 0.5, 0.5, 2.25].map(Nanos::from_secs));
    assert_eq!(workload.exits().exit_depth(RequestId(0), 3), Depth(4));

    let text = format!(
        "{{ file: '{}', requests: 3, arrivals: {{ poisson: {{ rate_per_s: 1, duration_s: 1000 }} }} }}",
        fixture()
    );
    assert_eq!(build(&text, "full_depth", 1).unwrap().requests(), 3);
}

#[test]
fn a_limit_hides_the_true_lengths_and_cuts_longer_ones_off() {
    let text = format!("{{ file: '{}', arrivals: offline }}", fixture());
    let workload = build(&text, "full_depth", 1).unwrap().with_max_output_tokens(Some(3));
    let outputs: Vec<_> = workload.arrivals().map(|a| (a.request.max_output_tokens, a.output_tokens)).collect();
    assert_eq!(outputs, [(3, 3), (3, 1), (3, 3), (3, 2)]);
}

#[test]
fn a_workload_that_cannot_be_is_refused() {
    let check = |workload: &str, exits: &str, expect: &str| assert_eq!(build(workload, exits, 1).unwrap_err(), expect);
    check(
        "{ requests: 5, arrivals: offline }",
        "full_depth",
        "a workload needs `lengths` (sharegpt, alpaca, arxiv or fixed) or a `file`",
    );
    let endless = "nothing ends this workload: set `requests`, or the arrivals' `duration_s`";
    check("{ lengths: alpaca, arrivals: offline }", "full_depth", endless);
    check("{ lengths: alpaca, arrivals: { poisson: { rate_per_s: 4 } } }", "full_depth", endless);
    check(
        "{ lengths: alpaca, requests: 5, arrivals: trace }",
        "full_depth",
        "`arrivals: trace` reads the workload's file: set `workload.file`",
    );
    check(
        "{ lengths: alpaca, requests: 5, arrivals: offline }",
        "replay",
        "`exits: replay` reads the workload's file: set `workload.file`",
    );
    check(
        "{ lengths: alpaca, arrivals: { poisson: { rate_per_s: 1, duration_s: 0.001 } } }",
        "full_depth",
        "no request arrives within the arrivals' duration_s: raise it, or rate_per_s",
    );
    check(
        "{ lengths: alpaca, arrivals: { poisson: { rate_per_s: 1e9, duration_s: 10 } } }",
        "full_depth",
        "the arrivals make about 10000000000 requests, more than 100000000: lower rate_per_s or duration_s, or set `requests`",
    );
    let late =
        build("{ lengths: alpaca, requests: 5, arrivals: { poisson: { rate_per_s: 1e-300 } } }", "full_depth", 1);
    assert!(late.unwrap_err().contains("later than 1e9 s: raise rate_per_s"));
}
