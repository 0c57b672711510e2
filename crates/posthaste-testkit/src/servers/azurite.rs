//! Azurite for tests: Microsoft's own server that speaks Azure Blob Storage, from npm.

use std::sync::{Mutex, PoisonError};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

use super::daemon::Daemon;
use super::sqs::exchange;
use crate::account::Account;
use crate::cache::cache_dir;
use crate::ports::Port;

const VERSION: &str = "3.35.0";

/// The account that each Azurite has.
const ACCOUNT: &str = "devstoreaccount1";

/// Its key, which Microsoft's documents name.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server whose buckets are in memory. It looks at signatures.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process.
/// Tests that leave the server alone share one, and give their buckets names of their own
/// ([`unique_name`](crate::unique_name)).
#[derive(Debug)]
pub struct AzuriteServer {
    daemon: Daemon,
    port: Port,
}

impl AzuriteServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static AzuriteServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When Azurite is not in the cache (the message says how to download it), or the server does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        let server = Self {
            // Its packages are where the tests' own user has its files.
            daemon: Daemon::new("Azurite", Account::of_the_tests()),
            port: Port::reserve(),
        };
        server.launch();
        server
    }

    fn launch(&self) {
        let packages = cache_dir().join(format!("azurite-{VERSION}/node_modules"));
        let program = packages.join(".bin/azurite-blob");
        assert!(
            program.exists(),
            "Azurite {VERSION} is not in {}; this downloads it: ./test --install",
            cache_dir().display()
        );
        let mut command = self.daemon.command(&program);
        command
            .args(["--inMemoryPersistence", "--silent", "--disableTelemetry"])
            .arg("--blobPort")
            .arg(self.port.number().to_string());
        self.daemon
            .launch(command, |log| log.contains("successfully listens"));
    }

    /// Options of an address: its endpoint, account and key.
    #[must_use]
    pub fn options(&self) -> String {
        self.options_with_key(KEY)
    }

    /// [`Self::options`] with another key.
    #[must_use]
    pub fn options_with_key(&self, key: &str) -> String {
        format!(
            "account={ACCOUNT}&account_key={key}&endpoint=http://127.0.0.1:{}/{ACCOUNT}",
            self.port.number()
        )
    }

    /// Makes a bucket, which Azure calls a container.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_bucket(&self, bucket: &str) {
        let (status, said) = self.ask("PUT", bucket, "restype=container");
        let said = String::from_utf8_lossy(&said);
        assert_eq!(status, 201, "{said}");
    }

    /// The bytes of an object; none if there is none of this name.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn object(&self, bucket: &str, name: &str) -> Option<Vec<u8>> {
        let (status, bytes) = self.ask("GET", &format!("{bucket}/{name}"), "");
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
        let (status, listed) = self.ask("GET", bucket, "restype=container&comp=list");
        let listed = String::from_utf8(listed).expect("a list in UTF-8");
        assert_eq!(status, 200, "{listed}");
        let names = listed.split("<Name>").skip(1);
        names
            .filter_map(|rest| Some(rest.split_once("</Name>")?.0.to_owned()))
            .collect()
    }

    /// Asks as the client of the tests' own, and answers status and body.
    fn ask(&self, method: &str, path: &str, query: &str) -> (u16, Vec<u8>) {
        // Version 1.0 has no answers in chunks.
        let head = format!(
            "{method} /{ACCOUNT}/{path}?{query}&{} HTTP/1.0\r\n",
            shared_access("rwlc")
        );
        exchange(self.port.number(), &head, "")
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

/// A signature that gives rights to all buckets and their objects, such as `r` and `w`, as the part
/// of a query.
///
/// # Panics
///
/// Never: the key is in base64.
#[must_use]
pub fn shared_access(rights: &str) -> String {
    let (service, kinds) = ("b", "sco");
    let (until, protocols, version) = ("2099-01-01T00:00:00Z", "https,http", "2019-12-12");
    let signed =
        format!("{ACCOUNT}\n{rights}\n{service}\n{kinds}\n\n{until}\n\n{protocols}\n{version}\n");
    let key = STANDARD.decode(KEY).expect("a key in base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F");
    format!(
        "sv={version}&ss={service}&srt={kinds}&sp={rights}&se={until}&spr={protocols}\
         &sig={signature}"
    )
}
