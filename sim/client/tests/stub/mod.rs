//! A server with known delays, in sixty lines: no model, no queue, a thread a connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Manner {
    /// From a request to its first token.
    pub(crate) first: Duration,
    /// From one token to the next.
    pub(crate) gap: Duration,
    /// Prompts may be token ids.
    pub(crate) takes_ids: bool,
    /// Fields that OpenAI's API does not have are a 400.
    pub(crate) strict: bool,
    /// `usage` is told.
    pub(crate) counts: bool,
    /// Every so many-th request of a connection breaks off behind its first token; never if 0.
    pub(crate) breaks_every: u32,
}

/// Listens at a port of its own until the process ends.
pub(crate) fn start(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || drop(serve(stream.expect("a connection"), manner)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    for request in 1.. {
        let (mut line, mut head, mut length) = (String::new(), String::new(), 0);
        reader.read_line(&mut head)?;
        while {
            line.clear();
            reader.read_line(&mut line)? > 2
        } {
            let (name, value) = line.split_once(':').unwrap_or_default();
            length =
                if name.eq_ignore_ascii_case("content-length") { value.trim().parse().unwrap_or(0) } else { length };
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if head.is_empty() {
            return Ok(());
        } else if head.starts_with("GET /v1/models") {
            whole(&mut stream, "200 OK", &json!({ "data": [{ "id": "stub" }] }))?;
        } else if body["prompt"].is_array() && !manner.takes_ids {
            whole(&mut stream, "400 Bad Request", &json!({ "error": { "message": "prompt: not a string" } }))?;
        } else if manner.strict && body.get("ignore_eos").is_some() {
            whole(&mut stream, "400 Bad Request", &json!({ "error": { "message": "ignore_eos: unknown" } }))?;
        } else if manner.breaks_every > 0 && request % manner.breaks_every == 0 {
            return answer(&mut stream, &body, manner, 1);
        } else {
            answer(&mut stream, &body, manner, u64::MAX)?;
        }
    }
    Ok(())
}

fn whole(stream: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[expect(clippy::disallowed_methods, reason = "its delays are the machine's")]
fn answer(stream: &mut TcpStream, body: &Value, manner: Manner, most: u64) -> std::io::Result<()> {
    let (begin, tokens) = (Instant::now(), body["max_tokens"].as_u64().unwrap_or(1));
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let chunk = |stream: &mut TcpStream, data: &str| write!(stream, "{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
    for token in 0..tokens.min(most) {
        let at = begin + manner.first + manner.gap * token as u32;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let end = if token + 1 == tokens { "\"length\"" } else { "null" };
        chunk(
            stream,
            &format!(r#"{{"choices":[{{"index":0,"text":"a","delta":{{"content":"a"}},"finish_reason":{end}}}]}}"#),
        )?;
    }
    if most < tokens {
        return Ok(());
    }
    if manner.counts && body["stream_options"]["include_usage"] == json!(true) {
        let prompt = body["prompt"].as_array().map_or(7, Vec::len);
        chunk(
            stream,
            &json!({ "choices": [], "usage": { "prompt_tokens": prompt, "completion_tokens": tokens } }).to_string(),
        )?;
    }
    chunk(stream, "[DONE]")?;
    stream.write_all(b"0\r\n\r\n")
}
