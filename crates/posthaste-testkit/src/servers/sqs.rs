//! ElasticMQ for tests: a server that speaks SQS, from Maven.

mod client;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::daemon::{Daemon, link_or_copy};
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;
use crate::proxy::Proxy;

pub(super) use client::exchange;
pub use client::{AwsClient, Message};

const VERSION: &str = "1.7.1";

/// A server whose queues are in memory unless told otherwise, and as strict as those of AWS.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give their queues names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct SqsServer {
    daemon: Daemon,
    port: Port,
}

impl SqsServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static SqsServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When ElasticMQ is not in the cache (the message says how to download it), or the server does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// A server for one test, whose queues outlive a crash.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_durable() -> Self {
        // Without the delay a message is in the file before it is answered.
        Self::start_with(
            "messages-storage {\n\
             enabled = true\n\
             uri = \"jdbc:h2:./messages;WRITE_DELAY=0\"\n\
             }\n",
        )
    }

    fn start_with(storage: &str) -> Self {
        let server = Self {
            // It needs no user of its own.
            daemon: Daemon::new("ElasticMQ", Account::unless_root("nobody")),
            port: Port::reserve(),
        };
        let jars = server.daemon.make_folder("jars");
        for jar in fs::read_dir(cached_jars()).expect("read the cache") {
            let jar = jar.expect("read the cache");
            link_or_copy(&jar.path(), &jars.join(jar.file_name()));
        }
        server
            .daemon
            .write("elasticmq.conf", &(server.config() + storage));
        server.launch();
        server
    }

    fn config(&self) -> String {
        let port = self.port();
        format!(
            "include classpath(\"application.conf\")\n\
             node-address {{ protocol = http, host = \"127.0.0.1\", port = {port} }}\n\
             rest-sqs {{\n\
             enabled = true\n\
             bind-hostname = \"127.0.0.1\"\n\
             bind-port = {port}\n\
             sqs-limits = strict\n\
             }}\n\
             rest-stats {{ enabled = false }}\n"
        )
    }

    fn launch(&self) {
        let mut command: Command = self.daemon.command(Path::new("java"));
        command
            .args([
                // A server of a test is gone before compiling for speed pays.
                "-XX:TieredStopAtLevel=1",
                "-Xmx512m",
                "-XX:+UseSerialGC",
                // Its file would lie outside the server's folder and outlive a kill.
                "-XX:-UsePerfData",
                "-Dconfig.file=elasticmq.conf",
                "-cp",
                "jars/*",
                "org.elasticmq.server.Main",
            ])
            .env_remove("JAVA_TOOL_OPTIONS");
        self.daemon
            .launch(command, |log| log.contains("started in"));
    }

    /// Options of an address: its endpoint, region and credentials.
    #[must_use]
    pub fn options(&self) -> String {
        options(&format!("http://127.0.0.1:{}", self.port()))
    }

    /// [`Self::options`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn options_through(&self, proxy: &Proxy) -> String {
        options(&format!("http://127.0.0.1:{}", proxy.port()))
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A client of the tests' own.
    #[must_use]
    pub fn client(&self) -> AwsClient {
        AwsClient::new(self.port())
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

    /// Starts the server again at the same port, without its queues unless it is
    /// [durable](Self::start_durable).
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}

/// Options of an address of a sink on AWS, for a server at this endpoint.
#[must_use]
pub fn options(endpoint: &str) -> String {
    format!("region=eu-central-1&access_key_id=test&secret_access_key=test&endpoint={endpoint}")
}

fn cached_jars() -> PathBuf {
    let cached = cache_dir().join(format!("elasticmq-{VERSION}"));
    assert!(
        cached.exists(),
        "ElasticMQ {VERSION} is not in {}; this downloads it: ./test --install",
        cached.display()
    );
    cached
}
