//! The engine comes to an end before its time, or when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::batch::{Batch, Outcome};
use engine::cpu::CpuExecutor;
use engine::executor::{Clock, Executor, Reject};
use engine::request::RequestId;
use engine::submission::Submission;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{ask, begin, post, read, request, send};
use crate::server::{Pace, Setup};

const COMPLETIONS: &str = "/v1/completions";

/// How it ends.
#[derive(Clone, Copy)]
enum End {
    Error,
    Panic,
}

/// An executor that runs until it is set on fire.
struct Broken(CpuExecutor, Arc<AtomicBool>, End);

#[derive(Debug, thiserror::Error)]
#[error("the device is on fire")]
struct OnFire;

impl Executor for Broken {
    type Error = OnFire;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        self.0.submit(submission)
    }

    fn forget(&mut self, request: RequestId) {
        self.0.forget(request);
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), OnFire> {
        self.0.launch(batch, clock).map_err(|_| OnFire)
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, OnFire> {
        std::thread::sleep(Duration::from_millis(2));
        match (self.1.load(Ordering::Relaxed), self.2) {
            (true, End::Error) => Err(OnFire),
            (true, End::Panic) => panic!("the device is on fire"),
            (false, _) => self.0.wait(clock).map_err(|_| OnFire),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_engine_fails_streams_end_with_an_error_and_so_does_the_server() {
    for end in [End::Error, End::Panic] {
        let fire = Arc::new(AtomicBool::new(false));
        let burns = fire.clone();
        let server = Setup::default().start_with(move |executor| Broken(executor, burns, end));
        let body = |stream: bool| json!({ "prompt": "a", "max_tokens": 400, "ignore_eos": true, "stream": stream });
        let mut streamed = begin(server.address, &post(COMPLETIONS, &body(true)), "data: ").await;
        let whole = tokio::spawn(ask(server.address, COMPLETIONS, body(false)));
        server.until("both requests", |server| server.client.metrics().queues().0 == 2).await;
        fire.store(true, Ordering::Relaxed);
        let mut rest = String::new();
        streamed.read_to_string(&mut rest).await.unwrap();
        let whole = whole.await.unwrap();
        let last = rest.lines().rfind(|line| line.starts_with("data: ")).unwrap();
        let error: serde_json::Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains("the device is on fire"), "{last}");
        assert_eq!(error["error"]["type"], "server_error");
        assert_eq!(whole.status, 500, "{whole:?}");
        assert!(whole.json()["error"]["message"].as_str().unwrap().contains("on fire"));
        let result = server.ended().await;
        assert!(result.unwrap_err().contains("the device is on fire"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_finishes_what_runs_and_takes_nothing_more() {
    let pace = Pace::of(Duration::from_millis(5));
    let server = Setup { pace, ..Setup::default() }.start();
    let address = server.address;
    let body = json!({ "prompt": "a", "max_tokens": 30, "ignore_eos": true, "stream": true });
    let mut runs = begin(address, &post(COMPLETIONS, &body), "data: ").await;
    // Half a request is there when the server is told to stop.
    let late = request("POST", COMPLETIONS, "Content-Type: application/json\r\n", "{\"prompt\": \"a\"}");
    let (half, rest) = late.split_at(late.len() - 4);
    let mut comes = tokio::net::TcpStream::connect(address).await.unwrap();
    comes.write_all(half.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stopped = tokio::spawn(server.stop());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
    comes.write_all(rest.as_bytes()).await.unwrap();
    let reply = read(&mut comes).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    let mut text = String::new();
    runs.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("data: [DONE]"), "{text}");
    stopped.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_requests_stops_at_once() {
    let server = Setup::default().start();
    assert_eq!(send(server.address, &request("GET", "/health", "", "")).await.status, 200);
    server.stop().await.unwrap();
}
