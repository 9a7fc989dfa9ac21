//! What the model's own public code computed for the folder that is served (`engine/tests/hf`), and the same over HTTP.
//!
//! The golden numbers are of f32 weights, which the folder has, and of f32 KV; the engine keeps KV in bf16.

use serde_json::{Value, json};

use crate::server::{Server, folder};

pub(crate) fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

#[test]
fn greedy_texts_are_those_of_the_models_own_code() {
    let server = Server::start();
    let expected = expected();
    let greedy = &expected["text"]["greedy"];
    let conversations = list(&expected["text"]["chat_template"]["conversations"]);
    let mut chats = 0;
    for run in list(&greedy["runs"]) {
        let body = json!({
            "prompt": run["prompt_ids"], "max_tokens": greedy["new_tokens"], "temperature": 0, "full_depth": true,
        });
        let answer = server.client.complete(&body);
        let choice = &answer["choices"][0];
        assert_eq!(choice["text"], run["text_without_special"]);
        assert_eq!(choice["finish_reason"], run["finish"]);
        assert_eq!(answer["usage"]["completion_tokens"], list(&run["tokens"]).len());

        let messages = &conversations[run["chat"].as_u64().unwrap() as usize]["messages"];
        // What looks like a special token in a message is text here, and an id there.
        if messages.to_string().contains("<|") {
            continue;
        }
        chats += 1;
        let body = json!({
            "messages": messages, "max_tokens": greedy["new_tokens"], "temperature": 0, "full_depth": true,
        });
        let answer = server.client.post("/v1/chat/completions", &body).json();
        assert_eq!(answer["usage"]["prompt_tokens"], list(&run["prompt_ids"]).len());
        let message = json!({ "role": "assistant", "content": run["text_without_special"] });
        assert_eq!(answer["choices"][0]["message"], message);
    }
    assert!(chats > 3, "only {chats} conversations have no special tokens in them");
}

#[test]
fn tokens_leave_where_the_models_own_code_says() {
    let server = Server::start();
    let expected = expected();
    let mut early = 0;
    for exits in list(&expected["exits"]).iter().filter(|exits| exits["layout"] == "last_exited") {
        for run in list(&exits["runs"]) {
            let prompt = &expected["prompts"][run["prompt"].as_u64().unwrap() as usize];
            let body = json!({
                "prompt": prompt, "max_tokens": list(&run["tokens"]).len(), "temperature": 0, "ignore_eos": true,
                "exit": { "threshold": exits["threshold"] },
            });
            let usage = server.client.complete(&body)["usage"].clone();
            assert_eq!(usage["exit_depths"], run["depths"]);
            let depths: Vec<f64> = list(&run["depths"]).iter().map(|depth| depth.as_f64().unwrap()).collect();
            let mean = depths.iter().sum::<f64>() / depths.len() as f64;
            assert!((usage["mean_exit_depth"].as_f64().unwrap() - mean).abs() < 1e-9);
            early += depths.iter().filter(|&&depth| depth < 4.0).count();
        }
    }
    assert!(early > 20, "only {early} tokens leave early");
}
