//! NATS for tests: the distribution's own server, one node with JetStream.

mod client;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::daemon::{Daemon, installed};
use crate::account::Account;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::ServerCertificate;

pub use client::{NatsClient, NatsMessage};

/// Where packages put the program; `PATH` of an ordinary user need not have it.
const PROGRAMS: [&str; 4] = [
    "/usr/sbin/nats-server",
    "/usr/bin/nats-server",
    "/usr/local/bin/nats-server",
    "/opt/homebrew/bin/nats-server",
];

/// User and password of the tests' own client, where a server asks for a login.
pub const ADMIN: (&str, &str) = ("admin", "pass/word");

/// A NATS server.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process, by
/// `kill -9` too. Tests that leave the server alone share one, and give their streams names of
/// their own ([`unique_name`](crate::unique_name)). Calls block, from an asynchronous test as well.
#[derive(Debug)]
pub struct NatsServer {
    daemon: Daemon,
    port: Port,
    config: PathBuf,
}

impl NatsServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static NatsServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When NATS is not installed (the message says how to install it), or the server does not come
    /// up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server for one test, with lines of its configuration such as `"max_connections: 1"`. Where
    /// they ask for a login, they let [`ADMIN`] in.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with(config_lines: &[&str]) -> Self {
        let server = Self::prepared();
        let store = server.daemon.make_folder("jetstream");
        let jetstream = format!("jetstream {{ store_dir: {} }}", json!(store));
        server.write_config(&[&[&*jetstream], config_lines].concat());
        server.launch();
        server
    }

    /// A server for one test without JetStream.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_without_jetstream() -> Self {
        let server = Self::prepared();
        server.write_config(&[]);
        server.launch();
        server
    }

    /// A server for one test that asks for TLS, and shows this certificate. The tests' own client
    /// speaks to it only with the line `allow_non_tls: true`.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate, config_lines: &[&str]) -> Self {
        let server = Self::prepared();
        let store = server.daemon.make_folder("jetstream");
        let write = |name, pem: &String| server.daemon.write(name, pem);
        let (cert, key) = (
            write("server.crt", &certificate.certificate_pem),
            write("server.key", &certificate.key_pem),
        );
        let jetstream = format!("jetstream {{ store_dir: {} }}", json!(store));
        let (cert, key) = (json!(cert), json!(key));
        let tls = format!("tls {{ cert_file: {cert}, key_file: {key} }}");
        server.write_config(&[&[&*jetstream, &*tls], config_lines].concat());
        server.launch();
        server
    }

    fn prepared() -> Self {
        // The user that the package makes.
        let daemon = Daemon::new("NATS", Account::unless_root("nats"));
        let config = daemon.folder().join("nats.conf");
        Self {
            daemon,
            port: Port::reserve(),
            config,
        }
    }

    fn write_config(&self, lines: &[&str]) {
        let config = format!(
            "listen: 127.0.0.1:{}\n\
             server_name: posthaste\n\
             # The most that it allows.\n\
             max_payload: 64MB\n\
             {}\n",
            self.port(),
            lines.join("\n")
        );
        self.daemon.write("nats.conf", &config);
    }

    fn launch(&self) {
        let mut command = self.daemon.command(&program());
        command.arg("-c").arg(&self.config);
        self.daemon
            .launch(command, |log| log.contains("Server is ready"));
    }

    /// The address, without a login.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// The address for a login as an address has it: `user:password`, or a token.
    #[must_use]
    pub fn url_of(&self, login: &str) -> String {
        format!("nats://{login}@127.0.0.1:{}", self.port())
    }

    /// [`Self::url`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy) -> String {
        format!("nats://127.0.0.1:{}", proxy.port())
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
    /// When the server does not let it in.
    #[must_use]
    pub fn client(&self) -> NatsClient {
        NatsClient::connect(self.port(), ADMIN)
    }

    /// Stops the server in order (SIGTERM); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Kills the server (`kill -9`), even while it is paused; returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill9(&self) {
        self.daemon.kill9();
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
    installed("NATS", &PROGRAMS, "nats-server")
}
