//! What a server can be asked: the richest request that it takes is found by trying.

use std::time::Duration;

use engine::request::{Arrival, Request, RequestId};
use engine::units::Nanos;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::answer::{Answer, Failure, FailureKind};
use crate::connection::{Connections, NoResponse};
use crate::dialect::{Dialect, Exits, Path};
use crate::endpoint::Endpoint;
use crate::run::{Load, run};

/// Prompt and output of a probe, in tokens.
const PROBE: (u32, u32) = (8, 4);

/// How long a probe may take: a server may load its model on the first request.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a caller would like.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The model's name; the server's first without it.
    pub model: Option<String>,
    /// Ids of the scenario's model end here; text alone is tried without it.
    pub vocab: Option<u32>,
    /// Decides the prompts.
    pub seed: u64,
    /// What the loop is asked for, if the server has one.
    pub exits: Exits,
}

/// Why a server cannot be observed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProbeError {
    /// Check the address, and whether the server runs.
    #[error("{endpoint}: {reason}")]
    Client {
        /// Whom it asked.
        endpoint: String,
        /// What the client says.
        reason: String,
    },
    /// Name the model.
    #[error("{endpoint}/models names no model ({reason}): give --model NAME")]
    Model {
        /// Whom it asked.
        endpoint: String,
        /// What came instead.
        reason: String,
    },
    /// Every form of request was refused.
    #[error("{endpoint} gives no stream of tokens, in any form that was tried; the last one: {} ({})", last.kind, last.said)]
    Refused {
        /// Whom it asked.
        endpoint: String,
        /// How it failed.
        last: Failure,
    },
}

/// Asks for a few tokens, with less and less in the request until the server gives them, and returns how it did and what it
/// answered. The first answer also warms the server up.
///
/// # Errors
/// The server is not there, names no model, or gives no tokens however it is asked.
pub fn probe(endpoint: &Endpoint, wishes: &Wishes) -> Result<(Dialect, Answer), ProbeError> {
    let model = match &wishes.model {
        Some(model) => model.clone(),
        None => first_model(endpoint)?,
    };
    let forms = forms(wishes);
    let mut last = None;
    for (path, vocab, fixes_length, asks_usage) in forms {
        let plain = Dialect {
            path,
            model: model.clone(),
            vocab,
            fixes_length,
            asks_usage,
            seed: wishes.seed,
            exits: Exits::Servers,
        };
        match ask(endpoint, &plain)? {
            Ok(answer) if answer.depths.is_empty() || wishes.exits == Exits::Servers => return Ok((plain, answer)),
            // It has a loop, so it can be told how to leave it.
            Ok(answer) => {
                let exits = Dialect { exits: wishes.exits, ..plain.clone() };
                return match ask(endpoint, &exits)? {
                    Ok(answer) => Ok((exits, answer)),
                    // A server at full depth only refuses to be told of exits, and has none.
                    Err(_) if wishes.exits == Exits::FullDepth => Ok((plain, answer)),
                    Err(last) => Err(ProbeError::Refused { endpoint: endpoint.to_string(), last }),
                };
            }
            Err(failure @ Failure { kind: FailureKind::Connect | FailureKind::Timeout, .. })
            | Err(failure @ Failure { kind: FailureKind::Status(401 | 403 | 429), .. }) => {
                return Err(ProbeError::Refused { endpoint: endpoint.to_string(), last: failure });
            }
            Err(failure) => last = Some(failure),
        }
    }
    Err(ProbeError::Refused { endpoint: endpoint.to_string(), last: last.expect("there are forms") })
}

/// The richest first: ids, then text, then chat, each with fixed lengths and counts, with counts, and with nothing.
fn forms(wishes: &Wishes) -> Vec<(Path, Option<u32>, bool, bool)> {
    let kinds = [wishes.vocab.map(|vocab| (Path::Completions, Some(vocab))), Some((Path::Completions, None))];
    let kinds = kinds.into_iter().chain([Some((Path::Chat, None))]).flatten();
    kinds
        .flat_map(|(path, vocab)| {
            [(true, true), (false, true), (false, false)].map(|(fixes, counts)| (path, vocab, fixes, counts))
        })
        .collect()
}

fn ask(endpoint: &Endpoint, dialect: &Dialect) -> Result<Result<Answer, Failure>, ProbeError> {
    let (prompt_tokens, output_tokens) = PROBE;
    // A number that no workload has, so that a cache of prompts does not know the first request already.
    let request =
        Request { id: RequestId(u32::MAX), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: output_tokens };
    let arrival = Arrival { request, output_tokens, cancel_after: None };
    let run = run(endpoint, dialect, [arrival].into_iter(), Load::Open, PATIENCE);
    let run = run.map_err(|reason| ProbeError::Client { endpoint: endpoint.to_string(), reason })?;
    Ok(run.seen.into_iter().next().expect("it was sent").result)
}

/// The first model that the server names.
fn first_model(endpoint: &Endpoint) -> Result<String, ProbeError> {
    let client = |reason: String| ProbeError::Client { endpoint: endpoint.to_string(), reason };
    let none = |reason: String| ProbeError::Model { endpoint: endpoint.to_string(), reason };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| client(format!("the client cannot begin: {error}")))?;
    let connections = Connections::new(endpoint.clone()).map_err(client)?;
    let asked = async {
        let answered = connections.send(Method::GET, "models", Bytes::new()).await.map_err(|error| match error {
            NoResponse::Connect(reason) | NoResponse::Broken(reason) => client(reason),
        })?;
        let (response, _) = answered.into_parts();
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| client(error.to_string()))?.to_bytes();
        if status != StatusCode::OK {
            return Err(none(format!("status {status}")));
        }
        let models: Value = serde_json::from_slice(&body).map_err(|error| none(error.to_string()))?;
        let name = models["data"][0]["id"].as_str();
        name.map(str::to_owned).ok_or_else(|| none("there is no data[0].id".into()))
    };
    runtime.block_on(async {
        let late = || client(format!("no answer within {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(late()))
    })
}
