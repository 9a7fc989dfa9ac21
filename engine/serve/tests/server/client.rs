//! A small HTTP client that can also do what no client should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer takes, shorter than a test may hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// What it answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(self) -> TcpStream {
        let stream = TcpStream::connect(self.0).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) fn raw(self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        Answer::read(stream)
    }

    pub(crate) fn get(self, path: &str) -> Answer {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub(crate) fn post(self, path: &str, body: &Value) -> Answer {
        self.raw(&request(path, body.to_string().as_bytes()))
    }

    /// A completion that must succeed.
    pub(crate) fn complete(self, body: &Value) -> Value {
        let answer = self.post("/v1/completions", body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        answer.json()
    }

    /// A figure of `/metrics`.
    pub(crate) fn metric(self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("loopbatch_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }

    /// Requests that ended so.
    pub(crate) fn over(self, outcome: &str) -> f64 {
        self.metric(&format!("requests_total{{outcome=\"{outcome}\"}}"))
    }
}

/// A whole POST of JSON.
pub(crate) fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Waits for something that happens on another thread.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never came that {what}");
}

impl Answer {
    /// Reads until the server closes.
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Self::of(&bytes)
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("this is no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunked(&answer.body);
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// A stream's events but the last, which must say that it is over.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("text/event-stream; charset=utf-8"));
        let text = self.text();
        let mut events: Vec<&str> =
            text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{text}");
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// The message and the field of an error in OpenAI's form.
    pub(crate) fn error(&self) -> (String, Option<String>) {
        let error = &self.json()["error"];
        assert!(error["type"].is_string(), "{error}");
        let fields = error.as_object().unwrap();
        assert!(["message", "type", "param", "code"].iter().all(|&field| fields.contains_key(field)), "{error}");
        (error["message"].as_str().unwrap().to_owned(), error["param"].as_str().map(str::to_owned))
    }
}

/// The bytes of a chunked body; they end where the connection broke off, if it did.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        let chunk = &body[end + 2..];
        if size == 0 || chunk.len() < size + 2 {
            break;
        }
        bytes.extend_from_slice(&chunk[..size]);
        body = &chunk[size + 2..];
    }
    bytes
}
