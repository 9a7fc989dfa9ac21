//! What clients that do everything right are answered.

use engine::scheduler::Overlap;
use serde_json::{Value, json};
use serve::text::Tokenizer;

use crate::client::{Reply, ask, get};
use crate::server::{Setup, VOCAB, fixtures};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn tokenizer() -> Tokenizer {
    Tokenizer::open(&fixtures(), VOCAB).unwrap()
}

/// The texts of an answer's choices, of a stream or not.
fn texts(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{reply:?}");
    let choices = |event: &Value| event["choices"].as_array().unwrap().clone();
    let whole = reply.header("content-type") == Some("application/json");
    let all: Vec<Value> =
        if whole { choices(&reply.json()) } else { reply.events().iter().flat_map(choices).collect() };
    let mut texts = Vec::new();
    for choice in all {
        let index = choice["index"].as_u64().unwrap() as usize;
        texts.resize(texts.len().max(index + 1), String::new());
        let parts = [&choice["text"], &choice["message"]["content"], &choice["delta"]["content"]];
        texts[index] += parts.iter().find_map(|part| part.as_str()).unwrap();
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_in_any_form_gets_the_same_answer_whole_or_streamed() {
    let server = Setup::default().start();
    let text = "hello world";
    let ids = tokenizer().encode(text, true).unwrap();
    let mut answers = Vec::new();
    for stream in [false, true] {
        for prompt in [json!(text), json!([text]), json!(ids), json!([ids])] {
            let body = json!({ "model": "micro", "prompt": prompt, "max_tokens": 40, "temperature": 0,
                               "ignore_eos": true, "stream": stream, "unknown": { "field": 1 } });
            answers.push(texts(&ask(server.address, COMPLETIONS, body).await));
        }
    }
    assert!(answers.iter().all(|answer| answer == &answers[0] && !answer[0].is_empty()), "{answers:?}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_one_event_a_token_and_holds_back_broken_characters() {
    let server = Setup::default().start();
    let body = |stream| {
        json!({ "prompt": "a", "max_tokens": 200, "seed": 4, "temperature": 2.0, "ignore_eos": true, "stream": stream,
                "logprobs": 0, "stream_options": { "include_usage": true } })
    };
    let reply = ask(server.address, COMPLETIONS, body(true)).await;
    let mut events = reply.events();
    let usage = events.pop().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(200)));
    assert_eq!(events.len(), 200, "one event a token");
    let pieces: Vec<&str> = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert!(pieces.iter().any(|piece| piece.is_empty()), "some token was only the beginning of a character");
    let finishes: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert!(finishes[..199].iter().all(|finish| finish.is_null()) && finishes[199] == "length");
    let whole = ask(server.address, COMPLETIONS, body(false)).await;
    assert_eq!(texts(&whole)[0], pieces.concat(), "the same seed, the same text");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_begins_with_its_role_and_fills_the_context_unless_told_otherwise() {
    let server = Setup::default().start();
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }]);
    let body = json!({ "messages": messages, "stream": true, "temperature": 0, "ignore_eos": true });
    let reply = ask(server.address, CHAT, body.clone()).await;
    let events = reply.events();
    assert_eq!(events[0]["object"], "chat.completion.chunk");
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    assert!(events.iter().all(|event| event.get("usage").is_none()), "nobody asked for usage");
    let tokenized = ask(server.address, "/tokenize", json!({ "messages": messages })).await.json();
    let prompt = tokenized["count"].as_u64().unwrap() as usize;
    assert_eq!(events.len() - 1, 512 - prompt, "a token each for the rest of the context");
    let mut short = body;
    short["max_completion_tokens"] = json!(3);
    short["stream"] = json!(false);
    let reply = ask(server.address, CHAT, short).await.json();
    assert_eq!(reply["object"], "chat.completion");
    assert_eq!(reply["usage"]["completion_tokens"], 3);
    assert_eq!(reply["usage"]["prompt_tokens"], prompt);
    assert_eq!(reply["choices"][0]["message"]["role"], "assistant");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_tells_the_depth_of_every_token_and_rules_change_it() {
    let server = Setup::default().start();
    let depths = async |extra: Value| -> Vec<u64> {
        let mut body = json!({ "prompt": "a", "max_tokens": 32, "temperature": 0, "ignore_eos": true });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let usage = ask(server.address, COMPLETIONS, body).await.json()["usage"].clone();
        let depths: Vec<u64> = serde_json::from_value(usage["exit_depths"].clone()).unwrap();
        assert_eq!(depths.len(), 32);
        let mean = depths.iter().sum::<u64>() as f64 / 32.0;
        assert!((usage["mean_exit_depth"].as_f64().unwrap() - mean).abs() < 1e-9);
        depths
    };
    let early = depths(json!({ "exit": { "threshold": 0.01 } })).await;
    assert!(early[0] == 4 && early[1..].iter().all(|&depth| depth == 1), "a prompt runs all loops: {early:?}");
    let late = depths(json!({ "exit": { "threshold": 0.01, "min_depth": 3 } })).await;
    assert!(late[1..].iter().all(|&depth| depth == 3), "{late:?}");
    assert!(depths(json!({ "full_depth": true })).await.iter().all(|&depth| depth == 4));
    let own = depths(json!({})).await;
    assert_eq!(own, depths(json!({ "exit": { "threshold": 0.6 } })).await, "the server's own threshold");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn under_lookahead_no_rule_lets_a_token_leave_before_the_scheduler_can_know() {
    let server = Setup { overlap: Overlap::Lookahead, ..Setup::default() }.start();
    let body = |min_depth: u8| json!({ "prompt": "a", "max_tokens": 20, "ignore_eos": true, "exit": { "threshold": 0.01, "min_depth": min_depth } });
    for (min_depth, leaves) in [(1, 2), (2, 3), (4, 4)] {
        let depths = ask(server.address, COMPLETIONS, body(min_depth)).await.json()["usage"]["exit_depths"].clone();
        assert!(depths.as_array().unwrap()[1..].iter().all(|depth| depth == leaves), "{min_depth}: {depths}");
    }
    let reply = ask(server.address, COMPLETIONS, body(0)).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("between 1 and r_max = 4"), "{reply:?}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn echoed_prompts_have_the_log_probabilities_that_an_evaluation_reads() {
    let server = Setup::default().start();
    let prompts = [vec![5, 9, 200, 311, 17], vec![40, 41, 42]];
    let body =
        json!({ "prompt": prompts, "max_tokens": 1, "logprobs": 1, "echo": true, "temperature": 0, "seed": 1234 });
    let reply = ask(server.address, COMPLETIONS, body).await.json();
    for (index, prompt) in prompts.iter().enumerate() {
        let choice = &reply["choices"][index];
        assert_eq!(choice["index"], index);
        let logprobs = &choice["logprobs"];
        let tokens = logprobs["token_logprobs"].as_array().unwrap();
        let top = logprobs["top_logprobs"].as_array().unwrap();
        assert_eq!((tokens.len(), top.len()), (prompt.len() + 1, prompt.len() + 1));
        assert!(tokens[0].is_null() && top[0].is_null(), "nothing predicts the first token");
        assert!(choice["text"].as_str().unwrap().starts_with(&tokenizer().decode(prompt, false).unwrap()));
        for (token, top) in tokens.iter().zip(top).skip(1) {
            let most = top.as_object().unwrap().values().map(|value| value.as_f64().unwrap()).fold(f64::MIN, f64::max);
            assert!(token.as_f64().unwrap() <= most && most <= 0.0);
        }
        // The last token was chosen greedily, so it is the most probable one, by the same number.
        let last = top.last().unwrap().as_object().unwrap();
        assert!(last.values().any(|value| value == tokens.last().unwrap()));
    }
    // What a token's probability is does not depend on whether the model or the client says it.
    let said = |reply: &Value, at: usize| reply["choices"][0]["logprobs"]["token_logprobs"][at].as_f64().unwrap();
    let texts: Vec<String> = (0..VOCAB as u32).map(|id| tokenizer().token_text(id).unwrap()).collect();
    let mut compared = 0;
    for first in 10..80 {
        let body =
            json!({ "prompt": [first, 9, 200], "max_tokens": 1, "logprobs": 1, "temperature": 0, "ignore_eos": true });
        let generated = ask(server.address, COMPLETIONS, body).await.json();
        let token = generated["choices"][0]["logprobs"]["tokens"][0].as_str().unwrap();
        let same: Vec<usize> = (0..texts.len()).filter(|&id| texts[id] == token).collect();
        // Parts of characters all look alike.
        let [next] = same[..] else { continue };
        let body = json!({ "prompt": [first, 9, 200, next, 7], "max_tokens": 1, "logprobs": 1, "echo": true });
        let echoed = ask(server.address, COMPLETIONS, body).await.json();
        assert!((said(&generated, 0) - said(&echoed, 3)).abs() < 1e-3, "{generated}\n{echoed}");
        compared += 1;
    }
    assert!(compared > 3, "{compared}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_tells_as_many_of_the_most_probable_tokens_as_asked_for() {
    let server = Setup::default().start();
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 4, "logprobs": true,
                       "top_logprobs": 3, "temperature": 0, "ignore_eos": true });
    let reply = ask(server.address, CHAT, body).await.json();
    let content = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 4);
    for token in content {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!(top[0]["logprob"], token["logprob"], "greedy takes the most probable");
        assert_eq!(top[0]["bytes"], token["bytes"]);
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_ends_the_answer_before_it_and_frees_the_slot() {
    let server = Setup::default().start();
    let body = |stop: Value, stream: bool| json!({ "prompt": "hello", "max_tokens": 60, "temperature": 0, "ignore_eos": true, "stop": stop, "stream": stream });
    let whole = texts(&ask(server.address, COMPLETIONS, body(Value::Null, false)).await).remove(0);
    let middle: Vec<char> = whole.chars().collect();
    let stop: String = middle[middle.len() / 2..middle.len() / 2 + 3].iter().collect();
    let expected = whole.split(&stop).next().unwrap();
    for stream in [false, true] {
        for stop in [json!(stop), json!(["never said", stop])] {
            let reply = ask(server.address, COMPLETIONS, body(stop, stream)).await;
            assert_eq!(texts(&reply)[0], expected);
            let last = if stream { reply.events().pop().unwrap() } else { reply.json() };
            assert_eq!(last["choices"][0]["finish_reason"], "stop");
        }
    }
    server.idle().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_answers_come_in_order_and_repeat_with_their_seed() {
    let server = Setup::default().start();
    let body = |stream| {
        json!({ "prompt": ["a", "b"], "n": 3, "max_tokens": 12, "temperature": 1.5, "seed": 7, "ignore_eos": true,
                "stream": stream })
    };
    let reply = ask(server.address, COMPLETIONS, body(false)).await;
    let whole = texts(&reply);
    assert_eq!(whole.len(), 6);
    let mut different = whole.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 6, "answers to one prompt differ: {whole:?}");
    let usage = &reply.json()["usage"];
    assert_eq!((&usage["completion_tokens"], &usage["prompt_tokens"]), (&json!(72), &json!(2)));
    assert_eq!(texts(&ask(server.address, COMPLETIONS, body(true)).await), whole);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_spelled_and_described() {
    let server = Setup::default().start();
    let text = "naïve 東京";
    let tokenized = ask(server.address, "/tokenize", json!({ "prompt": text })).await.json();
    let ids = tokenizer().encode(text, true).unwrap();
    assert_eq!(tokenized, json!({ "count": ids.len(), "max_model_len": 512, "tokens": ids }));
    let back = ask(server.address, "/detokenize", json!({ "tokens": ids })).await.json();
    assert_eq!(back, json!({ "prompt": text }));
    let info = get(server.address, "/tokenizer_info").await.json();
    assert_eq!((&info["eos_token"], &info["bos_token"]), (&json!("<|im_end|>"), &json!("<|im_start|>")));
    assert!(info["chat_template"].as_str().unwrap().contains("im_start"));
    let models = get(server.address, "/v1/models").await.json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("micro")));
    assert_eq!(get(server.address, "/health").await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_was_asked_and_made() {
    let server = Setup::default().start();
    let body = json!({ "prompt": [1, 2, 3], "max_tokens": 5, "ignore_eos": true, "full_depth": true });
    assert_eq!(ask(server.address, COMPLETIONS, body).await.status, 200);
    server.idle().await;
    let reply = get(server.address, "/metrics").await;
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "loopbatch_requests_total{outcome=\"length\"} 1",
        "loopbatch_prompt_tokens_total 3",
        "loopbatch_output_tokens_total 5",
        "loopbatch_requests_running 0",
        "loopbatch_kv_blocks_used 0",
        "loopbatch_kv_blocks 2048",
        "loopbatch_time_to_first_token_seconds_count 1",
        "loopbatch_inter_token_latency_seconds_count 4",
        "loopbatch_exit_depth_bucket{le=\"4\"} 5",
        "loopbatch_exit_depth_bucket{le=\"3\"} 0",
        "loopbatch_batch_rows_count{stage=\"prefill\"} 1",
        "loopbatch_batch_rows_count{stage=\"core\"} 16",
    ] {
        assert!(reply.body.lines().any(|found| found == line), "{line} is not in\n{}", reply.body);
    }
    server.stop().await.unwrap();
}
