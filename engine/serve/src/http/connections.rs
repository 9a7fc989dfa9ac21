//! Connections: accepted up to a number, each with bounds on headers and on how long it may leave things unread.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep};

use super::guard::Local;
use super::limits::Limits;

/// Serves connections until `stop`, then lets those that have a request finish it. Returns when all are closed, or when
/// `patience` has passed behind `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    stop: impl Future<Output = Option<Duration>>,
) {
    let places = Arc::new(Semaphore::new(limits.max_connections as usize));
    let (draining, drains) = watch::channel(false);
    let mut stop = pin!(stop);
    let patience = loop {
        let connection = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        tokio::select! {
            patience = &mut stop => break patience,
            (place, accepted) = connection => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(connected(stream, place, router.clone(), limits.clone(), drains.clone()));
                }
                // Too many open files: some connection will close.
                Err(_) => sleep(Duration::from_millis(50)).await,
            },
        }
    };
    drop(listener);
    let _ = draining.send(true);
    let all_closed = places.acquire_many(limits.max_connections);
    match patience {
        Some(patience) => drop(tokio::time::timeout(patience, all_closed).await),
        None => drop(all_closed.await),
    }
}

/// One connection, to its end.
async fn connected(
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    router: Router,
    limits: Limits,
    mut drains: watch::Receiver<bool>,
) {
    // Tokens are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().ok();
    let service = TowerToHyperService::new(router);
    let with_address = service_fn(move |request| answer(service.clone(), request, local));
    let stream = TokioIo::new(Impatient { stream, patience: limits.write_timeout(), waits: None });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout())
        .max_buf_size(limits.header_bytes())
        .serve_connection(stream, with_address);
    let mut connection = pin!(connection);
    tokio::select! {
        // What went wrong is the client's doing, or tells it itself.
        _ = connection.as_mut() => return,
        _ = drains.wait_for(|&draining| draining) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(
    service: TowerToHyperService<Router>,
    request: hyper::Request<hyper::body::Incoming>,
    local: Option<SocketAddr>,
) -> Result<hyper::Response<Body>, Infallible> {
    let mut request: Request = request.map(Body::new);
    if let Some(local) = local {
        request.extensions_mut().insert(Local(local));
    }
    hyper::service::Service::call(&service, request).await
}

/// A stream whose other end must read what it is sent.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    /// Runs while the other end takes nothing.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    /// What a write came to; an error if it has been waiting for too long.
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        match waits.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judge(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.judge(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
