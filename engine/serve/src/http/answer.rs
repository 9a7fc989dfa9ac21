//! Answers to completions and chats: whole, or as server-sent events while they are made.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use engine::event_loop::Refused;
use engine::executor::Reject;
use futures_util::stream;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;

use super::App;
use super::choice::{Choice, Piece, ReadPrompt};
use super::errors::ApiError;
use super::wanted::{Endpoint, Wanted};
use super::wire::{
    Answer, ChatChoice, ChatLogprobs, ChatMessage, ChatPart, CompletionChoice, CompletionLogprobs, Delta, FinishReason,
    Usage,
};
use crate::call::{Call, RefusedCall};
use crate::router::{Event, What};

/// Asks the engine for answers to every prompt, and answers with them. Whoever drops the response cancels what is not made.
pub(super) async fn answer(
    app: Arc<App>,
    endpoint: Endpoint,
    wanted: Wanted,
    prompts: Vec<ReadPrompt>,
) -> Result<Response, ApiError> {
    let (n, most) = (wanted.n, app.limits.max_choices.min(app.client.limit()));
    let answers = prompts.len().saturating_mul(n);
    if answers > most {
        let message =
            format!("{} prompts with n = {n} are {answers} answers, at most {most} go in a call", prompts.len());
        return Err(ApiError::invalid(if prompts.len() > 1 { "prompt" } else { "n" }, message));
    }
    let places = (0..answers).map(|index| (index, &prompts[index / n]));
    let asked = places.clone().map(|(index, prompt)| wanted.asked(&prompt.ids, index % n, &app.model));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let choices = places.map(|(_, prompt)| Choice::new(&app.model.tokenizer, &wanted, prompt)).collect();
    let mut call = app.client.call(asked)?;
    call.accepted().await?;
    let making = Making {
        id: app.next_id(endpoint),
        created: super::unix_seconds(),
        prompt_tokens: prompts.iter().map(|prompt| prompt.ids.len()).sum(),
        endpoint,
        choices,
        call,
        app,
    };
    if wanted.stream { Ok(making.stream(&wanted)) } else { making.whole().await }
}

impl From<RefusedCall> for ApiError {
    fn from(error: RefusedCall) -> Self {
        match error {
            RefusedCall::Refused(refused) => refused.into(),
            RefusedCall::Failed(reason) => Self::engine(reason),
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match &refused {
            Refused::Executor(Reject::Exit(_)) => Self::invalid("exit", refused),
            Refused::Executor(_) | Refused::Scheduler(_) => Self::malformed(refused),
        }
    }
}

/// Answers that are being made.
struct Making {
    app: Arc<App>,
    endpoint: Endpoint,
    id: String,
    created: u64,
    prompt_tokens: usize,
    call: Call,
    choices: Vec<Choice>,
}

impl Making {
    /// The next piece of an answer; `None` when all are made.
    async fn next(&mut self) -> Option<Result<(usize, Piece), ApiError>> {
        loop {
            let Event { choice: index, what } = self.call.next().await?;
            let choice = &mut self.choices[index];
            let piece = match what {
                What::Accepted => continue,
                What::Prompt(scored) => {
                    choice.prompt_score(scored);
                    continue;
                }
                What::Token(token) => choice.token(token).map_err(ApiError::engine),
                What::Refused(refused) => Err(refused.into()),
                What::Failed(reason) => Err(ApiError::engine(reason)),
            };
            if matches!(&piece, Ok(piece) if piece.finish.is_some()) {
                self.call.stop(index);
            }
            return Some(piece.map(|piece| (index, piece)));
        }
    }

    fn usage(&self) -> Usage {
        Usage::of(self.prompt_tokens, self.choices.iter().flat_map(|choice| choice.depths.iter().copied()).collect())
    }

    fn usage_so_far(&self) -> Usage {
        Usage::so_far(self.prompt_tokens, self.choices.iter().map(|choice| choice.depths.len()).sum())
    }

    fn envelope<C>(&self, object: &'static str, choices: Vec<C>, usage: Option<Usage>) -> Answer<'_, C> {
        Answer { id: &self.id, object, created: self.created, model: &self.app.model.name, choices, usage }
    }

    /// All answers at once.
    async fn whole(mut self) -> Result<Response, ApiError> {
        let mut answers: Vec<Piece> = self.choices.iter().map(|_| Piece::default()).collect();
        while let Some(piece) = self.next().await {
            let (index, piece) = piece?;
            let answer = &mut answers[index];
            answer.text += &piece.text;
            answer.logprobs.extend(piece.logprobs);
            answer.finish = piece.finish;
        }
        let usage = Some(self.usage());
        let scored: Vec<bool> = self.choices.iter().map(Choice::is_scored).collect();
        let answers = answers.into_iter().zip(scored).enumerate();
        Ok(match self.endpoint {
            Endpoint::Completions => {
                let choices = answers.map(|(index, (piece, scored))| completion(index, piece, scored)).collect();
                super::json(&self.envelope("text_completion", choices, usage))
            }
            Endpoint::Chat => {
                let choices = answers.map(|(index, (piece, scored))| ChatChoice {
                    index,
                    logprobs: scored.then(|| ChatLogprobs::of(piece.logprobs)),
                    message: ChatMessage { role: "assistant", content: piece.text },
                    finish_reason: piece.finish,
                });
                super::json(&self.envelope("chat.completion", choices.collect(), usage))
            }
        })
    }

    /// One event a token.
    fn stream(self, wanted: &Wanted) -> Response {
        let state = Streaming {
            begun: vec![false; self.choices.len()],
            continuous_usage: wanted.continuous_usage,
            include_usage: wanted.include_usage,
            over: false,
            making: self,
        };
        let events = stream::unfold(state, |mut state| async {
            let events = state.next().await?;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from(events)), state))
        });
        let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(events)).into_response()
    }
}

/// A stream in the making.
struct Streaming {
    making: Making,
    /// By choice: its first part was sent.
    begun: Vec<bool>,
    continuous_usage: bool,
    include_usage: bool,
    over: bool,
}

impl Streaming {
    /// The next events; `None` behind the last.
    async fn next(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        match self.making.next().await {
            Some(Ok((index, piece))) => Some(self.part(index, piece)),
            Some(Err(error)) => {
                self.over = true;
                Some(format!("data: {}\n\n", error.json()))
            }
            None => {
                self.over = true;
                let usage = if self.include_usage { self.last_usage() } else { String::new() };
                Some(usage + "data: [DONE]\n\n")
            }
        }
    }

    /// A token's event; chat begins with one that says who speaks.
    fn part(&mut self, index: usize, piece: Piece) -> String {
        let making = &self.making;
        let usage = self.continuous_usage.then(|| making.usage_so_far());
        let scored = making.choices[index].is_scored();
        match making.endpoint {
            Endpoint::Completions => {
                event(&making.envelope("text_completion", vec![completion(index, piece, scored)], usage))
            }
            Endpoint::Chat => {
                let part = |role, content, logprobs, finish_reason: Option<FinishReason>| {
                    let choice = ChatPart { index, delta: Delta { role, content }, logprobs, finish_reason };
                    event(&making.envelope("chat.completion.chunk", vec![choice], usage.clone()))
                };
                let mut events = String::new();
                if !std::mem::replace(&mut self.begun[index], true) {
                    events = part(Some("assistant"), String::new(), None, None);
                }
                let logprobs = scored.then(|| ChatLogprobs::of(piece.logprobs));
                events + &part(None, piece.text, logprobs, piece.finish)
            }
        }
    }

    fn last_usage(&self) -> String {
        let object = match self.making.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion.chunk",
        };
        event(&self.making.envelope::<()>(object, Vec::new(), Some(self.making.usage())))
    }
}

fn completion(index: usize, piece: Piece, scored: bool) -> CompletionChoice {
    CompletionChoice {
        index,
        text: piece.text,
        logprobs: scored.then(|| CompletionLogprobs::of(piece.logprobs)),
        finish_reason: piece.finish,
    }
}

fn event(content: &impl Serialize) -> String {
    format!("data: {}\n\n", serde_json::to_string(content).expect("what is sent is JSON"))
}
