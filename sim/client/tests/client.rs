//! The client against servers that behave as we say.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod stub;

use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::{Dialect, Endpoint, Exits, FailureKind, LATE, Load, Path, ProbeError, Run, Seen, Wishes, probe, run};
use engine::request::{Arrival, Request, RequestId};
use engine::units::Nanos;
use stub::Manner;

const MANNER: Manner = Manner {
    first: Duration::from_millis(40),
    gap: Duration::from_millis(10),
    takes_ids: true,
    strict: false,
    counts: true,
    breaks_every: 0,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Tests that measure are alone on the machine, as far as that is ours to say.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn endpoint(manner: Manner) -> Endpoint {
    Endpoint::new(&format!("http://{}", stub::start(manner)), None).unwrap()
}

fn wishes() -> Wishes {
    Wishes { model: None, vocab: Some(256), seed: 1, exits: Exits::FullDepth }
}

fn arrivals(count: u32, every: Nanos, output_tokens: u32) -> impl Iterator<Item = Arrival> + Send {
    (0..count).map(move |id| Arrival {
        request: Request {
            id: RequestId(id),
            arrival: Nanos(u64::from(id) * every.0),
            prompt_tokens: 16,
            max_output_tokens: output_tokens,
        },
        output_tokens,
        cancel_after: None,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Medians over requests, in milliseconds: a neighbour on the machine may delay some.
fn ttft_and_tpot_ms(run: &Run) -> (f64, f64) {
    let records: Vec<_> = run.seen.iter().map(|seen| seen.record().unwrap()).collect();
    let ttft = records.iter().map(|record| record.ttft().as_millis()).collect();
    let tpot = records.iter().filter_map(|record| Some(record.tpot()?.as_millis())).collect();
    (median(ttft), median(tpot))
}

/// Within 1% or 1 ms.
fn close(found: f64, known: f64) -> bool {
    (found - known).abs() <= (0.01 * known).max(1.0)
}

#[test]
fn known_delays_come_back_in_an_open_and_in_a_closed_loop() {
    let _alone = alone();
    let endpoint = endpoint(MANNER);
    let (dialect, _) = probe(&endpoint, &wishes()).unwrap();
    for load in [Load::Open, Load::Closed { concurrency: 4, think: Nanos(5_000_000) }] {
        // Other programs only ever add to a delay, so one of five runs that they leave alone is enough.
        let found: Vec<_> = (0..5).map(|_| delays_ms(&endpoint, &dialect, load)).collect();
        let known = |[ttft_ms, tpot_ms, itl_ms]: &[f64; 3]| {
            close(*ttft_ms, 40.0) && close(*tpot_ms, 10.0) && close(*itl_ms, 10.0)
        };
        assert!(found.iter().any(known), "{found:?} ms for 40, 10 and 10");
    }
}

/// Medians of TTFT, TPOT and gaps over 24 requests.
fn delays_ms(endpoint: &Endpoint, dialect: &Dialect, load: Load) -> [f64; 3] {
    let run = run(endpoint, dialect, arrivals(24, Nanos(15_000_000), 12), load, PATIENCE).unwrap();
    assert_eq!(run.seen.len(), 24);
    let (ttft_ms, tpot_ms) = ttft_and_tpot_ms(&run);
    let gaps = run.seen.iter().flat_map(|seen| {
        let tokens = seen.result.as_ref().unwrap().tokens.clone();
        tokens.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect::<Vec<_>>()
    });
    if let Load::Closed { concurrency, .. } = load {
        assert!(run.health.connections <= concurrency, "{} connections", run.health.connections);
    }
    [ttft_ms, tpot_ms, median(gaps.collect())]
}

#[test]
fn a_slow_server_delays_no_send() {
    let _alone = alone();
    // Every answer takes 300 ms and a request comes every 10 ms: a client that waited would send the last after 9 s.
    let manner = Manner { first: Duration::from_millis(300), ..MANNER };
    let endpoint = endpoint(manner);
    let (dialect, _) = probe(&endpoint, &wishes()).unwrap();
    let run = run(&endpoint, &dialect, arrivals(30, Nanos(10_000_000), 1), Load::Open, PATIENCE).unwrap();
    let last = run.seen.last().unwrap();
    assert_eq!(last.due, Nanos(290_000_000));
    assert!(last.sent < Nanos(1_000_000_000), "sent at {} ms", last.sent.as_millis());
    assert!(run.health.connections > 15, "{} connections", run.health.connections);
}

#[test]
fn a_client_that_cannot_keep_up_says_so() {
    let _alone = alone();
    let endpoint = endpoint(Manner { first: Duration::ZERO, gap: Duration::ZERO, ..MANNER });
    let (dialect, _) = probe(&endpoint, &wishes()).unwrap();
    // 3000 requests within 0.3 ms: no client makes their bodies in that time.
    let run = run(&endpoint, &dialect, arrivals(3000, Nanos(100), 1), Load::Open, PATIENCE).unwrap();
    let late = run.seen.iter().filter(|seen| seen.sent.saturating_sub(seen.due) > LATE).count() as u64;
    assert!(late > 300, "{late} late");
    assert_eq!(run.health.late, late);
    assert!(!run.health.kept_up());
    // Latencies count from the intended times, so they have the delay in them.
    let Seen { due, sent, .. } = run.seen[2999];
    assert!(run.seen[2999].record().unwrap().ttft() >= sent - due);
}

#[test]
fn the_richest_form_that_a_server_takes_is_found() {
    let _alone = alone();
    let form = |manner: Manner| {
        let (dialect, answer) = probe(&endpoint(manner), &wishes()).unwrap();
        (dialect.path, dialect.vocab, dialect.fixes_length, answer.counted, answer.prompt_tokens)
    };
    assert_eq!(form(MANNER), (Path::Completions, Some(256), true, true, Some(8)));
    assert_eq!(form(Manner { takes_ids: false, ..MANNER }), (Path::Completions, None, true, true, Some(7)));
    assert_eq!(form(Manner { strict: true, ..MANNER }), (Path::Completions, Some(256), false, true, Some(8)));
    assert_eq!(form(Manner { counts: false, ..MANNER }), (Path::Completions, Some(256), true, false, None));
    // It has no loop, so it is told nothing of exits.
    let (Dialect { exits, model, .. }, _) = probe(&endpoint(MANNER), &wishes()).unwrap();
    assert_eq!((exits, model.as_str()), (Exits::Servers, "stub"));
}

#[test]
fn failures_are_told_by_kind_and_the_others_go_on() {
    let _alone = alone();
    let endpoint = endpoint(Manner { breaks_every: 3, first: Duration::ZERO, ..MANNER });
    let (dialect, _) = probe(&endpoint, &wishes()).unwrap();
    let one = Load::Closed { concurrency: 1, think: Nanos::ZERO };
    let run = run(&endpoint, &dialect, arrivals(9, Nanos(0), 3), one, PATIENCE).unwrap();
    let kinds: Vec<_> = run.seen.iter().map(|seen| seen.result.as_ref().err().map(|failure| failure.kind)).collect();
    let broken = Some(FailureKind::Broken);
    assert_eq!(kinds, [None, None, broken, None, None, broken, None, None, broken]);
    let failure = run.seen[2].result.as_ref().unwrap_err();
    assert_eq!(failure.tokens, 1, "its first token had come");
    assert_eq!(run.health.connections, 3, "a broken connection is replaced, and no other");
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let _alone = alone();
    let endpoint = endpoint(Manner { first: Duration::from_secs(20), ..MANNER });
    let dialect = Dialect {
        path: Path::Completions,
        model: "stub".into(),
        vocab: None,
        fixes_length: false,
        asks_usage: false,
        seed: 0,
        exits: Exits::Servers,
    };
    let run = run(&endpoint, &dialect, arrivals(1, Nanos(0), 1), Load::Open, Duration::from_millis(100)).unwrap();
    assert_eq!(run.seen[0].result.as_ref().unwrap_err().kind, FailureKind::Timeout);
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = Endpoint::new(&format!("http://{free}"), None).unwrap();
    assert!(matches!(probe(&endpoint, &wishes()), Err(ProbeError::Client { .. })));
    let named = Wishes { model: Some("a".into()), ..wishes() };
    let Err(ProbeError::Refused { last, .. }) = probe(&endpoint, &named) else { panic!("nobody is there") };
    assert_eq!(last.kind, FailureKind::Connect);
}
