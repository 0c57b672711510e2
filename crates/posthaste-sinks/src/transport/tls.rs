//! TLS to the broker: rustls on `ring`, roots of the system or of a file.

use std::{path::PathBuf, sync::Arc};

use posthaste_engine::{OptionSpec, SinkError};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::TransportError;
use crate::address::Address;

/// Where certificates and keys lie. They are read anew for each connection, so that a renewed file
/// counts without a restart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    /// Authorities to trust instead of the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Our own certificate with its chain, and its key, for brokers that ask for one.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// The protocol that both sides must agree on, where a port may have several.
    pub(crate) protocol: Option<&'static str>,
    /// How an address asks for a connection without TLS, such as "write `amqp://`".
    pub(crate) without: &'static str,
}

impl Tls {
    /// The options of an address: the file of the authorities, of our certificate and of its key.
    /// Nothing where the address does not ask for TLS; `with` says how it would.
    pub(crate) fn of(
        address: &Address,
        [ca, cert, key]: [&OptionSpec; 3],
        is_asked: bool,
        with: &str,
        without: &'static str,
    ) -> Result<Option<Self>, SinkError> {
        if !is_asked {
            let mut files = [ca, cert, key].into_iter();
            return match files.find(|file| address.given(file).is_some()) {
                Some(file) => {
                    Err(address.misconfigured(format!("`{}` is for TLS; {with}", file.name)))
                }
                None => Ok(None),
            };
        }
        let identity = match (address.file(cert), address.file(key)) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(address.misconfigured(
                    "`cert_file` and `key_file` belong together: give both or none".to_owned(),
                ));
            }
        };
        Ok(Some(Self {
            ca_file: address.file(ca),
            identity,
            protocol: None,
            without,
        }))
    }

    /// The handshake, which proves that the broker is `host`.
    pub(crate) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TransportError> {
        self.wrap_by(&self.connector().await?, host, stream).await
    }

    /// Reads the files, for handshakes of several connections.
    pub(crate) async fn connector(&self) -> Result<TlsConnector, TransportError> {
        let tls = self.clone();
        // The system's roots are hundreds.
        let config = tokio::task::spawn_blocking(move || tls.config())
            .await
            .map_err(|_| TransportError::Connection("the TLS set-up broke down".to_owned()))??;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// The handshake with what was read before.
    pub(crate) async fn wrap_by(
        &self,
        connector: &TlsConnector,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TransportError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| wrong_setup(format!("`{host}` can be no name in a certificate")))?;
        let connected = connector.connect(name, stream).await;
        connected.map_err(|error| self.refusal(&error))
    }

    fn config(&self) -> Result<ClientConfig, TransportError> {
        let mut config = self.config_of_any_protocol()?;
        let protocols = self.protocol.iter();
        config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
        Ok(config)
    }

    fn config_of_any_protocol(&self) -> Result<ClientConfig, TransportError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong_setup(format!("TLS: {error}")))?
            .with_root_certificates(self.roots()?);
        let Some((cert_file, key_file)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates("cert_file", cert_file)?;
        let key = PrivateKeyDer::from_pem_file(key_file)
            .map_err(|error| unreadable("key_file", key_file, &error))?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong_setup(format!("cert_file and key_file: {error}")))
    }

    fn roots(&self) -> Result<RootCertStore, TransportError> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = &self.ca_file {
            for certificate in certificates("ca_file", file)? {
                roots
                    .add(certificate)
                    .map_err(|error| wrong_setup(format!("ca_file: {error}")))?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if roots.is_empty() {
            return Err(wrong_setup(
                "no certificate authority to trust was found; name one with `ca_file`".to_owned(),
            ));
        }
        Ok(roots)
    }

    fn refusal(&self, error: &std::io::Error) -> TransportError {
        let tls = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(_)) => {
                let fix = match self.ca_file {
                    Some(_) => "correct `ca_file`, or the host's name in the address",
                    None => "name the authority that signed it with `ca_file`",
                };
                wrong_setup(format!(
                    "the broker's certificate was refused: {error}; {fix}"
                ))
            }
            Some(rustls::Error::InvalidMessage(_)) => wrong_setup(format!(
                "the port does not speak TLS ({error}); correct the port, or {}",
                self.without
            )),
            _ => refused_us(error).unwrap_or_else(|| TransportError::io("TLS handshake", error)),
        }
    }
}

fn certificates(
    option: &str,
    file: &PathBuf,
) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(wrong_setup(format!(
            "{option}: `{}` holds no PEM certificate",
            file.display()
        ))),
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(option, file, &error)),
    }
}

fn unreadable(option: &str, file: &std::path::Path, error: &pem::Error) -> TransportError {
    wrong_setup(format!("{option}: `{}`: {error}", file.display()))
}

fn wrong_setup(reason: String) -> TransportError {
    TransportError::Setup(reason)
}

/// The error that the peer's alert means, if `error` is one. In TLS 1.3 it may come after the
/// handshake, with the first bytes that are read.
pub(crate) fn refused_us(error: &std::io::Error) -> Option<TransportError> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(tls, rustls::Error::AlertReceived(_)).then(|| {
        TransportError::Certificate(format!(
            "the broker refused our side of TLS: {error}; it may ask for a certificate \
             (`cert_file`, `key_file`)"
        ))
    })
}
