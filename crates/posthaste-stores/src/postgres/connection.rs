//! Connections: TLS, session settings, and the questions that every new connection is asked.

use std::{future::poll_fn, path::Path, sync::Arc};

use posthaste_engine::StoreError;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio_postgres::{AsyncMessage, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    config::{PostgresConfig, SslMode},
    error::classify,
};

const OPERATION: &str = "connect";

/// `force_generic_plan`: a custom plan of a read costs more than the read (it plans 16 leaves anew).
/// Without sequential scans, bitmaps and sorts no statistics can tempt the planner into reading a whole
/// leaf: it merges the leaves by their indexes, and stops at the limit.
/// A lost client must not hold locks.
pub(super) const SESSION: &str = "
    set plan_cache_mode = force_generic_plan;
    set jit = off;
    set enable_seqscan = off;
    set enable_bitmapscan = off;
    set enable_sort = off;
    set max_parallel_workers_per_gather = 0;
    set synchronous_commit = on;
    set idle_in_transaction_session_timeout = '30s';
";

/// What a connection is for: how long its statements may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A poll that finds an hours-long transaction finished reads everything since, cold.
    Read,
    /// Short statements of one row or a few.
    Change,
    /// As long as it takes; another `init` may go first.
    Migrate,
}

impl Work {
    fn time_outs(self) -> &'static str {
        match self {
            Self::Read => "set statement_timeout = '10min'; set lock_timeout = '5s'",
            Self::Change => "set statement_timeout = '30s'; set lock_timeout = '5s'",
            Self::Migrate => "set statement_timeout = 0; set lock_timeout = '1min'",
        }
    }
}

/// Makes connections to one server, or to the primary among several.
#[derive(Debug)]
pub(super) struct Connector {
    config: PostgresConfig,
    tls: ClientConfig,
}

impl Connector {
    pub(super) fn new(config: PostgresConfig) -> Result<Self, StoreError> {
        let tls = tls_config(config.ssl_mode, config.ssl_root_cert.as_deref())?;
        Ok(Self { config, tls })
    }

    /// A new session with our settings. Dropping the client ends the connection.
    pub(super) async fn connect(&self, work: Work) -> Result<Client, StoreError> {
        self.connect_and(work, |_| ()).await
    }

    /// The same, and `notified` is told of each notification's channel.
    pub(super) async fn connect_and(
        &self,
        work: Work,
        notified: impl Fn(&str) + Send + 'static,
    ) -> Result<Client, StoreError> {
        let tls = MakeRustlsConnect::new(self.tls.clone());
        let (client, mut connection) = self
            .config
            .driver
            .connect(tls)
            .await
            .map_err(|error| classify(OPERATION, error))?;
        tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(of))) => notified(of.channel()),
                    Some(Ok(_)) => {}
                    // Whoever waits for an answer learns of the error too.
                    Some(Err(error)) => {
                        tracing::debug!(%error, "PostgreSQL connection ended");
                        return;
                    }
                    None => return,
                }
            }
        });
        client
            .batch_execute(&format!("{SESSION}{}", work.time_outs()))
            .await
            .map_err(|error| classify(OPERATION, error))?;
        self.require_primary(&client).await?;
        Ok(client)
    }

    /// A replica gives snapshots but can store nothing.
    async fn require_primary(&self, client: &Client) -> Result<(), StoreError> {
        let row = client
            .query_typed_one("select pg_catalog.pg_is_in_recovery()", &[])
            .await
            .map_err(|error| classify(OPERATION, error))?;
        if !row.get::<_, bool>(0) {
            return Ok(());
        }
        Err(StoreError::Misconfigured {
            operation: OPERATION,
            reason: "the server is a read replica: name the primary, or several hosts with \
                     target_session_attrs=read-write"
                .to_owned(),
        })
    }
}

/// A connection that is made when it is needed and again when it broke.
#[derive(Debug)]
pub(super) struct Session {
    connector: Arc<Connector>,
    client: Mutex<Option<Client>>,
}

impl Session {
    pub(super) fn new(connector: Arc<Connector>) -> Self {
        Self {
            connector,
            client: Mutex::new(None),
        }
    }

    /// The connection, to its holder alone.
    pub(super) async fn client(&self) -> Result<MappedMutexGuard<'_, Client>, StoreError> {
        let mut slot = self.client.lock().await;
        if slot.as_ref().is_none_or(Client::is_closed) {
            *slot = Some(self.connector.connect(Work::Change).await?);
        }
        MutexGuard::try_map(slot, Option::as_mut).map_err(|_| StoreError::Bug {
            operation: OPERATION,
            reason: "a connection was made and is not there".to_owned(),
        })
    }
}

fn tls_config(mode: SslMode, root_cert: Option<&Path>) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong = |reason: String| StoreError::Misconfigured {
        operation: "prepare TLS",
        reason,
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?;
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        SslMode::Disable | SslMode::Prefer | SslMode::Require => Arc::new(Anyone(provider)),
        SslMode::VerifyCa | SslMode::VerifyFull => {
            let roots = Arc::new(authorities(root_cert).map_err(wrong)?);
            let full = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| wrong(error.to_string()))?;
            match mode {
                SslMode::VerifyCa => Arc::new(AnyName(full)),
                _ => full,
            }
        }
    };
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err("the system has no trusted authorities: give sslrootcert=FILE".to_owned());
        }
        return Ok(roots);
    };
    let name = file.display();
    let certificates = CertificateDer::pem_file_iter(file)
        .map_err(|error| format!("sslrootcert={name}: {error}"))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("sslrootcert={name}: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("sslrootcert={name}: {error}"))?;
    }
    if roots.is_empty() {
        return Err(format!("sslrootcert={name}: no certificate in it"));
    }
    Ok(roots)
}

/// `prefer` and `require`: encrypted, whoever the peer is, as libpq has it.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `verify-ca`: the chain counts, the name does not.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last, when the chain has been found good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
