//! Connections that are used again: as many as there are requests on their way at once, and no more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::endpoint::Endpoint;
use crate::transport::{Opened, Transport};

type Sender = SendRequest<Full<Bytes>>;

/// One server's connections.
pub(crate) struct Connections {
    endpoint: Endpoint,
    transport: Transport,
    /// The one that was used last is used next, so that the others may time out.
    idle: Mutex<Vec<Sender>>,
    opened: AtomicU32,
}

/// Why a request was not answered at all.
pub(crate) enum NoResponse {
    /// It was not sent.
    Connect(String),
    /// It was sent, and the connection ended.
    Broken(String),
}

/// An answer's beginning, and the connection that goes back once its body was read.
pub(crate) struct Answered {
    pub(crate) response: Response<Incoming>,
    sender: Sender,
}

impl Connections {
    pub(crate) fn new(endpoint: Endpoint) -> Result<Self, String> {
        let transport = Transport::new(&endpoint)?;
        Ok(Self { endpoint, transport, idle: Mutex::default(), opened: AtomicU32::new(0) })
    }

    /// How many were opened so far.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Opens one that nobody needs yet. Whether that fails is told by the request that would have used it.
    pub(crate) async fn prepare(&self) {
        if let Ok(sender) = self.open().await {
            self.give_back(SpentSender(sender));
        }
    }

    /// Sends a request. A server may close a connection that idles just then: a request that was not sent yet goes out over
    /// another one, and one that was sent is never sent twice.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Answered, NoResponse> {
        let mut request = self.request(method, path, body);
        while let Some(sender) = self.take() {
            match self.over(sender, request).await {
                Ok(answered) => return Ok(answered),
                Err((Some(unsent), _)) => request = *unsent,
                Err((None, reason)) => return Err(NoResponse::Broken(reason)),
            }
        }
        let sender = self.open().await.map_err(NoResponse::Connect)?;
        self.over(sender, request).await.map_err(|(unsent, reason)| match unsent {
            Some(_) => NoResponse::Connect(reason),
            None => NoResponse::Broken(reason),
        })
    }

    /// Takes back the connection of an answer whose body was read to its end.
    pub(crate) fn give_back(&self, sender: SpentSender) {
        if !sender.0.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender.0);
        }
    }

    fn take(&self) -> Option<Sender> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn over(
        &self,
        mut sender: Sender,
        request: Request<Full<Bytes>>,
    ) -> Result<Answered, (Option<Box<Request<Full<Bytes>>>>, String)> {
        if let Err(error) = sender.ready().await {
            return Err((Some(Box::new(request)), error.to_string()));
        }
        match sender.try_send_request(request).await {
            Ok(response) => Ok(Answered { response, sender }),
            Err(mut error) => Err((error.take_message().map(Box::new), error.error().to_string())),
        }
    }

    async fn open(&self) -> Result<Sender, String> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        match self.transport.open().await.map_err(|error| error.to_string())? {
            Opened::Plain(stream) => shake(stream).await,
            Opened::Secure(stream) => shake(*stream).await,
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(self.endpoint.path(path))
            .header(HOST, self.endpoint.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json");
        let request = match self.endpoint.authorization() {
            Some(key) => request.header(AUTHORIZATION, key),
            None => request,
        };
        request.body(Full::new(body)).expect("an endpoint's path and authority were parsed")
    }
}

/// A connection that has nothing more to read.
pub(crate) struct SpentSender(Sender);

impl Answered {
    /// The body to read, and what is given back behind its end.
    pub(crate) fn into_parts(self) -> (Response<Incoming>, SpentSender) {
        (self.response, SpentSender(self.sender))
    }
}

async fn shake<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T) -> Result<Sender, String> {
    let (sender, connection) =
        Builder::new().handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends when its sender is dropped or the server closes it; the request that it carries hears of an error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
