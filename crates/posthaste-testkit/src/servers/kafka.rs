//! Apache Kafka for tests: the real broker in KRaft mode, one node or several.

#[cfg(feature = "kafka")]
mod admin;
mod classes;
#[cfg(feature = "kafka")]
mod console;
mod install;
mod more;
mod properties;
mod rights;
mod transactions;
mod waiting;
mod wire;

#[cfg(feature = "kafka")]
pub use console::{Isolation, KafkaMessage};
pub use more::MoreBroker;
pub use properties::{SASL_USERS, SaslUser};

use super::daemon::Daemon;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::{ServerCertificate, TestCa};
use crate::ways::Ways;
use install::Programs;
use properties::{Ports, SecurePorts};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The last words of the broker's log when it starts, and not before it can serve.
const READY: &str = "Kafka Server started";

/// Key and certificate of a secure broker, in its folder.
const CERTIFICATE: &str = "server.pem";

/// A Kafka broker, its own unless `POSTHASTE_TEST_KAFKA` named a running one.
///
/// It makes no topic by itself, so that a missing one is really missing. Dropping it kills the
/// broker and deletes its data; so does the death of the test process, by `kill -9` too. Calls
/// block, from an asynchronous test as well.
#[derive(Debug)]
pub struct KafkaServer {
    bootstrap: String,
    direct: String,
    /// None: somebody else's broker.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    daemon: Daemon,
    programs: Programs,
    config: PathBuf,
    ports: Ports,
    proxy: Option<Proxy>,
    ways: Ways,
}

/// Chooses a broker's settings; made by [`KafkaServer::builder`].
#[derive(Debug, Default)]
pub struct Builder {
    properties: Vec<(String, String)>,
    certificate: Option<ServerCertificate>,
    proxied: bool,
    ways: usize,
    for_speed: bool,
}

impl Builder {
    /// A line of `server.properties`, such as `("message.max.bytes", "100000")`; it overrides the
    /// kit's own line for the name.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a TLS listener ([`KafkaServer::ssl`]) and one with TLS and logins
    /// ([`KafkaServer::sasl_ssl`], [`SASL_USERS`]), with a certificate for `localhost` and
    /// `127.0.0.1`, and an authorizer: the users may do nothing until they are allowed to
    /// ([`KafkaServer::allow_write`]), whoever comes without login may do everything.
    #[must_use]
    pub fn secure(self, ca: &TestCa) -> Self {
        self.secure_for(ca, &["localhost", "127.0.0.1"])
    }

    /// [`Self::secure`] with a certificate for other names, to see the name check refuse.
    #[must_use]
    pub fn secure_for(mut self, ca: &TestCa, names: &[&str]) -> Self {
        self.certificate = Some(ca.server_certificate(names));
        self
    }

    /// Puts a [`Proxy`] in front of [`KafkaServer::bootstrap`]: the broker advertises the proxy's
    /// address, so that all of a client's connections go through it. The kit's own calls do not.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Adds so many listeners with a [`Proxy`] each ([`KafkaServer::ways`]), so that clients can be
    /// cut off one by one: all connections of a client stay on the listener where it began.
    #[must_use]
    pub fn ways(mut self, count: usize) -> Self {
        self.ways = count;
        self
    }

    /// Lets Java compile for speed, for a broker that is measured.
    #[must_use]
    pub fn for_speed(mut self) -> Self {
        self.for_speed = true;
        self
    }

    /// Starts the broker and returns when it serves.
    ///
    /// # Panics
    ///
    /// When Kafka is not installed (the message says how to install it), or the broker does not
    /// come up (the message has its log).
    #[must_use]
    pub fn start(self) -> KafkaServer {
        let daemon = Daemon::new("Kafka", install::account());
        let programs = classes::programs(&daemon, self.for_speed);
        let ports = Ports::reserve(self.certificate.is_some(), self.ways);
        let proxy = self
            .proxied
            .then(|| Proxy::to_local_port(ports.client.number()).expect("start a proxy"));
        let client_port = proxy
            .as_ref()
            .map_or(ports.client.number(), |proxy| proxy.port());
        let ways = Ways::to(ports.ways.iter().map(Port::number));
        let data = programs.formatted_data(&daemon);
        let mut lines = properties::base(&ports, client_port, &ways, &data);
        if let Some(ServerCertificate {
            certificate_pem,
            key_pem,
        }) = &self.certificate
        {
            let file = daemon.write(CERTIFICATE, &format!("{key_pem}{certificate_pem}"));
            lines.push_str(&properties::secure(&file));
        }
        for (name, value) in self.properties {
            // Of several lines for one name, Java takes the last.
            lines.push_str(&format!("{name}={value}\n"));
        }
        let server = KafkaServer {
            bootstrap: format!("127.0.0.1:{client_port}"),
            direct: format!("127.0.0.1:{}", ports.direct.number()),
            own: Some(Own {
                config: daemon.write("server.properties", &lines),
                daemon,
                programs,
                ports,
                proxy,
                ways,
            }),
        };
        server.start_again();
        server
    }
}

impl KafkaServer {
    /// Settings for a broker of one test, which may crash it.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The broker that all tests of this process share; make topics with names of their own, and
    /// leave the broker's state alone.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static KafkaServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        server.get_or_insert_with(|| {
            let running = std::env::var("POSTHASTE_TEST_KAFKA").unwrap_or_default();
            // Never dropped: the guard process stops the broker when this process ends.
            Box::leak(Box::new(if running.is_empty() {
                Self::start()
            } else {
                Self {
                    bootstrap: running.clone(),
                    direct: running,
                    own: None,
                }
            }))
        })
    }

    /// A broker for one test, with the kit's settings.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A broker for one test, with further or other lines of `server.properties`.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    #[must_use]
    pub fn start_with(properties: &[(&str, &str)]) -> Self {
        let builder = properties
            .iter()
            .fold(Self::builder(), |builder, (name, value)| {
                builder.property(name, value)
            });
        builder.start()
    }

    /// A broker for one test with TLS, logins and rights, as [`Builder::secure`] says.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    #[must_use]
    pub fn start_secure(ca: &TestCa) -> Self {
        let server = Self::builder().secure(ca).start();
        #[cfg(feature = "kafka")]
        server.each_user_logs_in(ca);
        server
    }

    /// `host:port` for clients: plaintext, no login; the proxy's address if there is one.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    /// `host:port` beside the proxy: plaintext, no login.
    #[must_use]
    pub fn direct(&self) -> String {
        self.direct.clone()
    }

    /// `host:port` of the listener with TLS and without login, of a secure broker.
    ///
    /// # Panics
    ///
    /// When the broker is not a secure one.
    #[must_use]
    pub fn ssl(&self) -> String {
        format!("127.0.0.1:{}", self.secure_ports().ssl.number())
    }

    /// `host:port` of the listener with TLS and logins (SASL), of a secure broker.
    ///
    /// # Panics
    ///
    /// When the broker is not a secure one.
    #[must_use]
    pub fn sasl_ssl(&self) -> String {
        format!("127.0.0.1:{}", self.secure_ports().sasl_ssl.number())
    }

    /// The proxy in front of [`Self::bootstrap`].
    ///
    /// # Panics
    ///
    /// When the broker was started without [`Builder::proxied`].
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        let proxy = self.own().proxy.as_ref();
        proxy.expect("this broker was started without a proxy")
    }

    /// The ways that [`Builder::ways`] asked for; each client bootstraps at their host.
    ///
    /// # Panics
    ///
    /// When the broker is not ours.
    #[must_use]
    pub fn ways(&self) -> &Ways {
        &self.own().ways
    }

    /// Stops the broker in order (SIGTERM); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When the broker is not ours, or does not run.
    pub fn stop(&self) {
        self.own().daemon.stop();
    }

    /// Kills the broker (`kill -9`), even while it is paused; returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When the broker is not ours, or does not run.
    pub fn kill9(&self) {
        self.own().daemon.kill9();
    }

    /// Lets the broker stand still (SIGSTOP): connections stay open, and the kernel still accepts
    /// new ones and some bytes.
    ///
    /// # Panics
    ///
    /// When the broker is not ours, or does not run.
    pub fn pause(&self) {
        self.own().daemon.pause();
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Panics
    ///
    /// When the broker is not ours, or does not run.
    pub fn resume(&self) {
        self.own().daemon.resume();
    }

    /// Starts the stopped broker again on its ports and data; returns when it serves, which can
    /// take ten seconds after [`Self::kill9`].
    ///
    /// # Panics
    ///
    /// When the broker is not ours, runs already, or does not come up.
    pub fn start_again(&self) {
        let own = self.own();
        let mut command = own.programs.java(&own.daemon);
        command.arg("kafka.Kafka").arg(&own.config);
        own.daemon.launch(command, |log| log.contains(READY));
    }

    /// Gives a secure broker another certificate, which it reads when it starts again.
    ///
    /// # Panics
    ///
    /// When the broker is not a secure one.
    pub fn renew_certificate(&self, renewed: &ServerCertificate) {
        // Asked for the message alone.
        let _ = self.secure_ports();
        let ServerCertificate {
            certificate_pem,
            key_pem,
        } = renewed;
        let content = format!("{key_pem}{certificate_pem}");
        self.own().daemon.write(CERTIFICATE, &content);
    }

    /// The broker's log, for a failure's message.
    ///
    /// # Panics
    ///
    /// When the broker is not ours.
    #[must_use]
    pub fn log(&self) -> String {
        self.own().daemon.log()
    }

    /// The folder of Kafka's jars, which hold its command line tools too.
    ///
    /// # Panics
    ///
    /// When Kafka is not installed (the message says how to install it).
    #[must_use]
    pub fn jars() -> PathBuf {
        install::cached_jars()
    }

    fn secure_ports(&self) -> &SecurePorts {
        let ports = self.own().ports.secure.as_ref();
        ports.expect("this broker was started without TLS: see Builder::secure")
    }

    fn own(&self) -> &Own {
        self.own
            .as_ref()
            .expect("this broker was given by POSTHASTE_TEST_KAFKA: tests cannot stop or change it")
    }
}
