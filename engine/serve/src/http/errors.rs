//! Errors as OpenAI's clients read them: `{"error": {"message", "type", "param", "code"}}`.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde::Serialize;

use crate::router::Unavailable;

/// Seconds that a client is asked to wait when too many requests are on their way: the queue moves in less.
const RETRY_AFTER_S: u32 = 1;

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    status: StatusCode,
    error: Inner,
}

/// The error object.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Inner {
    message: String,
    r#type: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

/// What goes over the wire.
#[derive(Serialize)]
struct Envelope<'a> {
    error: &'a Inner,
}

impl ApiError {
    fn new(status: StatusCode, r#type: &'static str, message: impl ToString) -> Self {
        Self { status, error: Inner { message: message.to_string(), r#type, param: None, code: None } }
    }

    /// 400: what was asked for cannot be done; `param` is the field at fault.
    pub fn invalid(param: impl Into<String>, message: impl ToString) -> Self {
        Self::malformed(message).of(param)
    }

    /// 400: the request cannot be read.
    pub fn malformed(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// Any other answer that is the client's fault.
    pub fn refused(status: StatusCode, message: impl ToString) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    /// 401: there is a key, and this is not it.
    pub fn key() -> Self {
        let message = "this server needs its API key: send it as `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message).with_code("invalid_api_key")
    }

    /// 404: another model.
    pub fn model(asked: &str, served: &str) -> Self {
        let message = format!("there is no model `{asked}` here: this server has `{served}`");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).of("model").with_code("model_not_found")
    }

    /// 404: no such path.
    pub fn path(method: &str, path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", format!("there is no {method} {path} here"))
    }

    /// 500: the engine could not go on.
    pub fn engine(message: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// 503: the server is about to end.
    pub fn draining() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "this server is shutting down: ask another one")
    }

    fn of(mut self, param: impl Into<String>) -> Self {
        self.error.param = Some(param.into());
        self
    }

    fn with_code(mut self, code: &'static str) -> Self {
        self.error.code = Some(code);
        self
    }

    /// The object alone, for an event of a stream that has begun.
    pub fn json(&self) -> String {
        serde_json::to_string(&Envelope { error: &self.error }).expect("an error is JSON")
    }
}

impl From<Unavailable> for ApiError {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::Full { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", unavailable).with_code("overloaded")
            }
            Unavailable::Ended(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", unavailable),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.json()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        response
    }
}
