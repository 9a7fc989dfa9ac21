//! Where a server is.

use hyper::Uri;
use hyper::header::HeaderValue;

/// A server, and the key that it asks for.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) secure: bool,
    /// Everything before `/completions`, without a slash at its end.
    base: String,
    authorization: Option<HeaderValue>,
}

/// What cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Write the whole address.
    #[error("{url}: a server's address is like http://127.0.0.1:8000, {reason}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// A key is one line of printable characters.
    #[error("the API key has characters that no header can have")]
    Key,
}

impl Endpoint {
    /// Reads an address such as `http://127.0.0.1:8000` or `https://host/v1`; `/v1` is added where there is no path.
    ///
    /// # Errors
    /// It is no such address, or the key fits no header.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, EndpointError> {
        let wrong = |reason: &str| EndpointError::Url { url: url.into(), reason: reason.into() };
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("and this is none: {error}")))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(wrong(&format!("and `{other}` is not http or https"))),
            None => return Err(wrong("with http:// or https:// before it")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("with a host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("without a user: name the key's variable with --api-key-env"));
        }
        if uri.query().is_some() {
            return Err(wrong("without a query"));
        }
        let path = uri.path().trim_end_matches('/');
        let base = if path.is_empty() { "/v1" } else { path }.to_owned();
        let authorization = key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| EndpointError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            secure,
            base,
            authorization: authorization.transpose()?,
        })
    }

    /// The path of one of the server's answers, such as `completions`.
    pub(crate) fn path(&self, of: &str) -> String {
        format!("{}/{of}", self.base)
    }

    /// What the `Host` header says.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", if self.secure { "https" } else { "http" }, self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how() {
        for (url, expected) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
            ("http://localhost/", "http://localhost:80/v1"),
            ("https://example.org/openai/v1/", "https://example.org:443/openai/v1"),
            ("http://[::1]:9", "http://[::1]:9/v1"),
        ] {
            assert_eq!(Endpoint::new(url, None).unwrap().to_string(), expected, "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        for (url, reason) in [
            ("127.0.0.1:8000", "http:// or https:// before it"),
            ("ftp://a", "`ftp` is not http or https"),
            ("http://a?b=c", "without a query"),
            ("http://user:word@a", "--api-key-env"),
            ("", "this is none"),
        ] {
            let error = Endpoint::new(url, None).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
        assert_eq!(Endpoint::new("http://a", Some("two\nlines")).unwrap_err(), EndpointError::Key);
        assert!(!format!("{:?}", Endpoint::new("http://a", Some("secret")).unwrap()).contains("secret"));
    }
}
