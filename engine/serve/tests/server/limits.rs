//! What a client can take of a server, and what happens to one that takes more.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use serve::http::{Guard, Limits};
use tokio::net::TcpSocket;

use crate::client::{Answer, Client, eventually, request};
use crate::server::{SCENARIO, Server};

fn limited(limits: Limits) -> Server {
    Server::with(SCENARIO, limits, Guard::default())
}

#[test]
fn a_body_of_100_mb_is_too_large_with_and_without_its_length() {
    let server = limited(Limits { max_body_mib: 1, ..Limits::default() });
    let head =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let megabyte = vec![b' '; 1 << 20];
    let (known, unknown) = ("Content-Length: 104857600\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n");
    for (length, chunked, megabytes) in [(known, false, 100), (unknown, true, 3)] {
        let mut stream = server.client.connect();
        stream.write_all(format!("{head}{length}").as_bytes()).unwrap();
        for _ in 0..megabytes {
            if chunked {
                stream.write_all(b"100000\r\n").unwrap();
            }
            stream.write_all(&megabyte).unwrap();
            if chunked {
                stream.write_all(b"\r\n").unwrap();
            }
        }
        if chunked {
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
        let answer = Answer::read(stream);
        assert_eq!((answer.status, answer.error().0.contains("larger than 1 MiB")), (413, true));
    }
}

/// Sends a byte every 50 ms until the server has had enough, for 20 s at most; then what it said.
fn drip(client: Client, first: &str) -> Vec<u8> {
    let mut stream = client.connect();
    stream.write_all(first.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut said = Vec::new();
    for _ in 0..400 {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return said,
            Ok(read) => said.extend_from_slice(&bytes[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // It may have closed meanwhile, which the next read says.
                let _ = stream.write_all(b"a");
            }
            Err(_) => return said,
        }
    }
    panic!("a client that sends a byte every 50 ms is never cut off");
}

#[test]
fn headers_that_never_end_and_bodies_that_never_come_are_cut_off() {
    let server = limited(Limits { header_timeout_s: 1, body_timeout_s: 1, max_header_kib: 8, ..Limits::default() });
    let client = server.client;
    let header =
        std::thread::spawn(move || drip(client, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: "));
    let silent = std::thread::spawn(move || drip(client, ""));
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                Content-Length: 100000\r\n\r\n{";
    let answer = Answer::of(&drip(client, head));
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "the body did not come within 1 s"));
    header.join().unwrap();
    silent.join().unwrap();
    let long = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "a".repeat(64 << 10));
    assert_eq!(client.raw(long.as_bytes()).status, 431);
    assert_eq!(client.get("/health").status, 200);
}

/// Opens a connection that takes in a few kilobytes and no more.
fn narrow(client: Client) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(client.0).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

#[test]
fn a_client_that_never_reads_is_cut_off_and_holds_up_nobody() {
    let server = limited(Limits { write_timeout_s: 1, ..Limits::default() });
    // An echoed prompt's scores are megabytes: more than a connection's buffers hold.
    let body = json!({
        "prompt": vec![9; 200], "n": 32, "max_tokens": 56, "ignore_eos": true, "stream": true, "logprobs": 20, "echo": true,
    });
    let mut idler = narrow(server.client);
    idler.write_all(&request("/v1/completions", body.to_string().as_bytes())).unwrap();
    eventually("it runs", || server.client.metric("requests_running") > 0.0);
    let other = json!({ "prompt": "b", "max_tokens": 3, "ignore_eos": true });
    assert_eq!(server.client.get("/health").status, 200);
    eventually("it is cut off", || server.client.over("cancelled") > 0.0);
    eventually("nothing of it is left", || server.engine.open() == 0);
    let made = server.client.metric("output_tokens_total");
    assert!(made < 32.0 * 56.0, "it was cut off before its end");
    server.client.complete(&other);
    let over = ["stop", "length", "cancelled", "failed", "refused", "overload"].map(|why| server.client.over(why));
    assert_eq!(over.iter().sum::<f64>(), 33.0, "{over:?}");
    drop(idler);
    assert_eq!(server.stop(), Ok(()));
}

#[test]
fn a_full_queue_is_an_answer_that_says_when_to_come_back() {
    let scenario = "scheduler: { max_num_seqs: 1, max_context_tokens: 256 }\nkv: { blocks: 64 }";
    let server = Server::with(scenario, Limits { max_queue: 2, ..Limits::default() }, Guard::default());
    let body = json!({ "prompt": "a", "max_tokens": 250, "ignore_eos": true, "stream": true });
    let bytes = request("/v1/completions", body.to_string().as_bytes());
    let streams: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = server.client.connect();
            stream.write_all(&bytes).unwrap();
            stream.read_exact(&mut [0; 12]).unwrap();
            stream
        })
        .collect();
    // One place is left, and a call is taken whole or not at all.
    let answer = server.client.post("/v1/completions", &json!({ "prompt": ["a", "b"] }));
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    let message = answer.error().0;
    assert!(message.contains("2 requests are on their way, and at most 3 may be"), "{message}");
    let answer = server.client.post("/v1/completions", &json!({ "prompt": "a", "n": 4 }));
    assert_eq!(answer.status, 400, "it would never be taken: {}", answer.text());
    for mut stream in streams {
        let mut rest = b"HTTP/1.1 200".to_vec();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(Answer::of(&rest).events().len(), 250);
    }
    assert_eq!(server.client.over("overload"), 2.0);
    server.client.complete(&json!({ "prompt": ["a", "b"] }));
}
