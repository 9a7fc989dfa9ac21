//! `/tokenize`, `/detokenize` and `/tokenizer_info`: what a client needs to count tokens without a tokenizer of its own.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::errors::ApiError;
use super::{App, body};
use crate::text::Message;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tokenize {
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    add_special_tokens: Option<bool>,
    add_generation_prompt: Option<bool>,
}

/// A text's ids, or a conversation's.
pub(super) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let asked: Tokenize = body::read(request, &app.limits).await?;
    let context = app.model.context_tokens;
    let ids = app.blocking(move |app| match (asked.prompt, asked.messages) {
        (Some(prompt), None) => {
            let special = asked.add_special_tokens.unwrap_or(true);
            app.model.tokenizer.encode(&prompt, special).map_err(|error| ApiError::invalid("prompt", error))
        }
        (None, Some(messages)) => app.render(&messages, asked.add_generation_prompt.unwrap_or(true)),
        _ => Err(ApiError::invalid("prompt", "send either prompt, a string, or messages")),
    });
    let ids: Vec<u32> = ids.await?;
    Ok(super::json(&json!({ "count": ids.len(), "max_model_len": context, "tokens": ids })))
}

#[derive(Debug, Deserialize)]
struct Detokenize {
    tokens: Vec<u32>,
}

/// The text of ids, special tokens included.
pub(super) async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let Detokenize { tokens } = body::read(request, &app.limits).await?;
    let text = app.blocking(move |app| {
        app.model.tokenizer.decode(&tokens, false).map_err(|error| ApiError::invalid("tokens", error))
    });
    Ok(super::json(&json!({ "prompt": text.await? })))
}

/// The special tokens by their roles, and the chat template.
pub(super) async fn info(State(app): State<Arc<App>>) -> Response {
    let tokenizer = &app.model.tokenizer;
    let text = |token: Option<&crate::text::NamedToken>| token.map(|token| token.text.clone());
    super::json(&json!({
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "pad_token": text(tokenizer.pad()),
        "chat_template": tokenizer.chat_template(),
        "vocab_size": tokenizer.vocab_size(),
        "model_max_length": app.model.context_tokens,
    }))
}
