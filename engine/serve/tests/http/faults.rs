//! Clients that go away, dawdle or ask for too much.

use std::time::Duration;

use serde_json::{Value, json};
use serve::http::Limits;
use serve::metrics::Over;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{PATIENCE, ask, begin, get, post, read, request, until};
use crate::server::{Pace, Setup};

const COMPLETIONS: &str = "/v1/completions";

fn long(extra: Value) -> String {
    let mut body = json!({ "prompt": "a", "max_tokens": 400, "temperature": 0, "ignore_eos": true, "stream": true });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    post(COMPLETIONS, &body)
}

/// Batches that may run from a client's going to its pages' being free: the one that ran, the one behind it that was queued
/// already, and the one that the scheduler formed before it heard.
const STEPS: u64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_while_its_answer_is_made_frees_its_pages_within_a_step() {
    let server = Setup { pace: Pace::of(Duration::from_millis(20)), ..Setup::default() }.start();
    let stream = begin(server.address, &long(json!({})), "data: ").await;
    let (resident, _, blocks) = server.client.metrics().queues();
    assert!(resident == 1 && blocks > 0);
    drop(stream);
    server.until("the cancellation", |server| server.count(Over::Cancelled) == 1).await;
    let batches = server.batches();
    server.idle().await;
    assert!(server.batches() <= batches + STEPS, "{} batches, {batches} before", server.batches());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_a_whole_answer_can_go_too() {
    let server = Setup { pace: Pace::of(Duration::from_millis(20)), ..Setup::default() }.start();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(long(json!({ "stream": false, "n": 3 })).as_bytes()).await.unwrap();
    server.until("three sequences", |server| server.client.metrics().queues().0 == 3).await;
    drop(stream);
    server.until("the cancellation", |server| server.count(Over::Cancelled) == 3).await;
    server.idle().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_while_its_prompt_is_read_frees_its_pages() {
    let pace = Pace::of(Duration::from_millis(20));
    let server = Setup { max_num_batched_tokens: 1, pace, ..Setup::default() }.start();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(long(json!({ "prompt": vec![5; 100], "max_tokens": 2 })).as_bytes()).await.unwrap();
    server.until("a part of the prompt", |server| server.batches() > 3).await;
    drop(stream);
    server.until("the cancellation", |server| server.count(Over::Cancelled) == 1).await;
    let batches = server.batches();
    server.idle().await;
    assert!(server.batches() <= batches + STEPS && batches < 90, "{} batches, {batches} before", server.batches());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_while_it_waits_for_a_slot_leaves_the_queue() {
    let pace = Pace::of(Duration::from_millis(10));
    let server = Setup { max_num_seqs: 1, pace: pace.clone(), ..Setup::default() }.start();
    let mut first = begin(server.address, &long(json!({ "max_tokens": 40 })), "data: ").await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(long(json!({})).as_bytes()).await.unwrap();
    server.until("a request that waits", |server| server.client.metrics().queues().1 == 1).await;
    drop(second);
    server.until("an empty queue", |server| server.count(Over::Cancelled) == 1).await;
    pace.set(Duration::ZERO);
    assert!(read_rest(&mut first).await.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "the first was not disturbed");
    assert_eq!((server.count(Over::Length), server.client.open()), (1, 0));
    server.idle().await;
    server.stop().await.unwrap();
}

async fn read_rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_clients_that_go_at_random_moments_leave_nothing_behind() {
    const CLIENTS: u64 = 50;
    const EACH: u64 = 200;
    let server = Setup { max_num_seqs: 16, pages: 300, ..Setup::default() }.start();
    let fixed = json!({ "prompt": "a", "max_tokens": 9, "temperature": 0, "ignore_eos": true });
    let before = ask(server.address, COMPLETIONS, fixed.clone()).await.json()["choices"].clone();
    let address = server.address;
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| tokio::spawn(visits(address, client * EACH..(client + 1) * EACH))).collect();
    let mut finished = 0;
    for client in clients {
        finished += client.await.unwrap();
    }
    server.idle().await;
    let after = ask(server.address, COMPLETIONS, fixed).await.json()["choices"].clone();
    assert_eq!(before, after, "what is served afterwards is as before");
    server.idle().await;
    let [length, cancelled, lost] = [
        server.count(Over::Length),
        server.count(Over::Cancelled),
        server.count(Over::Failed) + server.count(Over::Refused) + server.count(Over::Overload),
    ];
    assert_eq!(lost, 0, "nobody failed or was turned away");
    assert!(length >= finished + 2 && length + cancelled <= CLIENTS * EACH + 2, "{length} and {cancelled}");
    assert!(finished > 1000 && cancelled > 1000, "both happened often: {finished} and {cancelled}");
    server.stop().await.unwrap();
}

/// One request after another, each left at a moment that its number decides. Returns how many were answered whole.
async fn visits(address: std::net::SocketAddr, numbers: std::ops::Range<u64>) -> u64 {
    let mut finished = 0;
    for number in numbers {
        let moment = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let stream = moment % 2 == 0;
        let body = json!({ "prompt": vec![7; 1 + (moment % 30) as usize], "max_tokens": 1 + moment % 12,
                           "ignore_eos": true, "stream": stream });
        let bytes = post(COMPLETIONS, &body);
        let mut connection = TcpStream::connect(address).await.unwrap();
        match moment % 5 {
            // In the middle of the request, behind it, somewhere in the answer, or not at all.
            0 => drop(connection.write_all(&bytes.as_bytes()[..bytes.len() / 2]).await),
            1 => drop(connection.write_all(bytes.as_bytes()).await),
            2 | 3 => {
                connection.write_all(bytes.as_bytes()).await.unwrap();
                let time = Duration::from_micros(moment % 20_000);
                let mut part = [0; 64];
                drop(tokio::time::timeout(time, connection.read(&mut part)).await);
            }
            _ => {
                connection.write_all(bytes.as_bytes()).await.unwrap();
                let reply = read(&mut connection).await;
                assert_eq!(reply.status, 200, "{reply:?}");
                if stream {
                    assert!(!reply.events().is_empty());
                } else {
                    assert_eq!(reply.json()["usage"]["completion_tokens"], 1 + moment % 12);
                }
                finished += 1;
            }
        }
    }
    finished
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_cut_off_and_keeps_nobody_else_waiting() {
    let limits = Limits { write_timeout_s: 1, ..Limits::default() };
    let server = Setup { limits, ..Setup::default() }.start();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut lazy = socket.connect(server.address).await.unwrap();
    // About a kilobyte a token, more than what the system holds for a connection.
    lazy.write_all(long(json!({ "n": 16, "max_tokens": 500, "logprobs": 20 })).as_bytes()).await.unwrap();
    server.until("the lazy client's tokens", |server| server.client.metrics().queues().0 > 0).await;
    let other = json!({ "prompt": "a", "max_tokens": 20, "ignore_eos": true });
    assert_eq!(ask(server.address, COMPLETIONS, other).await.status, 200);
    server.idle().await;
    // Longer than the server's patience.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, lazy.read_to_end(&mut bytes)).await.expect("the connection is closed");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("data: ") && !text.contains("[DONE]"), "it was cut off, after {} bytes", bytes.len());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_bodies_that_come_too_slowly_are_given_up() {
    let limits = Limits { header_timeout_s: 1, body_timeout_s: 1, ..Limits::default() };
    let server = Setup { limits, ..Setup::default() }.start();
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    let dripping = async {
        while slow.write_all(b"X-More: 1\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, dripping).await.expect("the connection is closed");
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let nothing = tokio::time::timeout(PATIENCE, silent.read(&mut [0; 8])).await.expect("the connection is closed");
    assert_eq!(nothing.unwrap_or(0), 0);
    let bytes = request("POST", COMPLETIONS, "Content-Type: application/json\r\n", "{\"prompt\": \"a\"}");
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(&bytes.as_bytes()[..bytes.len() - 3]).await.unwrap();
    let reply = read(&mut slow).await;
    assert_eq!(reply.status, 408, "{reply:?}");
    assert_eq!(get(server.address, "/health").await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_queue_holds_is_asked_to_come_again() {
    let pace = Pace::of(Duration::from_millis(10));
    let limits = Limits { max_queue: 2, ..Limits::default() };
    let server = Setup { max_num_seqs: 1, limits, pace: pace.clone(), ..Setup::default() }.start();
    let mut first = begin(server.address, &long(json!({ "max_tokens": 60 })), "data: ").await;
    // Each prompt of a call counts, and a call is taken whole or not at all.
    let three = json!({ "prompt": ["a", "b", "c"], "max_tokens": 1 });
    let reply = ask(server.address, COMPLETIONS, three.clone()).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{reply:?}");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert_eq!(server.count(Over::Overload), 3);
    let four = json!({ "prompt": ["a", "b", "c", "d"], "max_tokens": 1 });
    assert_eq!(ask(server.address, COMPLETIONS, four).await.status, 400, "this never fits");
    pace.set(Duration::ZERO);
    until(&mut first, "[DONE]").await;
    assert_eq!(ask(server.address, COMPLETIONS, three).await.status, 200);
    server.stop().await.unwrap();
}
