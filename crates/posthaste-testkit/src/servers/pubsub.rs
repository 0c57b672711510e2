//! Google Pub/Sub for tests: the server of Google's client library for Go (pstest), in a program of
//! the kit's own that adds TLS, logins, the limits of messages, and faults.

mod client;

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::daemon::Daemon;
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::{ServerCertificate, rsa_key_pem};

pub use client::PubSubMessage;

/// The project of all topics.
pub const PROJECT: &str = "posthaste-tests";

/// The sources that the program is built of.
const SOURCES: &str = concat!(
    include_str!("pubsub/server/control.go"),
    include_str!("pubsub/server/faults.go"),
    include_str!("pubsub/server/go.mod"),
    include_str!("pubsub/server/go.sum"),
    include_str!("pubsub/server/login.go"),
    include_str!("pubsub/server/main.go"),
);

/// A server whose topics are in memory.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give what they make there names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct PubSubServer {
    daemon: Daemon,
    port: Port,
    /// Where the tests' own client asks.
    control_port: Port,
    /// Certificate, key, and the key of an account.
    tls: Vec<PathBuf>,
}

impl PubSubServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static PubSubServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When its program is not in the cache (the message says how to build it), or the server does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        let server = Self::prepared();
        server.launch();
        server
    }

    /// The same with TLS, for those who show a token that [`rsa_key_pem`] has signed.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate) -> Self {
        let mut server = Self::prepared();
        let files = [
            ("server.crt", &*certificate.certificate_pem),
            ("server.key", &*certificate.key_pem),
            ("account.key", rsa_key_pem()),
        ];
        server.tls = files
            .map(|(name, pem)| server.daemon.write(name, pem))
            .into();
        server.launch();
        server
    }

    fn prepared() -> Self {
        Self {
            // Its program is where the tests' own user has its files.
            daemon: Daemon::new("Pub/Sub", Account::of_the_tests()),
            port: Port::reserve(),
            control_port: Port::reserve(),
            tls: Vec::new(),
        }
    }

    fn launch(&self) {
        let folder = cache_dir().join("pubsub-server");
        let built_of = fs::read_to_string(folder.join("contents")).unwrap_or_default();
        assert!(
            built_of == SOURCES,
            "the server of Pub/Sub as it is now is not in {}; this builds it: ./test --install",
            cache_dir().display()
        );
        let mut command = self.daemon.command(&folder.join("server"));
        let ports = [&self.port, &self.control_port];
        command
            .args(ports.map(|port| port.number().to_string()))
            .args(&self.tls);
        self.daemon
            .launch(command, |log| log.contains("all ports are served"));
    }

    /// The option of an address: its endpoint.
    #[must_use]
    pub fn options(&self) -> String {
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        format!("endpoint={scheme}://localhost:{}", self.port())
    }

    /// [`Self::options`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn options_through(&self, proxy: &Proxy) -> String {
        format!("endpoint=http://127.0.0.1:{}", proxy.port())
    }

    /// Makes a topic, with further settings such as a retention.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_topic(&self, topic: &str, mut settings: Value) {
        settings["name"] = resource(topic).into();
        let _ = self.ask("CreateTopic", &settings);
    }

    /// Deletes a topic.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn delete_topic(&self, topic: &str) {
        let _ = self.ask("DeleteTopic", &json!({ "topic": resource(topic) }));
    }

    /// Makes a subscription of a topic, with message ordering or without.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn subscribe(&self, topic: &str, subscription: &str, has_ordering: bool) {
        let question = json!({
            "name": format!("projects/{PROJECT}/subscriptions/{subscription}"),
            "topic": resource(topic),
            "enableMessageOrdering": has_ordering,
        });
        let _ = self.ask("CreateSubscription", &question);
    }

    /// All that was ever published to a topic, in its order.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    #[must_use]
    pub fn messages(&self, topic: &str) -> Vec<PubSubMessage> {
        let told = self.ask("messages", &json!({ "topic": resource(topic) }));
        let told = told.as_array().expect("a list of messages");
        told.iter().map(PubSubMessage::of).collect()
    }

    /// Lets calls of a method fail so that have this text in their topic, or in a key of their
    /// messages: by a code of gRPC and words, and by what else they do (`faults.go` has the words).
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn fail(&self, text: &str, method: &str, (code, words): (u32, &str), act: &str) {
        let fault = json!({
            "text": text,
            "method": method,
            "code": code,
            "words": words,
            "act": act,
        });
        let _ = self.ask("fault", &fault);
    }

    /// Calls with this text are answered again.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn heal(&self, text: &str) {
        let _ = self.ask("heal", &json!({ "text": text }));
    }

    fn ask(&self, question: &str, body: &Value) -> Value {
        client::ask(self.control_port.number(), question, body)
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
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

    /// Starts the server again at the same port, without its topics.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}

fn resource(topic: &str) -> String {
    format!("projects/{PROJECT}/topics/{topic}")
}
