//! Log-probabilities, as evaluations read them.

use serde_json::{Value, json};

use crate::golden::expected;
use crate::server::Server;

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

/// The largest value of a map of tokens.
fn largest(top: &Value) -> f64 {
    top.as_object().unwrap().values().map(|value| value.as_f64().unwrap()).fold(f64::MIN, f64::max)
}

#[test]
fn an_echoed_prompt_has_a_score_for_every_token_but_the_first() {
    let server = Server::start();
    let expected = expected();
    // With a cap of 40 tokens a prompt is read in several chunks, and with the others'.
    let prompts: Vec<&Value> = list(&expected["prompts"]).iter().collect();
    let body =
        json!({ "prompt": prompts, "max_tokens": 1, "logprobs": 1, "echo": true, "temperature": 0, "seed": 1234 });
    let answer = server.client.complete(&body);
    for (prompt, choice) in prompts.iter().zip(list(&answer["choices"])) {
        let logprobs = &choice["logprobs"];
        let tokens = list(prompt).len() + 1;
        for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            assert_eq!(list(&logprobs[field]).len(), tokens, "{field}");
        }
        assert!(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
        for index in 1..tokens {
            let own = logprobs["token_logprobs"][index].as_f64().unwrap();
            let top = largest(&logprobs["top_logprobs"][index]);
            assert!(own < 0.0 && own <= top, "{own} {top}");
        }
        // What the model took is the most probable, to the last bit.
        assert_eq!(
            logprobs["token_logprobs"][tokens - 1].as_f64().unwrap(),
            largest(&logprobs["top_logprobs"][tokens - 1])
        );
        let decoded = server.client.post("/detokenize", &json!({ "tokens": prompt })).json();
        assert!(choice["text"].as_str().unwrap().starts_with(decoded["prompt"].as_str().unwrap()));
    }
}

#[test]
fn what_was_made_has_the_same_scores_when_it_is_read() {
    let server = Server::start();
    let run = &expected()["text"]["greedy"]["runs"][1];
    let mut prompt = list(&run["prompt_ids"]).clone();
    let body = json!({ "prompt": prompt, "max_tokens": 20, "logprobs": 2, "temperature": 0, "full_depth": true });
    let made = server.client.complete(&body)["choices"][0]["logprobs"].clone();
    assert!(
        list(&made["top_logprobs"])
            .iter()
            .zip(list(&made["token_logprobs"]))
            .all(|(top, own)| largest(top) == own.as_f64().unwrap())
    );
    let before = prompt.len();
    prompt.extend(list(&run["tokens"])[..20].iter().cloned());
    let body = json!({
        "prompt": prompt, "max_tokens": 1, "logprobs": 2, "temperature": 0, "full_depth": true, "echo": true,
    });
    let read = server.client.complete(&body)["choices"][0]["logprobs"].clone();
    assert_eq!(list(&read["tokens"])[before..before + 20], list(&made["tokens"])[..]);
    for (read, made) in list(&read["token_logprobs"])[before..].iter().zip(list(&made["token_logprobs"])) {
        let (read, made) = (read.as_f64().unwrap(), made.as_f64().unwrap());
        assert!((read - made).abs() < 1e-4, "{read} {made}");
    }
}

#[test]
fn a_chat_tells_each_token_with_its_bytes_and_the_likeliest_ones() {
    let server = Server::start();
    let body = json!({
        "messages": [{ "role": "user", "content": "What is the time?" }], "max_tokens": 10, "temperature": 0,
        "logprobs": true, "top_logprobs": 3, "full_depth": true,
    });
    let answer = server.client.post("/v1/chat/completions", &body).json();
    let content = list(&answer["choices"][0]["logprobs"]["content"]).clone();
    assert_eq!(content.len(), 10);
    let mut bytes = Vec::new();
    for token in &content {
        let top: Vec<f64> = list(&token["top_logprobs"]).iter().map(|top| top["logprob"].as_f64().unwrap()).collect();
        assert!(top.len() == 3 && top.is_sorted_by(|a, b| a >= b), "{top:?}");
        assert_eq!(token["logprob"].as_f64().unwrap(), top[0]);
        bytes.extend(list(&token["bytes"]).iter().map(|byte| byte.as_u64().unwrap() as u8));
    }
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), text);

    // A stream tells the same, token by token.
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = server.client.post("/v1/chat/completions", &streamed).events();
    let told: Vec<Value> =
        events.iter().filter_map(|event| event.pointer("/choices/0/logprobs/content/0")).cloned().collect();
    assert_eq!(told, content);
}
