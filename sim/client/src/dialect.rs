//! How a server is asked: which path it has, and what its requests may say.

use engine::live::random_prompt;
use engine::request::Arrival;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};

/// A word that common vocabularies have as one token, of which prompts of text are made.
const WORDS: [&str; 8] = [" time", " people", " water", " house", " world", " city", " name", " river"];

/// Which of OpenAI's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// When tokens leave the loop, for servers that know such a thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exits {
    /// As the server's settings say.
    Servers,
    /// Every token runs all loops.
    FullDepth,
    /// By the gate, at this threshold or the server's, not before this depth or the server's.
    Threshold(Option<f32>, Option<u8>),
}

/// What every request to one server has in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialect {
    /// Where requests go.
    pub path: Path,
    /// The model's name, as the server has it.
    pub model: String,
    /// Prompts are token ids below this; text if `None`.
    pub vocab: Option<u32>,
    /// `ignore_eos` and `min_tokens` are sent, so that outputs are as long as asked.
    pub fixes_length: bool,
    /// `stream_options.include_usage` is sent, so that the server counts tokens.
    pub asks_usage: bool,
    /// Decides the prompts.
    pub seed: u64,
    /// What is asked of the loop; [`Exits::Servers`] sends nothing.
    pub exits: Exits,
}

impl Path {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat/completions",
        }
    }
}

impl Dialect {
    /// The body of one request.
    pub(crate) fn body(&self, arrival: &Arrival) -> Bytes {
        let mut body = Map::new();
        let mut set = |field: &str, value: Value| body.insert(field.into(), value);
        set("model", json!(self.model));
        match (self.path, self.vocab) {
            (Path::Completions, Some(vocab)) => {
                set("prompt", json!(random_prompt(self.seed, &arrival.request, vocab)));
            }
            (Path::Completions, None) => {
                set("prompt", json!(self.text(arrival)));
            }
            (Path::Chat, _) => {
                set("messages", json!([{ "role": "user", "content": self.text(arrival) }]));
            }
        }
        set("max_tokens", json!(arrival.output_tokens));
        set("temperature", json!(0));
        set("stream", json!(true));
        if self.fixes_length {
            set("ignore_eos", json!(true));
            set("min_tokens", json!(arrival.output_tokens));
        }
        if self.asks_usage {
            set("stream_options", json!({ "include_usage": true }));
        }
        match self.exits {
            Exits::Servers => {}
            Exits::FullDepth => {
                set("full_depth", json!(true));
            }
            Exits::Threshold(threshold, min_depth) => {
                set("exit", json!({ "threshold": threshold, "min_depth": min_depth }));
            }
        }
        serde_json::to_vec(&body).expect("what is sent is JSON").into()
    }

    /// As many words as the request's prompt has tokens: about that many tokens, for the server to count. The first differ
    /// between requests, so that no server finds a prompt in its cache.
    fn text(&self, arrival: &Arrival) -> String {
        let picks = random_prompt(self.seed, &arrival.request, WORDS.len() as u32);
        let text: String = picks.into_iter().map(|pick| WORDS[pick as usize]).collect();
        text.trim_start().to_owned()
    }

    /// How prompts are sent, in words.
    pub fn prompts(&self) -> &'static str {
        match (self.path, self.vocab) {
            (Path::Completions, Some(_)) => "token ids",
            (Path::Completions, None) => "text of one common word a token",
            (Path::Chat, _) => "a chat message of one common word a token",
        }
    }
}
