//! Apicurio Registry for tests, which speaks as Confluent's schema registry does, from Maven.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::daemon::{Daemon, link_or_copy};
use super::sqs::exchange;
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::ServerCertificate;

const VERSION: &str = "2.6.13.Final";
/// Where it speaks as others do.
const PATH: &str = "/apis/ccompat/v7";

/// A registry whose schemas are in memory.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give their subjects names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct RegistryServer {
    daemon: Daemon,
    port: Port,
    /// Files of certificate and key.
    tls: Option<[PathBuf; 2]>,
}

impl RegistryServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static RegistryServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When Apicurio is not in the cache (the message says how to download it), or the server does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        let server = Self::prepared();
        server.launch();
        server
    }

    /// The same with TLS alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate) -> Self {
        let mut server = Self::prepared();
        server.tls = Some([
            server
                .daemon
                .write("server.crt", &certificate.certificate_pem),
            server.daemon.write("server.key", &certificate.key_pem),
        ]);
        server.launch();
        server
    }

    fn prepared() -> Self {
        let server = Self {
            // It needs no user of its own.
            daemon: Daemon::new("Apicurio Registry", Account::unless_root("nobody")),
            port: Port::reserve(),
            tls: None,
        };
        let cached = cached();
        let lib = server.daemon.make_folder("lib");
        let folder = server.daemon.folder().to_owned();
        for (from, to) in [(cached.clone(), folder), (cached.join("lib"), lib)] {
            for file in std::fs::read_dir(from).expect("read the cache") {
                let file = file.expect("read the cache");
                if file.path().is_file() {
                    link_or_copy(&file.path(), &to.join(file.file_name()));
                }
            }
        }
        server
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
                "-jar",
                &format!("apicurio-registry-app-{VERSION}-runner.jar"),
            ])
            .env_remove("JAVA_TOOL_OPTIONS")
            .env("QUARKUS_HTTP_HOST", "127.0.0.1");
        let port = self.port().to_string();
        match &self.tls {
            None => command.env("QUARKUS_HTTP_PORT", port),
            Some([certificate, key]) => command
                .env("QUARKUS_HTTP_INSECURE_REQUESTS", "disabled")
                .env("QUARKUS_HTTP_SSL_PORT", port)
                .env("QUARKUS_HTTP_SSL_CERTIFICATE_FILES", certificate)
                .env("QUARKUS_HTTP_SSL_CERTIFICATE_KEY_FILES", key),
        };
        self.daemon
            .launch(command, |log| log.contains("Listening on:"));
    }

    /// Its address; at `localhost` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port();
        match self.tls {
            None => format!("http://127.0.0.1:{port}{PATH}"),
            Some(_) => format!("https://localhost:{port}{PATH}"),
        }
    }

    /// [`Self::url`] without TLS by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy) -> String {
        format!("http://127.0.0.1:{}{PATH}", proxy.port())
    }

    /// The port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Registers a version of a subject, and answers the number of its schema. The type is `AVRO`,
    /// `JSON` or `PROTOBUF`.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn register(&self, subject: &str, kind: &str, schema: &str) -> u32 {
        self.register_with(subject, kind, schema, &[])
    }

    /// The same for a schema that refers to the first version of other subjects by these names.
    ///
    /// # Panics
    ///
    /// As [`Self::register`].
    pub fn register_with(
        &self,
        subject: &str,
        kind: &str,
        schema: &str,
        references: &[(&str, &str)],
    ) -> u32 {
        let references = references.iter();
        let references: Vec<_> = references
            .map(|(name, subject)| json!({ "name": name, "subject": subject, "version": 1 }))
            .collect();
        let question = json!({ "schemaType": kind, "schema": schema, "references": references });
        let path = format!("{PATH}/subjects/{subject}/versions");
        let answer = self.ask("POST", &path, &question.to_string());
        let id = answer["id"].as_u64().expect("a number of a schema");
        id.try_into().expect("a small number")
    }

    /// Removes a subject for good.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn remove(&self, subject: &str) {
        let path = format!("{PATH}/subjects/{subject}");
        self.ask("DELETE", &path, "");
        self.ask("DELETE", &format!("{path}?permanent=true"), "");
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let head = format!("{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\n");
        let (status, answer) = exchange(self.port(), &head, body);
        let answer = String::from_utf8(answer).expect("an answer in UTF-8");
        assert_eq!(status, 200, "{method} {path} {body}: {answer}");
        serde_json::from_str(&answer).expect("JSON of the server")
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

    /// Starts the server again at the same port, without its schemas.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}

fn cached() -> PathBuf {
    let cached = cache_dir().join(format!("apicurio-{VERSION}"));
    assert!(
        cached.exists(),
        "Apicurio Registry {VERSION} is not in {}; this downloads it: ./test --install",
        cached.display()
    );
    cached
}
