//! A client that can do everything wrong: bytes over a connection.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a test waits for at most, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The events of a stream, but for the last, which must be `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut events: Vec<&str> = self.body.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{self:?}");
        events.iter().map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// The bytes of a request that asks for the connection to be closed behind it.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// The same with a body of JSON.
pub(crate) fn post(path: &str, body: &Value) -> String {
    request("POST", path, "Content-Type: application/json\r\n", &body.to_string())
}

/// Sends bytes and reads the whole answer.
pub(crate) async fn send(address: SocketAddr, bytes: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server may answer before it has read everything.
    let _ = stream.write_all(bytes.as_bytes()).await;
    read(&mut stream).await
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    send(address, &request("GET", path, "", "")).await
}

pub(crate) async fn ask(address: SocketAddr, path: &str, body: Value) -> Reply {
    send(address, &post(path, &body)).await
}

/// Reads to the end of the connection.
pub(crate) async fn read(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    if let Err(error) = read.expect("an answer comes in time") {
        assert!(!bytes.is_empty(), "no answer: {error}");
    }
    parse(&bytes)
}

/// An answer, whose body may be in chunks.
fn parse(bytes: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(&bytes[head.len() + 4..]) } else { rest.to_owned() };
    Reply { status, head: head.to_owned(), body }
}

/// What chunks hold; a chunk that broke off is left out.
fn unchunked(mut bytes: &[u8]) -> String {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let Some(chunk) = bytes.get(end + 2..end + 2 + length) else { break };
        body.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + length..).unwrap_or_default();
    }
    String::from_utf8(body).unwrap()
}

/// Sends bytes and reads until `part` has come; the connection stays open.
pub(crate) async fn begin(address: SocketAddr, bytes: &str, part: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    until(&mut stream, part).await;
    stream
}

/// Reads until `part` has come.
pub(crate) async fn until(stream: &mut TcpStream, part: &str) {
    let mut seen = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&seen).contains(part) {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0, "it ended before {part}");
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("it comes in time");
}
