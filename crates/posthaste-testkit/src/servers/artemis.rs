//! ActiveMQ Artemis for tests: a broker of AMQP 1.0, from Maven.

#[cfg(feature = "amqp10")]
mod client;
mod config;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::daemon::{Daemon, link_or_copy};
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::{ServerCertificate, TestCa};
use config::Config;

#[cfg(feature = "amqp10")]
pub use client::{ArtemisClient, ArtemisMessage, Property};

const VERSION: &str = "2.40.0";

/// User and password of the tests' own client, who may do anything.
pub const ADMIN: (&str, &str) = ("admin", "pass/word");

/// User and password of somebody who may send to addresses below `auto.allowed.`, and nothing more.
pub const RELAY: (&str, &str) = ("relay", "pw");

/// A broker whose queues are on its disk.
///
/// It makes an address when somebody first comes to it, as it is shipped: a topic, unless somebody
/// asks for a queue. If the name begins with `auto.`, it is a queue; with `fails.`, one that
/// refuses messages when it is full; with `blocks.`, one that gives no credit then. With `fixed.`
/// it makes none.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the broker alone share one, and give their addresses names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct ArtemisServer {
    daemon: Daemon,
    port: Port,
}

impl ArtemisServer {
    /// The broker that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static ArtemisServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the broker when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A broker for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When Artemis is not in the cache (the message says how to download it), or the broker does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(";saslMechanisms=PLAIN", true)
    }

    /// A broker for one test that lets everybody in.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_open() -> Self {
        Self::start_with(";saslMechanisms=ANONYMOUS", false)
    }

    /// A broker for one test that speaks TLS alone, and shows this certificate.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate) -> Self {
        Self::prepared().tls(certificate, None)
    }

    /// The same, which asks for a certificate of this authority, and takes it for the login. The
    /// tests' own client does not come in.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls_for(certificate: &ServerCertificate, clients_of: &TestCa) -> Self {
        Self::prepared().tls(certificate, Some(clients_of))
    }

    fn start_with(acceptor: &str, has_logins: bool) -> Self {
        let server = Self::prepared();
        server.write_config(acceptor, has_logins);
        server.launch();
        server
    }

    fn prepared() -> Self {
        let server = Self {
            // It needs no user of its own.
            daemon: Daemon::new("Artemis", Account::unless_root("nobody")),
            port: Port::reserve(),
        };
        let jars = server.daemon.make_folder("jars");
        for jar in fs::read_dir(cached_jars()).expect("read the cache") {
            let jar = jar.expect("read the cache");
            link_or_copy(&jar.path(), &jars.join(jar.file_name()));
        }
        server.daemon.make_folder("etc");
        server
    }

    fn tls(self, certificate: &ServerCertificate, clients_of: Option<&TestCa>) -> Self {
        let both = format!("{}{}", certificate.key_pem, certificate.certificate_pem);
        self.daemon.write("etc/server.pem", &both);
        let mut acceptor =
            ";sslEnabled=true;keyStoreType=PEM;keyStorePath=etc/server.pem".to_owned();
        match clients_of {
            None => acceptor.push_str(";saslMechanisms=PLAIN"),
            Some(ca) => {
                let pem = fs::read_to_string(ca.certificate_file()).expect("the authority");
                self.daemon.write("etc/clients.pem", &pem);
                acceptor.push_str(
                    ";needClientAuth=true;trustStoreType=PEMCA;trustStorePath=etc/clients.pem\
                     ;saslMechanisms=EXTERNAL",
                );
            }
        }
        self.write_config(&acceptor, true);
        self.launch();
        self
    }

    fn write_config(&self, acceptor: &str, has_logins: bool) {
        let config = Config {
            port: self.port(),
            acceptor,
            has_logins,
        };
        let broker = self.daemon.write("etc/broker.xml", &config.broker());
        let bootstrap = config::bootstrap(broker.to_str().expect("a path of text"));
        for (name, text) in [
            ("etc/bootstrap.xml", &*bootstrap),
            ("etc/management.xml", config::MANAGEMENT),
            ("etc/login.config", config::LOGIN),
            ("etc/users.properties", &config.users()),
            ("etc/roles.properties", config::ROLES),
            ("etc/certificates.properties", config::CERTIFICATES),
        ] {
            self.daemon.write(name, text);
        }
    }

    fn launch(&self) {
        let mut command = self.daemon.command(Path::new("java"));
        let instance = format!(
            "-Dartemis.instance.uri=file:{}/",
            self.daemon.folder().display()
        );
        command
            .args([
                // A server of a test is gone before compiling for speed pays.
                "-XX:TieredStopAtLevel=1",
                "-Xmx512m",
                "-XX:+UseSerialGC",
                // Its file would lie outside the server's folder and outlive a kill.
                "-XX:-UsePerfData",
                "-Dartemis.home=.",
                "-Dartemis.instance=.",
                "-Dartemis.instance.etc=etc",
                &instance,
                "-Djava.security.auth.login.config=etc/login.config",
                "-Dlog4j2.level=INFO",
                "-cp",
                "jars/*",
                "org.apache.activemq.artemis.cli.Artemis",
                "run",
            ])
            .env_remove("JAVA_TOOL_OPTIONS");
        self.daemon
            .launch(command, |log| log.contains("Server is now active"));
    }

    /// The address of a sink, up to the `/`, for a login as an address has it: `user:password@`, or
    /// nothing.
    #[must_use]
    pub fn url_of(&self, login: &str) -> String {
        format!("amqp10://{login}127.0.0.1:{}", self.port())
    }

    /// The same for [`ADMIN`].
    #[must_use]
    pub fn url(&self) -> String {
        Self::url_at(&format!("127.0.0.1:{}", self.port()))
    }

    /// [`Self::url`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy) -> String {
        Self::url_at(&format!("127.0.0.1:{}", proxy.port()))
    }

    /// [`Self::url`] by way of this `host:port`.
    #[must_use]
    pub fn url_at(host: &str) -> String {
        format!("amqp10://admin:pass%2Fword@{host}")
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A client of the tests' own.
    #[cfg(feature = "amqp10")]
    #[must_use]
    pub fn client(&self) -> ArtemisClient {
        ArtemisClient::new(self.port())
    }

    /// The same by way of a proxy in front of [`Self::port`].
    #[cfg(feature = "amqp10")]
    #[must_use]
    pub fn client_through(&self, proxy: &Proxy) -> ArtemisClient {
        ArtemisClient::new(proxy.port())
    }

    /// Kills the broker (`kill -9`), even while it is paused; returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill9(&self) {
        self.daemon.kill9();
    }

    /// Stops the broker in order (SIGTERM); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Lets the broker stand still (SIGSTOP): connections stay open.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn pause(&self) {
        self.daemon.pause();
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn resume(&self) {
        self.daemon.resume();
    }

    /// Starts the broker again with its data, at the same port.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}

fn cached_jars() -> PathBuf {
    let cached = cache_dir().join(format!("artemis-{VERSION}"));
    assert!(
        cached.exists(),
        "Artemis {VERSION} is not in {}; this downloads it: ./test --install",
        cached.display()
    );
    cached
}
