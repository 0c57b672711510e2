//! Google Cloud Storage for tests: fake-gcs-server, in a program of the kit's own that adds the XML
//! interface's way to write objects, TLS and logins.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::daemon::Daemon;
use super::sqs::exchange;
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;
use crate::tls::{ServerCertificate, rsa_key_pem};

/// The sources that the program is built of.
const SOURCES: &str = concat!(
    include_str!("gcs/server/go.mod"),
    include_str!("gcs/server/go.sum"),
    include_str!("gcs/server/login.go"),
    include_str!("gcs/server/main.go"),
);

/// A server whose buckets are in memory.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give their buckets names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct GcsServer {
    daemon: Daemon,
    port: Port,
    /// Where the tests' own client asks.
    control_port: Port,
    /// Certificate, key, and the key of an account.
    tls: Vec<PathBuf>,
}

impl GcsServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static GcsServer>> = Mutex::new(None);
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

    /// The same with TLS, for those who show a token of the account `relay@shop` that
    /// [`rsa_key_pem`] has signed.
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
            daemon: Daemon::new("Google Cloud Storage", Account::of_the_tests()),
            port: Port::reserve(),
            control_port: Port::reserve(),
            tls: Vec::new(),
        }
    }

    fn launch(&self) {
        let folder = cache_dir().join("gcs-server");
        let built_of = fs::read_to_string(folder.join("contents")).unwrap_or_default();
        assert!(
            built_of == SOURCES,
            "the server of Google Cloud Storage as it is now is not in {}; this builds it: ./test \
             --install",
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
        format!("endpoint={scheme}://localhost:{}", self.port.number())
    }

    /// Makes a bucket.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_bucket(&self, bucket: &str) {
        let question = json!({ "name": bucket }).to_string();
        let (status, said) = self.ask("POST", "b?project=posthaste-tests", &question);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
    }

    /// The bytes of an object; none if there is none of this name.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn object(&self, bucket: &str, name: &str) -> Option<Vec<u8>> {
        let name = name.replace('/', "%2F");
        let (status, bytes) = self.ask("GET", &format!("b/{bucket}/o/{name}?alt=media"), "");
        match status {
            200 => Some(bytes),
            404 => None,
            other => panic!("{bucket}/{name}: {other}"),
        }
    }

    /// The names of all objects of a bucket, in their order.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn objects(&self, bucket: &str) -> Vec<String> {
        let (status, listed) = self.ask("GET", &format!("b/{bucket}/o"), "");
        assert_eq!(status, 200);
        let listed: Value = serde_json::from_slice(&listed).expect("JSON of the server");
        let objects = listed["items"].as_array().into_iter().flatten();
        objects
            .map(|object| object["name"].as_str().expect("a name").to_owned())
            .collect()
    }

    /// Asks as the client of the tests' own, by the JSON interface, and answers status and body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        // Version 1.0 has no answers in chunks.
        let head = format!("{method} /storage/v1/{path} HTTP/1.0\r\n");
        exchange(self.control_port.number(), &head, body)
    }

    /// Kills the server (`kill -9`); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill9(&self) {
        self.daemon.kill9();
    }

    /// Starts the server again at the same port, without its buckets.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}
