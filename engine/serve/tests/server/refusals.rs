//! What cannot be done is refused in OpenAI's form, and harms nobody.

use serde_json::{Value, json};
use serve::http::{Guard, Limits};

use crate::client::request;
use crate::server::{SCENARIO, Server};

#[test]
fn a_wrong_body_is_refused_by_the_field_at_fault() {
    let server = Server::with(SCENARIO, Limits { max_choices: 4, ..Limits::default() }, Guard::default());
    let (completions, chat) = ("/v1/completions", "/v1/chat/completions");
    let many = vec!["x"; 17];
    let long = json!({ "prompt": vec![5; 250], "max_tokens": 7 }).to_string();
    let stops = json!({ "prompt": "a", "stop": many }).to_string();
    for (path, body, status, param, part) in [
        (completions, "{", 400, None, "not a request in JSON"),
        (completions, "", 400, None, "not a request in JSON"),
        (completions, "{\"prompt\": \"a\"} x", 400, None, "not one JSON object"),
        (completions, "[]", 400, Some("prompt"), "prompt is missing"),
        (completions, "7", 400, None, "not a request in JSON"),
        (completions, "{}", 400, Some("prompt"), "prompt is missing"),
        (completions, r#"{"prompt": []}"#, 400, Some("prompt"), "prompt is missing"),
        (completions, r#"{"prompt": [[]]}"#, 400, Some("prompt"), "is empty"),
        (completions, r#"{"prompt": ""}"#, 400, Some("prompt"), "is empty"),
        (completions, r#"{"prompt": {"a": 1}}"#, 400, Some("prompt"), "a string"),
        (completions, r#"{"prompt": [400]}"#, 400, Some("prompt"), "token 400, and the model's ids end at 399"),
        (completions, r#"{"prompt": [4294967295]}"#, 400, Some("prompt"), "token 4294967295"),
        (completions, r#"{"prompt": [-1]}"#, 400, Some("prompt[0]"), "whole number"),
        (completions, r#"{"prompt": "a", "model": "other"}"#, 404, Some("model"), "this server has `tiny`"),
        (completions, r#"{"prompt": "a", "max_tokens": 0}"#, 400, Some("max_tokens"), "at least 1, got 0"),
        (completions, r#"{"prompt": "a", "max_tokens": -1}"#, 400, Some("max_tokens"), "-1"),
        (completions, r#"{"prompt": "a", "max_tokens": 4294967295}"#, 400, Some("max_tokens"), "context holds 256"),
        (completions, &long, 400, Some("max_tokens"), "250 tokens and 7 are to be made, together 257"),
        (completions, r#"{"prompt": "a", "min_tokens": 17}"#, 400, Some("min_tokens"), "at most the 16 tokens"),
        (completions, r#"{"prompt": "a", "temperature": NaN}"#, 400, None, "not a request in JSON"),
        (completions, r#"{"prompt": "a", "temperature": 1e400}"#, 400, None, "out of range"),
        (completions, r#"{"prompt": "a", "temperature": 1e39}"#, 400, None, "out of range"),
        (completions, r#"{"prompt": "a", "temperature": 1e-39}"#, 400, Some("temperature"), "temperature"),
        (completions, r#"{"prompt": "a", "temperature": -1}"#, 400, Some("temperature"), "-1"),
        (completions, r#"{"prompt": "a", "temperature": "hot"}"#, 400, Some("temperature"), "hot"),
        (completions, r#"{"prompt": "a", "top_p": 0}"#, 400, Some("top_p"), "top_p"),
        (completions, r#"{"prompt": "a", "top_p": 1.5}"#, 400, Some("top_p"), "1.5"),
        (completions, r#"{"prompt": "a", "top_k": -2}"#, 400, Some("top_k"), "-2"),
        (completions, r#"{"prompt": "a", "n": 0}"#, 400, Some("n"), "at least 1"),
        (completions, r#"{"prompt": "a", "n": 5}"#, 400, Some("n"), "at most 4"),
        (completions, r#"{"prompt": ["a", "b"], "n": 18446744073709551615}"#, 400, Some("prompt"), "at most 4"),
        (completions, r#"{"prompt": ["a", "b", "c", "d", "e"]}"#, 400, Some("prompt"), "5 prompts"),
        (completions, r#"{"prompt": "a", "best_of": 2}"#, 400, Some("best_of"), "can only be n"),
        (completions, r#"{"prompt": "a", "repetition_penalty": 1.1}"#, 400, Some("repetition_penalty"), "only be 1"),
        (completions, &stops, 400, Some("stop"), "16 strings, got 17"),
        (completions, r#"{"prompt": "a", "logprobs": 21}"#, 400, Some("logprobs"), "at most 20"),
        (
            completions,
            r#"{"prompt": "a", "exit": {"threshold": 0.5}, "full_depth": true}"#,
            400,
            Some("exit"),
            "no exits",
        ),
        (completions, r#"{"prompt": "a", "exit": {"min_depth": 0}}"#, 400, Some("exit"), "at least 1"),
        (completions, r#"{"prompt": "a", "exit": {"min_depth": 5}}"#, 400, Some("exit"), "between 1 and r_max = 4"),
        (completions, r#"{"prompt": "a", "exit": {"threshold": 1e39}}"#, 400, None, "out of range"),
        (chat, "{}", 400, Some("messages"), "messages is missing"),
        (chat, r#"{"messages": []}"#, 400, Some("messages"), "messages is missing"),
        (chat, r#"{"messages": [{"role": "user"}]}"#, 400, Some("messages[0]"), "content"),
        (chat, r#"{"messages": [{"role": "a b", "content": ""}]}"#, 400, Some("messages"), "got `a b`"),
        (chat, r#"{"messages": [{"role": "", "content": ""}]}"#, 400, Some("messages"), "a role is"),
        (chat, r#"{"messages": [{"role": "im_end", "content": ""}]}"#, 400, Some("messages"), "special token"),
        (chat, r#"{"messages": [{"role": "user<|im_end|>", "content": ""}]}"#, 400, Some("messages"), "a role is"),
        (
            chat,
            r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#,
            400,
            Some("messages[0].content"),
            "`image_url`",
        ),
        (
            chat,
            r#"{"messages": [{"role": "user", "content": "a"}], "logprobs": 3}"#,
            400,
            Some("logprobs"),
            "top_logprobs",
        ),
        (
            chat,
            r#"{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 3}"#,
            400,
            Some("top_logprobs"),
            "needs",
        ),
        ("/tokenize", "{}", 400, Some("prompt"), "either"),
        ("/detokenize", r#"{"tokens": ["a"]}"#, 400, Some("tokens[0]"), "invalid type"),
        ("/v1/embeddings", "{}", 404, None, "there is no POST /v1/embeddings here"),
        ("/health", "{}", 405, None, "/health does not take POST"),
    ] {
        let answer = server.client.raw(&request(path, body.as_bytes()));
        let (message, field) = answer.error();
        assert_eq!((answer.status, field.as_deref()), (status, param), "{path} {body}: {message}");
        assert!(message.contains(part), "{path} {body}: {message}");
    }
    assert_eq!(server.client.get("/v1/nothing").status, 404);
    // The longest prompt that fits is served.
    let body: Value = json!({ "prompt": vec![5; 250], "max_tokens": 6, "ignore_eos": true });
    assert_eq!(server.client.complete(&body)["usage"]["total_tokens"], 256);
    assert_eq!(server.stop(), Ok(()));
}

#[test]
fn only_who_may_ask_is_answered() {
    let guard = Guard { hosts: vec!["models.example".into()], key: Some("secret".into()) };
    let server = Server::with(SCENARIO, Limits::default(), guard);
    let key = "Authorization: Bearer secret\r\n";
    let json = "Content-Type: application/json\r\n";
    let completions = "POST /v1/completions";
    for (line, headers, status) in [
        ("GET /v1/models", format!("Host: localhost\r\n{key}"), 200),
        ("GET /v1/models", format!("Host: models.example:443\r\n{key}"), 200),
        ("GET /v1/models", format!("Host: evil.example\r\n{key}"), 421),
        ("GET /health", "Host: evil.example\r\n".into(), 421),
        ("GET /v1/models", key.into(), 400),
        ("GET /health", "Host: localhost\r\n".into(), 200),
        ("GET /v1/models", "Host: localhost\r\n".into(), 401),
        ("GET /metrics", "Host: localhost\r\n".into(), 401),
        ("GET /nothing", "Host: localhost\r\n".into(), 401),
        ("GET /v1/models", "Host: localhost\r\nAuthorization: Bearer secre\r\n".into(), 401),
        (completions, format!("Host: localhost\r\n{key}{json}"), 200),
        (completions, format!("Host: localhost\r\n{key}Content-Type: application/json; charset=utf-8\r\n"), 200),
        (completions, format!("Host: localhost\r\n{key}Content-Type: text/plain\r\n"), 415),
        (completions, format!("Host: localhost\r\n{key}"), 415),
        (completions, format!("Host: localhost\r\n{json}"), 401),
        ("OPTIONS /v1/completions", format!("Host: localhost\r\nOrigin: http://evil.example\r\n{key}"), 405),
    ] {
        let body = if line == completions { r#"{"prompt": "a"}"# } else { "" };
        let head = format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        let answer = server.client.raw(&[head.as_bytes(), body.as_bytes()].concat());
        assert_eq!(answer.status, status, "{head}{}", answer.text());
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "CORS is off");
        if status != 200 {
            answer.error();
        }
    }
}
