//! What each path does, but for those about tokens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde_json::json;

use super::answer::answer;
use super::choice::ReadPrompt;
use super::errors::ApiError;
use super::request::{Body, Prompt, Prompts};
use super::wanted::{Endpoint, Wanted};
use super::{App, body};
use crate::text::Message;

/// Characters of a message's role at most.
const ROLE_LENGTH: usize = 64;

/// 200 while requests are taken.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    app.is_open()?;
    Ok(super::json(&json!({ "status": "ok" })))
}

/// Prometheus's text.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.client.metrics().text()).into_response()
}

/// The one model.
pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let model = json!({
        "id": app.model.name,
        "object": "model",
        "created": app.started,
        "owned_by": "loopbatch",
        "max_model_len": app.model.context_tokens,
    });
    super::json(&json!({ "object": "list", "data": [model] }))
}

/// Continues prompts.
pub(super) async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let mut body: Body = body::read(request, &app.limits).await?;
    let wanted = Wanted::of(&body, Endpoint::Completions, &app.model, &app.limits)?;
    let Some(Prompts(prompts)) = body.prompt.take().filter(|prompts| !prompts.0.is_empty()) else {
        return Err(ApiError::invalid("prompt", "prompt is missing: send a string, token ids, or a list of either"));
    };
    if prompts.len() > app.limits.max_choices {
        let message = format!("{} prompts are in this call, it can have {}", prompts.len(), app.limits.max_choices);
        return Err(ApiError::invalid("prompt", message));
    }
    app.is_open()?;
    let echo = wanted.echo;
    let prompts = app.clone().blocking(move |app| prompts.into_iter().map(|prompt| app.read(prompt, echo)).collect());
    let prompts = prompts.await?;
    answer(app, Endpoint::Completions, wanted, prompts).await
}

/// Answers conversations.
pub(super) async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let mut body: Body = body::read(request, &app.limits).await?;
    let wanted = Wanted::of(&body, Endpoint::Chat, &app.model, &app.limits)?;
    let Some(messages) = body.messages.take().filter(|messages| !messages.is_empty()) else {
        return Err(ApiError::invalid("messages", "messages is missing: send at least one message"));
    };
    app.is_open()?;
    let ids = app.clone().blocking(move |app| app.render(&messages, true)).await?;
    answer(app, Endpoint::Chat, wanted, vec![ReadPrompt { ids: ids.into(), text: String::new() }]).await
}

impl App {
    /// Requests are taken.
    fn is_open(&self) -> Result<(), ApiError> {
        if self.draining.load(Ordering::Relaxed) { Err(ApiError::draining()) } else { Ok(()) }
    }

    /// Reads texts on a thread that may take its time.
    pub(super) async fn blocking<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = tokio::task::spawn_blocking(move || work(&self)).await;
        done.unwrap_or_else(|_| {
            Err(ApiError::refused(StatusCode::INTERNAL_SERVER_ERROR, "the prompt could not be read"))
        })
    }

    /// A prompt's ids, and its text if it is to be echoed.
    fn read(&self, prompt: Prompt, echo: bool) -> Result<ReadPrompt, ApiError> {
        let wrong = |error| ApiError::invalid("prompt", error);
        let tokenizer = &self.model.tokenizer;
        match prompt {
            Prompt::Text(text) => Ok(ReadPrompt { ids: tokenizer.encode(&text, true).map_err(wrong)?.into(), text }),
            Prompt::Ids(ids) => {
                let text = if echo { tokenizer.decode(&ids, false).map_err(wrong)? } else { String::new() };
                Ok(ReadPrompt { ids: ids.into(), text })
            }
        }
    }

    /// A template that writes `<|` + role + `|>` would make another special token of this than a role's.
    fn ends_a_turn(&self, role: &str) -> bool {
        let is_token = || self.model.tokenizer.encode(&format!("<|{role}|>"), false).is_ok_and(|ids| ids.len() == 1);
        !ROLES.contains(&role) && is_token()
    }

    /// A conversation's ids, with the beginning of an answer behind it if that is asked for.
    pub(super) fn render(&self, messages: &[Message], begin_answer: bool) -> Result<Vec<u32>, ApiError> {
        let role = messages.iter().map(|message| &message.role).find(|role| !is_role(role));
        if let Some(role) = role {
            let shown: String = role.chars().take(ROLE_LENGTH).collect();
            let message =
                format!("a role is 1 to {ROLE_LENGTH} of A-Z, a-z, 0-9, _ and -, got `{}`", shown.escape_debug());
            return Err(ApiError::invalid("messages", message));
        }
        if let Some(Message { role, .. }) = messages.iter().find(|message| self.ends_a_turn(&message.role)) {
            let message = format!("`{role}` is the name of a special token here, and no role");
            return Err(ApiError::invalid("messages", message));
        }
        self.model.chat.render(messages, begin_answer).map_err(|error| ApiError::invalid("messages", error))
    }
}

/// Who usually speaks.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Templates write roles beside their special tokens, so a role must not look like anything else.
fn is_role(role: &str) -> bool {
    let of_a_role = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=ROLE_LENGTH).contains(&role.len()) && role.bytes().all(of_a_role)
}
