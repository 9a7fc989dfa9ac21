//! Who may ask: the Host header and the API key, before anything else is looked at.
//!
//! A web page can make a browser send requests to a server on the same machine, by a name that it controls. Such a request
//! carries that name as its Host, so one that is not ours is refused.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST};

use super::App;
use super::errors::ApiError;

/// The address at which a connection came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local(pub(super) SocketAddr);

/// Names of this machine that nobody else can have.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Who may ask.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Names by which the server may be called, beside loopback's and the address of the connection.
    pub hosts: Vec<String>,
    /// The key that every request but `/health` must bring.
    pub key: Option<String>,
}

impl Guard {
    fn judge(&self, request: &Request) -> Result<(), ApiError> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let Some(host) = header(HOST) else {
            return Err(ApiError::malformed("a request needs a Host header"));
        };
        let local = request.extensions().get::<Local>().map(|&Local(address)| address);
        if !self.knows(host, local) {
            let message = format!("this server is not called `{host}`: start it with --allowed-host to change that");
            return Err(ApiError::refused(StatusCode::MISDIRECTED_REQUEST, message));
        }
        if request.uri().path() != "/health" && !self.opens(header(AUTHORIZATION)) {
            return Err(ApiError::key());
        }
        Ok(())
    }

    fn knows(&self, host: &str, local: Option<SocketAddr>) -> bool {
        let name = without_port(host);
        let same = |known: &str| known.eq_ignore_ascii_case(name);
        LOOPBACK.iter().any(|known| same(known))
            || self.hosts.iter().any(|known| same(known))
            || local.is_some_and(|local| same(&local.ip().to_string()))
    }

    fn opens(&self, authorization: Option<&str>) -> bool {
        let Some(key) = &self.key else { return true };
        let given = authorization.and_then(|value| {
            let (scheme, given) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(given.trim())
        });
        given.is_some_and(|given| equal(given.as_bytes(), key.as_bytes()))
    }
}

/// A Host without its port, and an address of IPv6 without its brackets.
fn without_port(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Compares every byte, so that the time says nothing of the key but its length.
fn equal(given: &[u8], key: &[u8]) -> bool {
    let differences = given.iter().zip(key).fold(0, |found, (a, b)| black_box(found | (a ^ b)));
    given.len() == key.len() && differences == 0
}

/// Lets through whoever may ask.
pub(super) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.guard.judge(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_ours_if_it_is_loopback_the_address_or_allowed() {
        let guard = Guard { hosts: vec!["models.example".into()], key: None };
        let local = Some("10.1.2.3:8000".parse().unwrap());
        for (host, ours) in [
            ("localhost", true),
            ("LocalHost:8000", true),
            ("127.0.0.1:1", true),
            ("[::1]:8000", true),
            ("[::1]", true),
            ("10.1.2.3:8000", true),
            ("10.1.2.4:8000", false),
            ("models.example", true),
            ("models.example:443", true),
            ("evil.example", false),
            ("localhost.evil.example:8000", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(guard.knows(host, local), ours, "{host}");
        }
    }

    #[test]
    fn a_key_opens_only_whole_and_as_a_bearer() {
        let guard = Guard { key: Some("secret".into()), hosts: Vec::new() };
        for (given, opens) in [
            (None, false),
            (Some("secret"), false),
            (Some("Basic secret"), false),
            (Some("Bearer secre"), false),
            (Some("Bearer secrets"), false),
            (Some("Bearer "), false),
            (Some("Bearer secret"), true),
            (Some("bearer secret"), true),
        ] {
            assert_eq!(guard.opens(given), opens, "{given:?}");
        }
        assert!(Guard::default().opens(None), "without a key everyone may ask");
    }
}
