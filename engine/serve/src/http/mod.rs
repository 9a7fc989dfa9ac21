//! The server: OpenAI's paths over HTTP/1.1.

mod answer;
mod body;
mod choice;
mod connections;
mod endpoints;
mod errors;
mod guard;
mod limits;
mod request;
mod tokens;
mod wanted;
mod wire;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use errors::ApiError;
pub use guard::Guard;
pub use limits::Limits;

use crate::call::Client;
use crate::engine_thread::Engine;
use crate::model::ServedModel;
use wanted::Endpoint;

/// How long streams may take to tell their clients that the engine has failed.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What every request needs.
#[derive(Debug)]
pub(crate) struct App {
    client: Client,
    model: ServedModel,
    limits: Limits,
    guard: Guard,
    started: u64,
    answers: AtomicU64,
    draining: AtomicBool,
}

/// A server that has its port.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    ended: watch::Receiver<Option<Result<(), String>>>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Takes a port, 0 for any; nothing is answered yet. Call it within the runtime.
    ///
    /// # Errors
    /// The port is taken, or the address is not this machine's.
    pub fn listen(address: (IpAddr, u16)) -> io::Result<std::net::TcpListener> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// A server of an engine, within bounds, for whoever may ask.
    ///
    /// # Errors
    /// The runtime cannot watch the listener.
    pub fn new(
        listener: std::net::TcpListener,
        engine: Engine,
        model: ServedModel,
        limits: Limits,
        guard: Guard,
    ) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        let Engine { client, ended, thread, .. } = engine;
        let started = unix_seconds();
        let (answers, draining) = (AtomicU64::new(0), AtomicBool::new(false));
        let app = Arc::new(App { client, model, limits, guard, started, answers, draining });
        Ok(Self { listener, app, ended, thread })
    }

    /// What the engine counts.
    pub fn client(&self) -> Client {
        self.app.client.clone()
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop`, then finishes what runs.
    ///
    /// # Errors
    /// The engine has ended before its time; every client was told.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), String> {
        let Self { listener, app, mut ended, thread } = self;
        let mut failed = ended.clone();
        let until = async {
            let patience = tokio::select! {
                () = stop => None,
                _ = failed.wait_for(Option::is_some) => Some(LAST_WORDS),
            };
            app.draining.store(true, Ordering::Relaxed);
            patience
        };
        connections::serve(listener, router(app.clone()), &app.limits, until).await;
        // Behind the last client the engine ends.
        drop(app);
        let result = match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err("the engine's thread is gone".into()),
        };
        // It has told that it is at its end.
        let _ = thread.join();
        result
    }
}

impl App {
    /// The id of the next answer.
    fn next_id(&self, endpoint: Endpoint) -> String {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let kind = if endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
        format!("{kind}-{:x}-{number:x}", self.started)
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(endpoints::health))
        .route("/metrics", get(endpoints::metrics))
        .route("/v1/models", get(endpoints::models))
        .route("/v1/completions", post(endpoints::completions))
        .route("/v1/chat/completions", post(endpoints::chat))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::info))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::check))
        .with_state(app)
}

async fn nothing_here(request: Request) -> ApiError {
    ApiError::path(request.method().as_str(), request.uri().path())
}

async fn other_method(request: Request) -> ApiError {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, message)
}

fn json(content: &impl Serialize) -> Response {
    let text = serde_json::to_string(content).expect("what is sent is JSON");
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[expect(clippy::disallowed_methods, reason = "clients are told when an answer was made")]
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
