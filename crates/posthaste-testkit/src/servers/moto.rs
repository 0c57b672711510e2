//! moto for tests: a server that speaks SNS, Kinesis, S3, and SQS for what SNS delivers, from PyPI.

mod kinesis;
mod s3;
mod sns;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::daemon::Daemon;
use super::sqs::{AwsClient, Message, options};
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::ServerCertificate;

pub use kinesis::{StreamReader, StreamRecord};

const VERSION: &str = "5.2.5";

/// The account of all topics, queues and streams.
const ACCOUNT: &str = "123456789012";

/// A server whose topics, queues and streams are in memory.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give what they make there names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct MotoServer {
    daemon: Daemon,
    port: Port,
    /// Where the tests' own client asks a server that speaks TLS on the other port.
    plain_port: Option<Port>,
    /// Certificate and key.
    tls: Vec<PathBuf>,
}

impl MotoServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static MotoServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When moto is not in the cache (the message says how to download it), or the server does not
    /// come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        let server = Self::prepared();
        server.launch();
        server
    }

    /// The same with TLS. The tests' own client has another port.
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
        ];
        server.plain_port = Some(Port::reserve());
        server.tls = files
            .map(|(name, pem)| server.daemon.write(name, pem))
            .into();
        server.launch();
        server
    }

    fn prepared() -> Self {
        // Its packages are where the tests' own user has its files.
        let daemon = Daemon::new("moto", Account::of_the_tests());
        daemon.write("server.py", include_str!("moto/server.py"));
        Self {
            daemon,
            port: Port::reserve(),
            plain_port: None,
            tls: Vec::new(),
        }
    }

    fn launch(&self) {
        let python = cache_dir().join(format!("moto-{VERSION}/bin/python"));
        assert!(
            python.exists(),
            "moto {VERSION} is not in {}; this downloads it: ./test --install",
            cache_dir().display()
        );
        let mut command = self.daemon.command(&python);
        command
            .arg(self.daemon.folder().join("server.py"))
            .arg(self.port().to_string())
            .args(self.plain_port.iter().map(|port| port.number().to_string()))
            .args(&self.tls)
            .env("MOTO_ACCOUNT_ID", ACCOUNT);
        self.daemon
            .launch(command, |log| log.contains("all ports are served"));
    }

    /// Options of an address: its endpoint, region and credentials.
    #[must_use]
    pub fn options(&self) -> String {
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        options(&format!("{scheme}://localhost:{}", self.port()))
    }

    /// [`Self::options`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn options_through(&self, proxy: &Proxy) -> String {
        options(&format!("http://127.0.0.1:{}", proxy.port()))
    }

    /// All that a queue has, in its order.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn messages(&self, queue: &str) -> Vec<Message> {
        let told = self.client().get(&format!("/queue/{queue}"));
        let told = told.as_array().expect("a list of messages");
        told.iter().map(Message::of).collect()
    }

    /// Lets requests fail so that have this text in their body (`server.py` has the words).
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn fail(&self, text: &str, fault: &str) {
        let _ = self.client().get(&format!("/fault?text={text}&{fault}"));
    }

    /// These requests are answered again.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn heal(&self, text: &str) {
        let _ = self.client().get(&format!("/heal?text={text}"));
    }

    /// Returns when so many requests with this text were held by a silent fault.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn until_held(&self, text: &str, requests: u64) {
        let held = || self.client().get(&format!("/held?text={text}"));
        while held().as_u64() < Some(requests) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A client of the tests' own.
    #[must_use]
    pub fn client(&self) -> AwsClient {
        let port = self.plain_port.as_ref().unwrap_or(&self.port);
        AwsClient::new(port.number())
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

    /// Starts the server again at the same port, without its topics, queues and streams.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}
