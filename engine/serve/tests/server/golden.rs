//! What the model's own public code computed for the folder that is served (`engine/tests/hf`), and the same over HTTP.
//!
//! The golden numbers are computed in f32 throughout. The engine rounds what it stores to bf16, so where the two most
//! probable tokens are almost alike, or a gate is close to its threshold, it may choose otherwise. There the server is
//! compared with the engine itself.

use engine::submission::{Ends, ExitRule, Sampling};
use serde_json::{Value, json};
use serve::call::{Asked, Client};
use serve::router::What;

use crate::server::{Server, folder};

/// Logits that are no closer than this are never swapped by what is rounded; found by trying.
const CLOSE: f64 = 0.001;

pub(crate) fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

/// What the engine itself makes of a prompt, end tokens ignored: ids and depths.
fn made(engine: &Client, prompt: &Value, max_tokens: u32, exit: ExitRule) -> (Vec<u32>, Vec<u8>) {
    let asked = Asked {
        prompt: list(prompt).iter().map(|id| id.as_u64().unwrap() as u32).collect(),
        max_tokens,
        sampling: Sampling::GREEDY,
        exit: Some(exit),
        ends: Some(Ends { tokens: [].into(), min_tokens: 0 }),
        logprobs: None,
        cache_salt: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut call = engine.call(vec![asked]).unwrap();
        let mut made = (Vec::new(), Vec::new());
        while let Some(event) = call.next().await {
            if let What::Token(token) = event.what {
                made.0.push(token.id);
                made.1.push(token.depth.0);
            }
        }
        made
    })
}

#[test]
fn greedy_texts_are_those_of_the_models_own_code() {
    let server = Server::start();
    let expected = expected();
    let greedy = &expected["text"]["greedy"];
    let conversations = list(&expected["text"]["chat_template"]["conversations"]);
    let (mut texts, mut chats) = (0, 0);
    for run in list(&greedy["runs"]).iter().filter(|run| run["closest_logit"].as_f64().unwrap() > CLOSE) {
        texts += 1;
        let settings = json!({ "max_tokens": greedy["new_tokens"], "temperature": 0, "full_depth": true });
        let asked = |field: &str, said: &Value| {
            let mut body = settings.clone();
            body[field] = said.clone();
            body
        };
        for prompt in [&run["prompt_ids"], &run["prompt_text"]].into_iter().filter(|prompt| !prompt.is_null()) {
            let answer = server.client.complete(&asked("prompt", prompt));
            let choice = &answer["choices"][0];
            assert_eq!(choice["text"], run["text_without_special"]);
            assert_eq!(choice["finish_reason"], run["finish"]);
            assert_eq!(answer["usage"]["completion_tokens"], list(&run["tokens"]).len());
        }
        let Some(chat) = run["chat"].as_u64() else { continue };
        let messages = &conversations[chat as usize]["messages"];
        // What looks like a special token in a message is text here, and was an id there.
        if messages.to_string().contains("<|") {
            continue;
        }
        chats += 1;
        let answer = server.client.post("/v1/chat/completions", &asked("messages", messages)).json();
        assert_eq!(answer["usage"]["prompt_tokens"], list(&run["prompt_ids"]).len());
        let message = json!({ "role": "assistant", "content": run["text_without_special"] });
        assert_eq!(answer["choices"][0]["message"], message);
    }
    assert_eq!((texts, chats), (7, 2), "two texts of nine are too close");
}

#[test]
fn tokens_leave_where_the_engine_lets_them_leave() {
    let server = Server::start();
    let expected = expected();
    let mut early = 0;
    for (prompt, threshold) in list(&expected["prompts"]).iter().flat_map(|prompt| [(prompt, 0.35), (prompt, 0.6)]) {
        let rule = ExitRule::Threshold { threshold: threshold as f32, min_depth: None };
        let (ids, depths) = made(&server.engine, prompt, 24, rule);
        let body = json!({
            "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true, "exit": { "threshold": threshold },
        });
        let answer = server.client.complete(&body);
        let usage = &answer["usage"];
        assert_eq!(usage["exit_depths"], json!(depths));
        let mean = depths.iter().copied().map(f64::from).sum::<f64>() / 24.0;
        assert!((usage["mean_exit_depth"].as_f64().unwrap() - mean).abs() < 1e-9);
        early += depths.iter().filter(|&&depth| depth < 4).count();
        // The answer's text leaves special tokens out.
        let shown: Vec<u32> = ids.into_iter().filter(|&id| id > 2).collect();
        let text = server.client.post("/detokenize", &json!({ "tokens": shown })).json()["prompt"].clone();
        assert_eq!(answer["choices"][0]["text"], text);
    }
    assert!(early > 20, "only {early} tokens leave early");
}
