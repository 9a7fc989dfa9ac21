//! What clients are sent, as OpenAI's API names it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::choice::TokenLogprob;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FinishReason {
    Stop,
    Length,
}

/// A whole answer or a part of a stream.
#[derive(Debug, Serialize)]
pub(super) struct Answer<'a, C> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
}

/// Tokens read and made. The depths are ours: those of every answer's tokens, answer by answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) total_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mean_exit_depth: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_depths: Option<Vec<u8>>,
}

impl Usage {
    /// Without depths, as it stands in the middle of a stream.
    pub(super) fn so_far(prompt_tokens: usize, completion_tokens: usize) -> Self {
        let total_tokens = prompt_tokens + completion_tokens;
        Self { prompt_tokens, completion_tokens, total_tokens, mean_exit_depth: None, exit_depths: None }
    }

    /// Of whole answers.
    pub(super) fn of(prompt_tokens: usize, depths: Vec<u8>) -> Self {
        let sum: u64 = depths.iter().copied().map(u64::from).sum();
        let mean = (!depths.is_empty()).then(|| sum as f64 / depths.len() as f64);
        Self { mean_exit_depth: mean, exit_depths: Some(depths.clone()), ..Self::so_far(prompt_tokens, depths.len()) }
    }
}

/// An answer of `/v1/completions`, whole or in part.
#[derive(Debug, Serialize)]
pub(super) struct CompletionChoice {
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) logprobs: Option<CompletionLogprobs>,
    pub(super) finish_reason: Option<FinishReason>,
}

/// Log-probabilities as `/v1/completions` has them: a list of each.
#[derive(Debug, Default, Serialize)]
pub(super) struct CompletionLogprobs {
    text_offset: Vec<usize>,
    token_logprobs: Vec<Option<f64>>,
    tokens: Vec<String>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
}

impl CompletionLogprobs {
    pub(super) fn of(tokens: Vec<TokenLogprob>) -> Self {
        let mut lists = Self::default();
        for TokenLogprob { token, logprob, top, offset } in tokens {
            lists.text_offset.push(offset);
            lists.token_logprobs.push(logprob);
            lists.top_logprobs.push(logprob.map(|own| {
                let mut map = Map::new();
                // Tokens may have the same text, such as parts of characters: the most probable one keeps it.
                for (token, logprob) in top {
                    map.entry(token.text).or_insert_with(|| logprob.into());
                }
                map.entry(token.text.clone()).or_insert_with(|| own.into());
                map
            }));
            lists.tokens.push(token.text);
        }
        lists
    }
}

/// A whole answer of `/v1/chat/completions`.
#[derive(Debug, Serialize)]
pub(super) struct ChatChoice {
    pub(super) index: usize,
    pub(super) message: ChatMessage,
    pub(super) logprobs: Option<ChatLogprobs>,
    pub(super) finish_reason: Option<FinishReason>,
}

/// What the model said.
#[derive(Debug, Serialize)]
pub(super) struct ChatMessage {
    pub(super) role: &'static str,
    pub(super) content: String,
}

/// A part of an answer of `/v1/chat/completions`.
#[derive(Debug, Serialize)]
pub(super) struct ChatPart {
    pub(super) index: usize,
    pub(super) delta: Delta,
    pub(super) logprobs: Option<ChatLogprobs>,
    pub(super) finish_reason: Option<FinishReason>,
}

/// What a part adds.
#[derive(Debug, Serialize)]
pub(super) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    pub(super) content: String,
}

/// Log-probabilities as chat has them: an object a token.
#[derive(Debug, Serialize)]
pub(super) struct ChatLogprobs {
    content: Vec<ChatLogprob>,
}

#[derive(Debug, Serialize)]
struct ChatLogprob {
    #[serde(flatten)]
    token: ChatToken,
    top_logprobs: Vec<ChatToken>,
}

#[derive(Debug, Serialize)]
struct ChatToken {
    token: String,
    logprob: Option<f64>,
    bytes: Vec<u8>,
}

impl ChatLogprobs {
    pub(super) fn of(tokens: Vec<TokenLogprob>) -> Self {
        let named =
            |token: super::choice::NamedToken, logprob| ChatToken { token: token.text, logprob, bytes: token.bytes };
        let content = tokens
            .into_iter()
            .map(|TokenLogprob { token, logprob, top, .. }| ChatLogprob {
                token: named(token, logprob),
                top_logprobs: top.into_iter().map(|(token, logprob)| named(token, Some(logprob))).collect(),
            })
            .collect();
        Self { content }
    }
}
