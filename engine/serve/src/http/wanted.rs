//! From what a client sent to what it wants: every default filled in, everything that cannot be done refused.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use engine::submission::{Ends, ExitRule, Logprobs, Sampling};
use engine::units::Depth;

use super::errors::ApiError;
use super::limits::{Limits, STOP_BYTES};
use super::request::{Body, FlagOrCount, Stops};
use crate::call::Asked;
use crate::model::ServedModel;

/// Which path was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Completions,
    Chat,
}

/// Output tokens of a completion that does not say how many: OpenAI's default.
const COMPLETION_TOKENS: u32 = 16;

/// What a client wants of each of its prompts.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) n: usize,
    pub(super) stops: Vec<String>,
    pub(super) min_tokens: u32,
    pub(super) echo: bool,
    pub(super) logprobs: Option<Logprobs>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    max_tokens: Option<u32>,
    /// The field that says so.
    max_tokens_field: &'static str,
    sampling: Sampling,
    exit: Option<ExitRule>,
    ends: Ends,
    cache_salt: Option<Arc<str>>,
    endpoint: Endpoint,
}

impl Wanted {
    pub(super) fn of(body: &Body, endpoint: Endpoint, model: &ServedModel, limits: &Limits) -> Result<Self, ApiError> {
        if let Some(asked) = body.model.as_ref().filter(|&asked| *asked != model.name) {
            return Err(ApiError::model(asked, &model.name));
        }
        refuse_what_we_cannot(body)?;
        let (max_tokens, max_tokens_field) = match body.max_completion_tokens {
            Some(tokens) => (Some(tokens), "max_completion_tokens"),
            None => (body.max_tokens, "max_tokens"),
        };
        if max_tokens == Some(0) {
            return Err(ApiError::invalid(max_tokens_field, format!("{max_tokens_field} must be at least 1, got 0")));
        }
        let n = body.n.unwrap_or(1);
        if n == 0 {
            return Err(ApiError::invalid("n", "n must be at least 1, got 0"));
        }
        let echo = endpoint == Endpoint::Completions && body.echo.unwrap_or(false);
        let options = body.stream_options.unwrap_or_default();
        let min_tokens = body.min_tokens.unwrap_or(0);
        let end_tokens = if body.ignore_eos.unwrap_or(false) { [].into() } else { model.end_tokens.clone() };
        Ok(Self {
            n,
            stops: stops(body, limits)?,
            min_tokens,
            echo,
            logprobs: logprobs(body, endpoint)?.map(|top| Logprobs { top, prompt: echo }),
            stream: body.stream.unwrap_or(false),
            include_usage: options.include_usage.unwrap_or(false),
            continuous_usage: options.continuous_usage_stats.unwrap_or(false),
            max_tokens,
            max_tokens_field,
            sampling: sampling(body, model)?,
            exit: exit(body, model)?,
            ends: Ends { tokens: end_tokens, min_tokens },
            cache_salt: body.cache_salt.as_deref().map(Arc::from),
            endpoint,
        })
    }

    /// What the engine is asked for the answer number `index` of a call, to this prompt.
    pub(super) fn asked(&self, prompt: &Arc<[u32]>, index: usize, model: &ServedModel) -> Result<Asked, ApiError> {
        let param = if self.endpoint == Endpoint::Chat { "messages" } else { "prompt" };
        let context = model.context_tokens;
        if prompt.is_empty() {
            return Err(ApiError::invalid(param, "the prompt is empty: it needs at least one token"));
        }
        if let Some(id) = prompt.iter().find(|&&id| id >= model.vocab) {
            let message = format!("the prompt has token {id}, and the model's ids end at {}", model.vocab - 1);
            return Err(ApiError::invalid(param, message));
        }
        let room = u64::from(context).saturating_sub(prompt.len() as u64);
        let asks = match (self.max_tokens, self.endpoint) {
            (Some(tokens), _) => u64::from(tokens),
            (None, Endpoint::Completions) => u64::from(COMPLETION_TOKENS),
            (None, Endpoint::Chat) => room.max(1),
        };
        if asks > room {
            let field = if room == 0 || self.max_tokens.is_none() { param } else { self.max_tokens_field };
            let message = format!(
                "the prompt has {} tokens and {asks} are to be made, together {}: this server's context holds {context}",
                prompt.len(),
                prompt.len() as u64 + asks
            );
            return Err(ApiError::invalid(field, message));
        }
        if u64::from(self.min_tokens) > asks {
            let message = format!("min_tokens must be at most the {asks} tokens to be made, got {}", self.min_tokens);
            return Err(ApiError::invalid("min_tokens", message));
        }
        // Answers to one prompt differ, and the same seed gives the same answers.
        let seed = self.sampling.seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(Asked {
            prompt: prompt.clone(),
            max_tokens: asks as u32,
            sampling: Sampling { seed, ..self.sampling },
            exit: self.exit,
            ends: Some(self.ends.clone()),
            logprobs: self.logprobs,
            cache_salt: self.cache_salt.clone(),
        })
    }
}

/// Fields whose values would change the answer in a way that the engine does not know.
fn refuse_what_we_cannot(body: &Body) -> Result<(), ApiError> {
    let numbers = [
        ("repetition_penalty", body.repetition_penalty, 1.0),
        ("frequency_penalty", body.frequency_penalty, 0.0),
        ("presence_penalty", body.presence_penalty, 0.0),
    ];
    for (field, value, only) in numbers {
        if let Some(value) = value.filter(|&value| value != only) {
            return Err(ApiError::invalid(field, format!("{field} can only be {only} here, got {value}")));
        }
    }
    match body.best_of {
        Some(best_of) if best_of != body.n.unwrap_or(1) => {
            Err(ApiError::invalid("best_of", format!("best_of can only be n here, got {best_of}")))
        }
        _ => Ok(()),
    }
}

fn sampling(body: &Body, model: &ServedModel) -> Result<Sampling, ApiError> {
    let default = model.sampling;
    let top_k = match body.top_k {
        None => default.top_k,
        Some(-1) => 0,
        Some(k) => {
            let wrong = |_| ApiError::invalid("top_k", format!("top_k must be -1, 0 or a number of tokens, got {k}"));
            u32::try_from(k).map_err(wrong)?
        }
    };
    let sampling = Sampling {
        temperature: body.temperature.unwrap_or(default.temperature),
        top_k,
        top_p: body.top_p.unwrap_or(default.top_p),
        // Without a seed no two requests draw alike.
        seed: body.seed.map_or_else(|| RandomState::new().build_hasher().finish(), |seed| seed as u64),
    };
    let without_top_p = Sampling { top_p: 1.0, ..sampling };
    for (field, sampling) in [("temperature", without_top_p), ("top_p", sampling)] {
        sampling.check().map_err(|error| ApiError::invalid(field, error))?;
    }
    Ok(sampling)
}

fn exit(body: &Body, model: &ServedModel) -> Result<Option<ExitRule>, ApiError> {
    let asks = body.exit.filter(|exit| exit.threshold.is_some() || exit.min_depth.is_some());
    match (body.full_depth.unwrap_or(false), asks) {
        (true, Some(_)) => Err(ApiError::invalid("exit", "full_depth has no exits: remove one of exit and full_depth")),
        (true, None) => Ok(Some(ExitRule::FullDepth)),
        (false, None) => Ok(model.full_depth_only.then_some(ExitRule::FullDepth)),
        (false, Some(_)) if model.full_depth_only => Err(ApiError::invalid(
            "exit",
            "this server runs every token at full depth: start it with a scheduler that has early exits",
        )),
        (false, Some(exit)) => {
            let (min_depth, first) = (exit.min_depth.map(Depth), model.first_exit);
            if let Some(depth) = min_depth.filter(|&depth| depth < first) {
                let message = format!(
                    "min_depth must be at least {first}, before which this server's overlap has no exits, got {depth}"
                );
                return Err(ApiError::invalid("exit", message));
            }
            let threshold = exit.threshold.unwrap_or(model.exit_threshold);
            Ok(Some(ExitRule::Threshold { threshold, min_depth }))
        }
    }
}

fn stops(body: &Body, limits: &Limits) -> Result<Vec<String>, ApiError> {
    let stops = match &body.stop {
        None => Vec::new(),
        Some(Stops::One(stop)) => vec![stop.clone()],
        Some(Stops::Several(stops)) => stops.clone(),
    };
    let most = limits.max_stops;
    if stops.len() > most {
        return Err(ApiError::invalid("stop", format!("stop can have {most} strings, got {}", stops.len())));
    }
    match stops.iter().find(|stop| stop.len() > STOP_BYTES) {
        Some(stop) => {
            let message = format!("a stop string can have {STOP_BYTES} bytes, one has {}", stop.len());
            Err(ApiError::invalid("stop", message))
        }
        None => Ok(stops),
    }
}

/// How many of the most probable tokens are told beside each, if log-probabilities are.
fn logprobs(body: &Body, endpoint: Endpoint) -> Result<Option<u32>, ApiError> {
    let (top, field) = match (endpoint, body.logprobs) {
        (Endpoint::Completions, Some(FlagOrCount::Count(top))) => (Some(top), "logprobs"),
        (Endpoint::Completions, Some(FlagOrCount::Flag(true))) => (Some(1), "logprobs"),
        (Endpoint::Chat, Some(FlagOrCount::Flag(true))) => (Some(body.top_logprobs.unwrap_or(0)), "top_logprobs"),
        (Endpoint::Chat, Some(FlagOrCount::Count(count))) => {
            let message = format!("logprobs is true or false in chat, got {count}: say how many in top_logprobs");
            return Err(ApiError::invalid("logprobs", message));
        }
        (_, None | Some(FlagOrCount::Flag(false))) => (None, "logprobs"),
    };
    if endpoint == Endpoint::Chat && top.is_none() && body.top_logprobs.is_some_and(|top| top > 0) {
        return Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs: true"));
    }
    match top.filter(|&top| top > Logprobs::TOP_MAX) {
        Some(top) => {
            let message = format!("{field} can be at most {}, got {top}", Logprobs::TOP_MAX);
            Err(ApiError::invalid(field, message))
        }
        None => Ok(top),
    }
}
