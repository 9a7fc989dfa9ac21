//! Clients that go away: their requests go with them, and nobody else notices.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use serve::http::{Guard, Limits};

use crate::client::{Client, eventually, request};
use crate::server::Server;

/// One sequence at a time, which can have the whole pool, and prompts in chunks of eight tokens.
const NARROW: &str =
    "scheduler: { max_num_seqs: 1, max_context_tokens: 512, max_num_batched_tokens: 8 }\nkv: { blocks: 128 }";

fn completion(body: &Value) -> Vec<u8> {
    request("/v1/completions", body.to_string().as_bytes())
}

/// Nothing runs, waits or is held, and a request that needs every block is served.
fn assert_all_is_free(server: &Server, context: usize) {
    // At once, since what a client sent before it went may be read after it went.
    eventually("nothing is on its way, runs, waits or is held", || {
        let gauges = ["requests_running", "requests_waiting", "kv_blocks_used"];
        server.engine.open() == 0 && gauges.iter().all(|gauge| server.client.metric(gauge) == 0.0)
    });
    let body = json!({ "prompt": vec![7; context - 2], "max_tokens": 2, "ignore_eos": true });
    assert_eq!(server.client.complete(&body)["usage"]["total_tokens"], context);
}

#[test]
fn a_request_is_over_when_its_client_goes_in_whatever_phase() {
    let long = |prompt: usize, stream: bool| {
        completion(&json!({
            "prompt": vec![7; prompt], "max_tokens": 512 - prompt, "ignore_eos": true, "stream": stream,
        }))
    };
    for streamed in [true, false] {
        // In its prompt: five hundred tokens take sixty batches.
        let server = Server::of(NARROW);
        let mut gone = server.client.connect();
        gone.write_all(&long(500, streamed)).unwrap();
        eventually("its prompt is read", || server.client.metric("requests_running") == 1.0);
        drop(gone);
        eventually("it is cancelled", || server.client.over("cancelled") == 1.0);
        assert_eq!(server.client.metric("output_tokens_total"), 0.0, "it was not done with its prompt");
        assert_all_is_free(&server, 512);

        // In its answer, while another one waits.
        let server = Server::of(NARROW);
        let mut gone = server.client.connect();
        gone.write_all(&long(1, streamed)).unwrap();
        eventually("it has tokens", || server.client.metric("output_tokens_total") > 3.0);
        let mut waits = server.client.connect();
        waits.write_all(&long(2, streamed)).unwrap();
        eventually("another one waits", || server.client.metric("requests_waiting") == 1.0);
        // In the queue.
        drop(waits);
        eventually("that is cancelled", || server.client.over("cancelled") == 1.0);
        eventually("nobody waits", || server.client.metric("requests_waiting") == 0.0);
        assert_eq!(server.client.metric("requests_running"), 1.0);
        drop(gone);
        eventually("it is cancelled too", || server.client.over("cancelled") == 2.0);
        assert_all_is_free(&server, 512);
        assert_eq!(server.stop(), Ok(()));
    }
}

/// Numbers that differ by seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// Asks, and goes away at a random moment: in the request, in the queue, in the prompt, in the answer, behind it.
fn ask_and_go(client: Client, random: &mut Random) {
    let body = json!({
        "prompt": vec![9; 1 + random.below(24) as usize], "n": 1 + random.below(2), "max_tokens": 1 + random.below(12),
        "stream": random.below(2) == 0, "ignore_eos": true, "exit": { "threshold": 0.4 }, "logprobs": random.below(2),
        "echo": random.below(4) == 0,
    });
    let bytes = completion(&body);
    let end = if random.below(5) == 0 { random.below(bytes.len() as u64) as usize } else { bytes.len() };
    let mut stream = client.connect();
    stream.write_all(&bytes[..end]).unwrap();
    match random.below(3) {
        0 => {}
        1 => std::thread::sleep(Duration::from_micros(random.below(4000))),
        // A part of the answer, if there is one.
        _ if end == bytes.len() => {
            let _ = stream.read(&mut vec![0; 1 + random.below(800) as usize]);
        }
        _ => {}
    }
}

#[test]
fn ten_thousand_clients_that_go_at_random_moments_leave_nothing_behind() {
    const THREADS: u64 = 16;
    let scenario = "scheduler: { max_num_seqs: 16, max_context_tokens: 256 }\nkv: { blocks: 256 }";
    let server = Server::with(scenario, Limits { max_queue: 16, ..Limits::default() }, Guard::default());
    let client = server.client;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread + 1));
                (0..10_000 / THREADS).for_each(|_| ask_and_go(client, &mut random));
            });
        }
    });
    assert_all_is_free(&server, 256);
    let over = ["stop", "length", "cancelled", "failed", "refused", "overload"].map(|why| client.over(why));
    let [_, length, cancelled, failed, refused, _] = over;
    assert!(length > 100.0 && cancelled > 100.0 && failed + refused == 0.0, "{over:?}");
    assert_eq!(server.stop(), Ok(()));
}
