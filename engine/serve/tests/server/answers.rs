//! Answers, whole and streamed.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::golden::expected;
use crate::server::{SCENARIO, Server};

/// Changes fields of a body.
fn with(body: &Value, fields: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// The golden run number `index` as a completion, with its text.
fn golden(index: usize) -> (Value, String) {
    let run = expected()["text"]["greedy"]["runs"][index].clone();
    let body = json!({ "prompt": run["prompt_ids"], "max_tokens": 40, "temperature": 0, "full_depth": true });
    (body, run["text_without_special"].as_str().unwrap().to_owned())
}

fn texts(events: &[Value], at: &str) -> String {
    events.iter().filter_map(|event| event.pointer(at)).map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn a_stream_is_the_whole_answer_in_one_event_a_token() {
    let server = Server::start();
    let mut held_back = 0;
    for index in 0..9 {
        let (body, _) = golden(index);
        let whole = server.client.complete(&body);
        let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
        let mut events = server.client.post("/v1/completions", &with(&body, options)).events();
        let usage = events.pop().unwrap();
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"], whole["usage"]);
        assert_eq!(whole["usage"]["completion_tokens"], events.len());
        assert_eq!(texts(&events, "/choices/0/text"), whole["choices"][0]["text"].as_str().unwrap());
        held_back += events.iter().filter(|event| event["choices"][0]["text"] == "").count();
        let reasons: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
        let (last, before) = reasons.split_last().unwrap();
        assert_eq!(**last, whole["choices"][0]["finish_reason"]);
        assert!(before.iter().all(|reason| reason.is_null()));
        assert!(events.iter().all(|event| event.get("usage").is_none() && event["object"] == "text_completion"));
    }
    assert!(held_back > 9, "characters of several tokens are held back, not only end tokens: {held_back}");
}

#[test]
fn a_chat_begins_with_who_speaks_and_counts_as_it_goes() {
    let server = Server::start();
    let body = json!({
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "What is the time?" }] }],
        "max_completion_tokens": 6, "temperature": 0, "stream": true, "ignore_eos": true,
        "stream_options": { "continuous_usage_stats": true },
    });
    let events = server.client.post("/v1/chat/completions", &body).events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    assert_eq!(events.len(), 7);
    for (index, event) in events[1..].iter().enumerate() {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!(event["usage"]["completion_tokens"], index + 1);
        assert!(event["choices"][0]["delta"]["content"].is_string());
    }
    assert_eq!(events[6]["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_chat_without_a_limit_fills_the_context_and_a_completion_has_16_tokens() {
    let server = Server::start();
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }], "temperature": 0, "ignore_eos": true });
    let usage = server.client.post("/v1/chat/completions", &chat).json()["usage"].clone();
    assert_eq!(usage["total_tokens"], 256);
    let usage = server.client.complete(&json!({ "prompt": "Hi", "ignore_eos": true }))["usage"].clone();
    assert_eq!(usage["completion_tokens"], 16);
}

#[test]
fn several_answers_come_in_order_and_the_same_seed_gives_the_same() {
    let server = Server::start();
    let ask = |prompt: Value, n: usize| {
        let body =
            json!({ "prompt": prompt, "n": n, "seed": 5, "temperature": 1, "max_tokens": 12, "ignore_eos": true });
        let answer = server.client.complete(&body);
        let choices = answer["choices"].as_array().unwrap();
        assert!(choices.iter().enumerate().all(|(index, choice)| choice["index"] == index));
        assert_eq!(answer["usage"]["exit_depths"].as_array().unwrap().len(), 12 * choices.len());
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (one, two) = (ask(json!("one"), 3), ask(json!("two"), 3));
    assert_eq!(ask(json!(["one", "two"]), 3), [one.clone(), two].concat());
    assert_eq!(ask(json!("one"), 1), one[..1]);
    assert!(one[0] != one[1] && one[1] != one[2] && one[0] != one[2], "{one:?}");
}

#[test]
fn a_stop_string_ends_the_answer_before_it_wherever_tokens_part() {
    let server = Server::start();
    let (body, text) = golden(0);
    let characters: Vec<char> = text.chars().collect();
    for length in 1..=4 {
        for at in 0..=characters.len() - length {
            let stop: String = characters[at..at + length].iter().collect();
            let cut = &text[..text.find(&stop).unwrap()];
            let body = with(&body, json!({ "stop": ["not there", stop] }));
            let choice = server.client.complete(&body)["choices"][0].clone();
            assert_eq!((choice["text"].as_str().unwrap(), choice["finish_reason"].as_str().unwrap()), (cut, "stop"));
            let events = server.client.post("/v1/completions", &with(&body, json!({ "stream": true }))).events();
            assert_eq!(texts(&events, "/choices/0/text"), cut);
        }
    }
    assert_eq!(server.client.over("length"), 0.0);
}

#[test]
fn end_tokens_end_nothing_if_they_are_ignored_or_come_too_early() {
    let server = Server::start();
    let (body, _) = golden(0);
    let ask = |fields: Value| {
        let answer = server.client.complete(&with(&body, fields));
        (answer["usage"]["completion_tokens"].as_u64().unwrap(), answer["choices"][0]["finish_reason"].clone())
    };
    assert_eq!(ask(json!({})), (12, json!("stop")));
    assert_eq!(ask(json!({ "ignore_eos": true })), (40, json!("length")));
    let (tokens, _) = ask(json!({ "min_tokens": 15 }));
    assert!(tokens >= 15, "{tokens}");
}

#[test]
fn an_exit_rule_is_followed_or_refused() {
    let server = Server::start();
    let body = json!({ "prompt": "Hello", "max_tokens": 8, "temperature": 0, "ignore_eos": true });
    let depths = |fields: Value| server.client.complete(&with(&body, fields))["usage"]["exit_depths"].clone();
    // The first token comes out of the prompt, at full depth.
    assert_eq!(depths(json!({})), json!([4, 4, 4, 4, 4, 4, 4, 4]), "the folder's threshold is 1");
    assert_eq!(depths(json!({ "exit": { "threshold": 0.0 } })), json!([4, 1, 1, 1, 1, 1, 1, 1]));
    assert_eq!(depths(json!({ "exit": { "threshold": 0.0, "min_depth": 3 } })), json!([4, 3, 3, 3, 3, 3, 3, 3]));
    assert_eq!(depths(json!({ "full_depth": true })), json!([4, 4, 4, 4, 4, 4, 4, 4]));

    let refused = |server: &Server, fields: Value| {
        let answer = server.client.post("/v1/completions", &with(&body, fields));
        assert_eq!(answer.status, 400);
        answer.error().0
    };
    let ahead = "scheduler: { max_num_seqs: 8, max_context_tokens: 256, overlap: lookahead }\nkv: { blocks: 512 }";
    let error = refused(&Server::of(ahead), json!({ "exit": { "threshold": 0.0, "min_depth": 1 } }));
    assert!(error.contains("must be at least 2, before which this server's overlap has no exits, got 1"), "{error}");
    let deep = format!("{SCENARIO}\ncompare: [{{ mode: continuous_batching }}]");
    let error = refused(&Server::of(&deep), json!({ "exit": { "threshold": 0.5 } }));
    assert!(error.contains("every token at full depth"), "{error}");
}

#[test]
fn tokens_are_counted_without_a_tokenizer_of_ones_own() {
    let Server { client, .. } = &Server::start();
    let expected = expected();
    for string in expected["text"]["encode"]["strings"].as_array().unwrap() {
        let answer = client.post("/tokenize", &json!({ "prompt": string["text"] })).json();
        assert_eq!(answer["tokens"], string["ids"]);
        assert_eq!(answer["count"], string["ids"].as_array().unwrap().len());
        let answer = client.post("/detokenize", &json!({ "tokens": string["ids"] })).json();
        assert_eq!(answer["prompt"], string["decoded"]);
    }
    let info = client.get("/tokenizer_info").json();
    assert_eq!((&info["eos_token"], &info["bos_token"]), (&json!("<|im_end|>"), &json!("<|im_start|>")));
    let run = &expected["text"]["greedy"]["runs"][0];
    let messages = json!([{ "role": "user", "content": "What is the time?" }]);
    assert_eq!(client.post("/tokenize", &json!({ "messages": messages })).json()["tokens"], run["prompt_ids"]);
}

#[test]
fn metrics_count_what_was_asked_and_made() {
    let Server { client, .. } = &Server::start();
    let body = json!({ "prompt": [[5, 6, 7], [8]], "max_tokens": 6, "ignore_eos": true, "exit": { "threshold": 0.0 } });
    client.complete(&body);
    for (name, value) in [
        ("requests_total{outcome=\"length\"}", 2.0),
        ("prompt_tokens_total", 4.0),
        ("output_tokens_total", 12.0),
        ("time_to_first_token_seconds_count", 2.0),
        ("inter_token_latency_seconds_count", 10.0),
        // All but the first of each leave behind the first loop.
        ("exit_depth_bucket{le=\"1\"}", 10.0),
        ("exit_depth_sum", 2.0 * (4.0 + 5.0)),
        ("kv_blocks", 512.0),
    ] {
        assert_eq!(client.metric(name), value, "{name}");
    }
}

#[test]
fn a_prompt_that_was_asked_before_is_found_by_those_who_share_a_salt_and_answered_alike() {
    let scenario = format!(
        "{}\n  prefix_cache: {{ pages: prompt_and_output }}",
        SCENARIO.replace("kv: { blocks: 512 }", "kv:\n  blocks: 512")
    );
    let Server { client, .. } = &Server::of(&scenario);
    let prompt: Vec<u32> = (0..40).map(|index| 5 + index % 7).collect();
    let ask = |more: &[u32], salt: Option<&str>| {
        let prompt = [&prompt[..], more].concat();
        let body = json!({
            "prompt": prompt, "max_tokens": 12, "ignore_eos": true, "full_depth": true, "cache_salt": salt, "temperature": 0
        });
        client.post("/v1/completions", &body).json()["choices"][0]["text"].clone()
    };
    let found = || client.metric("prefix_hit_tokens_total");
    let first = ask(&[], None);
    assert_eq!((found(), client.metric("prefix_prompt_tokens_total")), (0.0, 40.0));
    assert_eq!((ask(&[], None), found()), (first.clone(), 32.0));
    assert_eq!((ask(&[], Some("a")), found()), (first.clone(), 32.0));
    assert_eq!((ask(&[], Some("a")), found()), (first, 64.0));
    ask(&[9], None);
    assert_eq!((found(), client.metric("prefix_evicted_pages_total")), (96.0, 0.0));
}

#[test]
fn the_model_is_listed_and_what_runs_is_finished_before_the_end() {
    let mut server = Server::start();
    let models = server.client.get("/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["max_model_len"]), (&json!("tiny"), &json!(256)));
    let body = json!({ "model": "tiny", "prompt": "on", "max_tokens": 200, "ignore_eos": true, "stream": true });
    let mut stream = server.client.connect();
    std::io::Write::write_all(&mut stream, &crate::client::request("/v1/completions", body.to_string().as_bytes()))
        .unwrap();
    std::io::Read::read_exact(&mut stream, &mut [0; 12]).unwrap();
    server.tell_to_stop();
    let client = server.client;
    let rest = std::thread::spawn(move || {
        let mut bytes = b"HTTP/1.1 200".to_vec();
        std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
        Answer::of(&bytes).events().len()
    });
    assert_eq!(server.ended(), Ok(()));
    assert_eq!(rest.join().unwrap(), 200);
    assert!(std::net::TcpStream::connect(client.0).is_err(), "nobody listens any more");
}
