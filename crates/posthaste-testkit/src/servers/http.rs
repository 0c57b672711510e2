//! An endpoint of webhooks for tests: a program of the kit's own, as no product is one alone.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

use super::daemon::{Daemon, installed};
use crate::account::Account;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::ServerCertificate;

/// Where packages put the interpreter.
const PROGRAMS: [&str; 3] = [
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/homebrew/bin/python3",
];

/// A server that keeps each request that it accepts before it answers. The first part of a
/// request's path is its *place*, with requests and faults of its own.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give their places names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct WebhookServer {
    daemon: Daemon,
    port: Port,
    /// Arguments behind folder and port.
    tls: Vec<PathBuf>,
}

/// A request that a place has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// `POST`.
    pub method: String,
    /// Path and query, as they came.
    pub target: String,
    /// Names and values in their order, as they came.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl WebhookRequest {
    /// The value of its only header of this name.
    ///
    /// # Panics
    ///
    /// When it has several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(found, _): &&(String, String)| found.eq_ignore_ascii_case(name);
        let mut found = self.headers.iter().filter(named);
        let value = found.next()?;
        assert!(found.next().is_none(), "{name} twice in {:?}", self.headers);
        Some(&value.1)
    }
}

#[derive(Deserialize)]
struct Line {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl WebhookServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static WebhookServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When Python is not installed, or the server does not come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        let server = Self::prepared();
        server.launch();
        server
    }

    /// The same with TLS. With the certificate of an authority it asks for certificates of that.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate, of_clients: Option<&str>) -> Self {
        let mut server = Self::prepared();
        let files = [
            ("server.crt", Some(&*certificate.certificate_pem)),
            ("server.key", Some(&*certificate.key_pem)),
            ("clients.crt", of_clients),
        ];
        let given = files
            .into_iter()
            .filter_map(|(name, pem)| Some((name, pem?)));
        server.tls = given
            .map(|(name, pem)| server.daemon.write(name, pem))
            .collect();
        server.launch();
        server
    }

    fn prepared() -> Self {
        let daemon = Daemon::new("the endpoint of webhooks", Account::unless_root("nobody"));
        daemon.write("server.py", include_str!("http/server.py"));
        Self {
            daemon,
            port: Port::reserve(),
            tls: Vec::new(),
        }
    }

    fn launch(&self) {
        let python = installed("Python", &PROGRAMS, "python3");
        let mut command = self.daemon.command(&python);
        command
            .arg(self.daemon.folder().join("server.py"))
            .arg(self.daemon.folder())
            .arg(self.port().to_string())
            .args(&self.tls);
        self.daemon.launch(command, |log| log.contains("listening"));
    }

    /// The address of a place, without TLS.
    #[must_use]
    pub fn url(&self, place: &str) -> String {
        format!("http://127.0.0.1:{}/{place}", self.port())
    }

    /// [`Self::url`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy, place: &str) -> String {
        format!("http://127.0.0.1:{}/{place}", proxy.port())
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The requests that a place has accepted, in their order.
    ///
    /// # Panics
    ///
    /// When they cannot be read.
    #[must_use]
    pub fn requests(&self, place: &str) -> Vec<WebhookRequest> {
        // A line without its end is being written, and was not answered.
        let kept = self.kept(place);
        let whole = kept.split_inclusive(|&byte| byte == b'\n');
        let whole = whole.filter(|line| line.ends_with(b"\n"));
        whole
            .map(|line| {
                let line: Line = serde_json::from_slice(line).expect("a line of the server");
                WebhookRequest {
                    method: line.method,
                    target: line.target,
                    headers: line.headers,
                    body: STANDARD.decode(line.body).expect("base64 of the server"),
                }
            })
            .collect()
    }

    /// How many requests a place has accepted.
    ///
    /// # Panics
    ///
    /// When they cannot be read.
    #[must_use]
    pub fn count(&self, place: &str) -> usize {
        let kept = self.kept(place);
        kept.iter().filter(|&&byte| byte == b'\n').count()
    }

    fn kept(&self, place: &str) -> Vec<u8> {
        let file = self.daemon.folder().join(format!("{place}.jsonl"));
        match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            read => read.expect("read the accepted requests"),
        }
    }

    /// Lets a place fail so (`server.py` has the words), until it is told otherwise.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn fail(&self, place: &str, fault: &Value) {
        // At once for a server that reads: renamed as a whole.
        let written = self
            .daemon
            .write(&format!("{place}.new"), &fault.to_string());
        let file = self.daemon.folder().join(format!("{place}.fault"));
        fs::rename(written, file).expect("rename a file of the server");
    }

    /// The place is well again.
    ///
    /// # Panics
    ///
    /// When the file cannot be removed.
    pub fn heal(&self, place: &str) {
        let file = self.daemon.folder().join(format!("{place}.fault"));
        fs::remove_file(file).expect("the place had a fault");
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
