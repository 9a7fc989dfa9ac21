//! What is refused, with which status, and in which words.

use serde_json::{Value, json};
use serve::http::{Guard, Limits};

use crate::client::{ask, get, post, request, send};
use crate::server::Setup;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn with(extra: Value) -> Value {
    let mut body = json!({ "model": "micro", "prompt": "a", "max_tokens": 2 });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_that_cannot_be_used_is_named() {
    let server = Setup::default().start();
    let long: Vec<u32> = vec![5; 600];
    for (path, body, status, param, says) in [
        (COMPLETIONS, with(json!({ "model": "gpt-9" })), 404, "model", "`gpt-9`"),
        (COMPLETIONS, with(json!({ "prompt": null })), 400, "prompt", "missing"),
        (COMPLETIONS, with(json!({ "prompt": [] })), 400, "prompt", "missing"),
        (COMPLETIONS, with(json!({ "prompt": [[]] })), 400, "prompt", "empty"),
        (COMPLETIONS, with(json!({ "prompt": [3, 400] })), 400, "prompt", "token 400"),
        (COMPLETIONS, with(json!({ "prompt": [3, 4_000_000_000_u32] })), 400, "prompt", "token 4000000000"),
        (COMPLETIONS, with(json!({ "prompt": [3, -1] })), 400, "prompt[1]", "-1"),
        (COMPLETIONS, with(json!({ "prompt": [3, 5_000_000_000_u64] })), 400, "prompt[1]", "5000000000"),
        (COMPLETIONS, with(json!({ "prompt": long })), 400, "prompt", "600 tokens"),
        (COMPLETIONS, with(json!({ "max_tokens": 512 })), 400, "max_tokens", "together 513"),
        (COMPLETIONS, with(json!({ "max_tokens": 0 })), 400, "max_tokens", "at least 1, got 0"),
        (COMPLETIONS, with(json!({ "max_tokens": -3 })), 400, "max_tokens", "-3"),
        (COMPLETIONS, with(json!({ "min_tokens": 3 })), 400, "min_tokens", "got 3"),
        (COMPLETIONS, with(json!({ "temperature": -0.5 })), 400, "temperature", "-0.5"),
        (COMPLETIONS, with(json!({ "temperature": 1e-42 })), 400, "temperature", "temperature"),
        (COMPLETIONS, with(json!({ "temperature": "hot" })), 400, "temperature", "hot"),
        (COMPLETIONS, with(json!({ "temperature": 1e300 })), 400, "", "number out of range"),
        (COMPLETIONS, with(json!({ "top_p": 0 })), 400, "top_p", "got 0"),
        (COMPLETIONS, with(json!({ "top_p": 1.5 })), 400, "top_p", "1.5"),
        (COMPLETIONS, with(json!({ "top_k": -2 })), 400, "top_k", "-2"),
        (COMPLETIONS, with(json!({ "n": 0 })), 400, "n", "at least 1"),
        (COMPLETIONS, with(json!({ "n": 1_000_000 })), 400, "n", "1000000 answers"),
        (COMPLETIONS, with(json!({ "best_of": 2 })), 400, "best_of", "got 2"),
        (COMPLETIONS, with(json!({ "repetition_penalty": 1.2 })), 400, "repetition_penalty", "1.2"),
        (COMPLETIONS, with(json!({ "presence_penalty": 0.5 })), 400, "presence_penalty", "0.5"),
        (COMPLETIONS, with(json!({ "logprobs": 21 })), 400, "logprobs", "at most 20"),
        (COMPLETIONS, with(json!({ "stop": vec!["x"; 17] })), 400, "stop", "16"),
        (COMPLETIONS, with(json!({ "stop": "x".repeat(2000) })), 400, "stop", "1024 bytes"),
        (COMPLETIONS, with(json!({ "exit": { "threshold": 0.5 }, "full_depth": true })), 400, "exit", "remove one"),
        (COMPLETIONS, with(json!({ "exit": { "threshold": 1e300 } })), 400, "", "number out of range"),
        (COMPLETIONS, with(json!({ "exit": { "min_depth": 9 } })), 400, "", "9"),
        (COMPLETIONS, with(json!({ "exit": { "min_depth": 900 } })), 400, "exit.min_depth", "900"),
        (CHAT, json!({ "messages": [] }), 400, "messages", "missing"),
        (CHAT, json!({ "messages": [{ "role": "user" }] }), 400, "messages[0]", "content"),
        (CHAT, json!({ "messages": [{ "role": "a b", "content": "" }] }), 400, "messages", "role"),
        (CHAT, json!({ "messages": [{ "role": "im_end", "content": "" }] }), 400, "messages", "special token"),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": "a" }], "top_logprobs": 2 }),
            400,
            "top_logprobs",
            "true",
        ),
        ("/tokenize", json!({}), 400, "prompt", "messages"),
        ("/detokenize", json!({}), 400, "", "tokens"),
    ] {
        let reply = ask(server.address, path, body.clone()).await;
        assert_eq!(reply.status, status, "{path} {body}: {reply:?}");
        let error = &reply.json()["error"];
        let found = error["param"].as_str().unwrap_or_default();
        assert_eq!(found, param, "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    assert_eq!(server.client.open(), 0);
    // What was refused has changed nothing.
    assert_eq!(ask(server.address, COMPLETIONS, with(json!({}))).await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_no_path_or_no_method_is_answered_in_the_same_form() {
    let server = Setup::default().start();
    let typed = "Content-Type: application/json\r\n";
    for (bytes, status, says) in [
        (request("POST", COMPLETIONS, typed, "{\"prompt\": "), 400, "not a request in JSON"),
        (request("POST", COMPLETIONS, typed, "[1]"), 400, "invalid"),
        (
            request("POST", COMPLETIONS, typed, "{\"prompt\": \"a\", \"temperature\": NaN}"),
            400,
            "not a request in JSON",
        ),
        (request("POST", COMPLETIONS, typed, "{\"prompt\": \"a\"} {}"), 400, "one JSON object"),
        (request("POST", COMPLETIONS, typed, "\u{0}\u{1}"), 400, "not a request in JSON"),
        (request("POST", COMPLETIONS, "", "{\"prompt\": \"a\"}"), 415, "application/json"),
        (request("POST", COMPLETIONS, "Content-Type: text/plain\r\n", "{\"prompt\": \"a\"}"), 415, "application/json"),
        (request("GET", COMPLETIONS, "", ""), 405, "does not take GET"),
        (request("POST", "/v1/embeddings", typed, "{}"), 404, "no POST /v1/embeddings"),
        (request("GET", "/", "", ""), 404, "no GET /"),
    ] {
        let reply = send(server.address, &bytes).await;
        assert_eq!(reply.status, status, "{bytes}: {reply:?}");
        let error = &reply.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(says), "{bytes}: {error}");
        assert!(reply.header("access-control-allow-origin").is_none(), "no other page may read this");
    }
    let charset =
        request("POST", COMPLETIONS, "Content-Type: Application/JSON; charset=utf-8\r\n", "{\"prompt\": \"a\"}");
    assert_eq!(send(server.address, &charset).await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_our_names_and_the_key_open_the_door() {
    let guard = Guard { hosts: vec!["models.example".into()], key: Some("secret".into()) };
    let server = Setup { guard, ..Setup::default() }.start();
    let ask = async |host: &str, path: &str, key: &str| {
        let authorization = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
        let bytes = request("GET", path, &authorization, "").replace("Host: localhost", &format!("Host: {host}"));
        send(server.address, &bytes).await
    };
    for (host, path, key, status) in [
        ("localhost", "/v1/models", "secret", 200),
        ("models.example:80", "/v1/models", "secret", 200),
        ("evil.example", "/v1/models", "secret", 421),
        ("evil.example", "/health", "", 421),
        ("localhost", "/health", "", 200),
        ("localhost", "/v1/models", "", 401),
        ("localhost", "/v1/models", "wrong!", 401),
        ("localhost", "/metrics", "", 401),
        ("localhost", "/nothing", "", 401),
    ] {
        let reply = ask(host, path, key).await;
        assert_eq!(reply.status, status, "{host} {path} {key}: {reply:?}");
    }
    assert_eq!(ask("localhost", "/v1/models", "").await.json()["error"]["code"], "invalid_api_key");
    let nameless = send(server.address, "GET /health HTTP/1.0\r\n\r\n").await;
    assert_eq!(nameless.status, 400, "{nameless:?}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_100_mb_is_refused_and_not_kept() {
    let server = Setup { limits: Limits { max_body_mib: 1, ..Limits::default() }, ..Setup::default() }.start();
    let prompt = "a".repeat(100 << 20);
    let reply = send(server.address, &post(COMPLETIONS, &json!({ "prompt": prompt }))).await;
    assert_eq!(reply.status, 413, "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("1 MiB"));
    assert_eq!(get(server.address, "/health").await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_end_are_refused() {
    let server = Setup { limits: Limits { max_header_kib: 8, ..Limits::default() }, ..Setup::default() }.start();
    let long = format!("X-Long: {}\r\n", "a".repeat(64 << 10));
    let reply = send(server.address, &request("GET", "/health", &long, "")).await;
    assert_eq!(reply.status, 431, "{reply:?}");
    server.stop().await.unwrap();
}
