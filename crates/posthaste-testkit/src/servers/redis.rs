//! Redis for tests: the distribution's own server.

mod client;

use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::daemon::{Daemon, installed};
use crate::account::Account;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::ServerCertificate;

pub use client::{RedisClient, Reply, StreamEntry};

/// Where packages put the program.
const PROGRAMS: [&str; 3] = [
    "/usr/bin/redis-server",
    "/usr/local/bin/redis-server",
    "/opt/homebrew/bin/redis-server",
];

/// A Redis server that syncs its log before it answers, unless a test says otherwise. The variable
/// `POSTHASTE_TEST_REDIS_SERVER` names another program, as a Valkey's.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process, by
/// `kill -9` too. Tests that leave the server alone share one, and give their streams names of
/// their own ([`unique_name`](crate::unique_name)). Calls block, from an asynchronous test as well.
#[derive(Debug)]
pub struct RedisServer {
    daemon: Daemon,
    port: Port,
    config: PathBuf,
    /// The port of a server that speaks nothing but TLS on the other one.
    plain_port: Option<Port>,
}

impl RedisServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static RedisServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When Redis is not installed (the message says how to install it), or the server does not
    /// come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server for one test, with lines of its configuration such as `"maxmemory 10mb"`.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with(config_lines: &[&str]) -> Self {
        let server = Self::prepared(None);
        let listen = format!("port {}", server.port());
        server.write_config(&[&[&*listen], config_lines].concat());
        server.launch();
        server
    }

    /// A server for one test that asks for TLS, and shows this certificate. The tests' own client
    /// has another port.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate) -> Self {
        let plain_port = Port::reserve();
        let listen = format!("port {}", plain_port.number());
        let server = Self::prepared(Some(plain_port));
        let file = |name, pem| server.daemon.write(name, pem).display().to_string();
        server.write_config(&[
            &listen,
            &format!("tls-port {}", server.port()),
            &format!(
                "tls-cert-file {}",
                file("server.crt", &certificate.certificate_pem)
            ),
            &format!("tls-key-file {}", file("server.key", &certificate.key_pem)),
            "tls-ca-cert-dir /etc/ssl/certs",
            "tls-auth-clients no",
        ]);
        server.launch();
        server
    }

    fn prepared(plain_port: Option<Port>) -> Self {
        // The user that the package makes.
        let daemon = Daemon::new("Redis", Account::unless_root("redis"));
        let config = daemon.folder().join("redis.conf");
        Self {
            daemon,
            port: Port::reserve(),
            config,
            plain_port,
        }
    }

    fn write_config(&self, lines: &[&str]) {
        let config = format!(
            "bind 127.0.0.1\n\
             dir {}\n\
             save \"\"\n\
             appendonly yes\n\
             appendfsync always\n\
             repl-diskless-sync-delay 0\n\
             {}\n",
            self.daemon.folder().display(),
            lines.join("\n")
        );
        self.daemon.write("redis.conf", &config);
    }

    fn launch(&self) {
        let mut command = self.daemon.command(&program());
        command.arg(&self.config);
        self.daemon
            .launch(command, |log| log.contains("Ready to accept connections"));
    }

    /// The address, without a login.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The address for a login as an address has it: `user:password`.
    #[must_use]
    pub fn url_of(&self, login: &str) -> String {
        format!("redis://{login}@127.0.0.1:{}", self.port())
    }

    /// [`Self::url`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy) -> String {
        format!("redis://127.0.0.1:{}", proxy.port())
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A connection of the tests' own.
    ///
    /// # Panics
    ///
    /// When nothing listens.
    #[must_use]
    pub fn client(&self) -> RedisClient {
        let plain = self.plain_port.as_ref().map(Port::number);
        RedisClient::connect(plain.unwrap_or_else(|| self.port()))
    }

    /// Kills the server (`kill -9`), even while it is paused; returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill9(&self) {
        self.daemon.kill9();
    }

    /// Stops the server in order (SIGTERM); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Lets the server stand still (SIGSTOP): connections stay open.
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

    /// Starts the server again with its data, at the same port.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}

fn program() -> PathBuf {
    if let Some(other) = env::var_os("POSTHASTE_TEST_REDIS_SERVER") {
        return other.into();
    }
    installed("Redis", &PROGRAMS, "redis-server")
}
