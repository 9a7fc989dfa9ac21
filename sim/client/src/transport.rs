//! Bytes to a server and back: TCP, and TLS over it for https.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::endpoint::Endpoint;

/// Opens connections to one server.
pub(crate) struct Transport {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// An open connection.
pub(crate) enum Opened {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Reads whom the system trusts, if the server is behind https.
    ///
    /// # Errors
    /// It trusts nobody, or the host is no name that a certificate can have.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, String> {
        let tls = endpoint.secure.then(|| tls(&endpoint.host)).transpose()?;
        Ok(Self { host: endpoint.host.clone(), port: endpoint.port, tls })
    }

    pub(crate) async fn open(&self) -> io::Result<Opened> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        // A request goes out when it is written, not when more has gathered.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Opened::Plain(stream)),
            Some((connector, name)) => Ok(Opened::Secure(Box::new(connector.connect(name.clone(), stream).await?))),
        }
    }
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(
            "this system has no certificates to trust: install ca-certificates, or name a file in SSL_CERT_FILE".into(),
        );
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}
