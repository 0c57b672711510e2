//! Connections: TLS, the questions that every new connection is asked, and how a connection ends.

use std::{
    future::{pending, poll_fn},
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

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
use tokio::{
    sync::{MappedMutexGuard, Mutex, MutexGuard, oneshot, watch},
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Connection, SimpleQueryMessage, Socket, config::LoadBalanceHosts,
    error::SqlState, tls::TlsStream,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use super::{
    client::{Client, Held},
    config::{PostgresConfig, SslMode},
    error::classify,
    session_settings::Work,
};

const OPERATION: &str = "connect";
/// A setting that only we make.
const MARK: &str = "posthaste.connection";
/// For TLS, authentication and our questions; the driver's own limit covers nothing but the
/// network's handshake. By default both together are less than a command waits for any answer: our
/// words say which server is meant.
const GREETING_MAX: Duration = Duration::from_secs(4);
/// A connection that nobody holds any more ends in order within this time, or is cut.
const PARTING_MAX: Duration = Duration::from_secs(5);

/// Makes connections to one server, or to the primary among several.
#[derive(Debug)]
pub(super) struct Connector {
    config: PostgresConfig,
    tls: ClientConfig,
    /// Cuts every connection.
    cut: watch::Sender<()>,
    /// The last attempt met a host that did not answer, or was given up by its caller: of several
    /// hosts another one is to have its turn.
    met_silence: AtomicBool,
}

/// Notes an attempt that does not come to its end.
struct Attempt<'a>(&'a AtomicBool);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Connector {
    pub(super) fn new(config: PostgresConfig) -> Result<Self, StoreError> {
        let tls = tls_config(config.ssl_mode, config.ssl_root_cert.as_deref())?;
        Ok(Self {
            config,
            tls,
            cut: watch::Sender::default(),
            met_silence: AtomicBool::new(false),
        })
    }

    /// Cuts every connection, and those that are being made. Waits for none of them.
    pub(super) fn cut(&self) {
        self.cut.send_replace(());
    }

    /// How long a new connection may take.
    fn limit(&self) -> Duration {
        let driver = &self.config.driver;
        let hosts = u32::try_from(driver.get_hosts().len()).unwrap_or(u32::MAX);
        let each = driver.get_connect_timeout().copied().unwrap_or_default();
        each.saturating_mul(hosts).saturating_add(GREETING_MAX)
    }

    /// A new connection with our settings.
    pub(super) async fn connect(&self, work: Work) -> Result<Client, StoreError> {
        self.connect_and(work, |_| ()).await
    }

    /// The same, and `notified` is told of each notification's channel.
    pub(super) async fn connect_and(
        &self,
        work: Work,
        notified: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Client, StoreError> {
        let limit = self.limit();
        let attempt = Attempt(&self.met_silence);
        let connected = timeout(limit, self.greet(work, notified)).await;
        drop(attempt);
        self.met_silence.store(connected.is_err(), Relaxed);
        let connected = connected.unwrap_or_else(|_| {
            Err(StoreError::Unavailable {
                operation: OPERATION,
                reason: format!("the server did not answer within {limit:?}"),
                source: None,
            })
        });
        connected.map_err(|error| self.says_where(error))
    }

    /// Adds server, database and role to what people read first when something is not set up as it
    /// should be.
    pub(super) fn says_where(&self, error: StoreError) -> StoreError {
        error.at(&self.config.place())
    }

    async fn greet(
        &self,
        work: Work,
        notified: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Client, StoreError> {
        // Not to be met in a session that somebody else began.
        let mark = Uuid::new_v4().simple().to_string();
        let options = format!("{} -c {MARK}={mark}", work.options());
        let dialled = match self.dial(Some(&options), notified.clone()).await {
            Err(error) if self.may_be_refused_by_a_pooler(&error) => {
                self.dial(None, notified).await
            }
            dialled => dialled,
        };
        let failed = |error| classify(OPERATION, error);
        let (driver, held, server_version) = dialled.map_err(failed)?;
        if ask(&driver, &mark).await? {
            let own = Client::own(driver, held, server_version).await;
            return own.map_err(failed);
        }
        tracing::debug!("the connection leads through a transaction pooler");
        Ok(Client::pooled(driver, held, server_version, work))
    }

    /// `options`: those that the session is to begin with. Answers the server's major version too.
    async fn dial(
        &self,
        options: Option<&str>,
        notified: impl Fn(&str) + Send + 'static,
    ) -> Result<(tokio_postgres::Client, Held, u32), tokio_postgres::Error> {
        let mut config = self.config.driver.clone();
        if let Some(ours) = options {
            let given = config.get_options().unwrap_or_default();
            let mut all = format!("{given}{ours}");
            if config.get_application_name().is_none() {
                // Not as a parameter: a pooler would leave it to applications that give no name.
                all.push_str(" -c application_name=posthaste");
            }
            config.options(all);
        }
        if self.met_silence.load(Relaxed) {
            config.load_balance_hosts(LoadBalanceHosts::Random);
        }
        let mut cut = self.cut.subscribe();
        let tls = MakeRustlsConnect::new(self.tls.clone());
        let (client, connection) = config.connect(tls.clone()).await?;
        let server_version = major(connection.parameter("server_version").unwrap_or_default());
        let (held, left) = oneshot::channel();
        let cancel = client.cancel_token();
        tokio::spawn(async move {
            let is_cut = async {
                if cut.changed().await.is_err() {
                    pending().await
                }
            };
            // Time for the answers to what was sent, and to tell the server, if it still answers.
            let parted = async {
                drop(left.await);
                tokio::time::sleep(PARTING_MAX).await;
            };
            {
                let messages = pin!(pass_on(connection, notified));
                tokio::select! {
                    () = messages => return,
                    () = is_cut => {}
                    () = parted => {}
                }
            }
            // Nobody waits for what the server may still be doing for us.
            if let Ok(Err(error)) = timeout(PARTING_MAX, cancel.cancel_query(tls)).await {
                tracing::debug!(%error, "a statement that was given up is not cancelled");
            }
        });
        Ok((client, held, server_version))
    }

    /// Whether the same without options may succeed. Of several hosts only the last one's error is
    /// known.
    fn may_be_refused_by_a_pooler(&self, error: &tokio_postgres::Error) -> bool {
        let refused = [
            SqlState::PROTOCOL_VIOLATION,
            SqlState::FEATURE_NOT_SUPPORTED,
        ];
        self.config.driver.get_hosts().len() > 1
            || error.code().is_some_and(|code| refused.contains(code))
    }
}

/// Runs a connection to its end.
async fn pass_on<T: TlsStream + Unpin>(
    mut connection: Connection<Socket, T>,
    notified: impl Fn(&str),
) {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(of))) => notified(of.channel()),
            Some(Ok(_)) => {}
            // Callers that wait for an answer get the error too.
            Some(Err(error)) => {
                tracing::debug!(%error, "PostgreSQL connection ended");
                return;
            }
            None => return,
        }
    }
}

/// Of a version as servers give it: `15.4 (Debian 15.4-1)`, `19beta1`.
fn major(version: &str) -> u32 {
    let digits = version.find(|c: char| !c.is_ascii_digit());
    let major = version.get(..digits.unwrap_or(version.len()));
    major.and_then(|major| major.parse().ok()).unwrap_or(0)
}

/// Whether the session is our own: one that began with this mark. Refused are a replica, which
/// gives snapshots but can store nothing, and a session without triggers. Nothing is known of the
/// session's settings yet: the statement names no operator, and has a time-out of its own.
async fn ask(client: &tokio_postgres::Client, mark: &str) -> Result<bool, StoreError> {
    let questions = format!(
        "begin; set local statement_timeout = '30s';
         select pg_catalog.pg_is_in_recovery() as replica,
             pg_catalog.current_setting('{MARK}', true) as mark,
             pg_catalog.current_setting('session_replication_role') as triggers;
         commit"
    );
    let answers = client
        .simple_query(&questions)
        .await
        .map_err(|error| classify(OPERATION, error))?;
    let answer = |name| {
        answers.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(name),
            _ => None,
        })
    };
    let wrong = |reason: &str| StoreError::Misconfigured {
        operation: OPERATION,
        reason: reason.to_owned(),
    };
    if answer("replica") == Some("t") {
        return Err(wrong(
            "the server is a read replica: name the primary, or several hosts with \
             target_session_attrs=read-write",
        ));
    }
    if answer("triggers") == Some("replica") {
        return Err(wrong(
            "session_replication_role is `replica` for this role or database, which switches \
             foreign keys and triggers off: alter role (or database) NAME reset \
             session_replication_role",
        ));
    }
    Ok(answer("mark") == Some(mark))
}

/// A connection that is made when it is needed, and again when it broke or when a call on it was
/// given up.
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
        if !slot.as_ref().is_some_and(Client::is_idle) {
            // Gone before the new one is asked for.
            *slot = None;
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
