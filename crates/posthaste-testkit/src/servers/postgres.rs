//! PostgreSQL 14, 15 and 18 for tests.

mod address;
mod cluster;
mod install;
mod settings;
mod upgrade;

pub use settings::odd_settings;

use super::run::run;
use crate::tls::TestCa;
use address::Address;
use cluster::Cluster;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A PostgreSQL server, its own unless `POSTHASTE_TEST_POSTGRES_URL` named a running one.
///
/// Dropping it kills the server and deletes its data; so does the death of the test process, by
/// `kill -9` too. Calls block; from an asynchronous test they hold a worker thread for the tenths
/// of a second that a start or stop takes.
#[derive(Debug)]
pub struct PostgresServer {
    version: u16,
    address: Address,
    /// None: somebody else's server.
    cluster: Option<Cluster>,
}

/// Chooses version and settings; made by [`PostgresServer::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    version: u16,
    settings: Vec<(String, String)>,
}

/// A database of its own on a [`PostgresServer`].
#[derive(Debug)]
pub struct Database {
    name: String,
    address: Address,
    /// On somebody else's server, databases are dropped; on ours, they go with the server.
    drop_afterwards: bool,
}

/// The needs of a client of a server that insists on TLS, from [`PostgresServer::enable_tls`].
#[derive(Debug, Clone)]
pub struct TlsLogin {
    /// A superuser that is let in over TLS only, with a password.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl Builder {
    /// The major version: 14, 15 (the default) or 18.
    #[must_use]
    pub fn version(mut self, version: u16) -> Self {
        self.version = version;
        self
    }

    /// A line of `postgresql.conf`, such as `("fsync", "off")`; the last one for a name counts.
    ///
    /// Servers start with `wal_level=logical`, 200 connections and otherwise the defaults, so
    /// `fsync` is on unless switched off here.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server and returns when it accepts connections.
    ///
    /// # Panics
    ///
    /// When the version is not installed (the message says how to install it), or the server does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start(self) -> PostgresServer {
        let cluster = Cluster::start_new(self.version, &self.settings);
        let address = Address::local(cluster.port());
        PostgresServer {
            version: self.version,
            address,
            cluster: Some(cluster),
        }
    }
}

impl PostgresServer {
    /// A server for one test, which may crash it and change its settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            version: install::PACKAGED,
            settings: Vec::new(),
        }
    }

    /// The server that all tests of this process share, `fsync` off; make a database each, and
    /// leave the server's state alone.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    #[must_use]
    pub fn shared(version: u16) -> &'static Self {
        static SERVERS: Mutex<BTreeMap<u16, &'static PostgresServer>> = Mutex::new(BTreeMap::new());
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        servers.entry(version).or_insert_with(|| {
            let running = std::env::var("POSTHASTE_TEST_POSTGRES_URL").unwrap_or_default();
            // Never dropped: the guard process stops the server when this process ends.
            Box::leak(Box::new(
                if version == install::PACKAGED && !running.is_empty() {
                    Self {
                        version,
                        address: Address::parse(&running),
                        cluster: None,
                    }
                } else {
                    Self::builder()
                        .version(version)
                        .setting("fsync", "off")
                        .start()
                },
            ))
        })
    }

    /// The major version.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The TCP port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A connection URL for a user (without password, which the server trusts) and a database.
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        self.address.url(Some(user), database)
    }

    /// A connection URL of the superuser.
    #[must_use]
    pub fn admin_url(&self, database: &str) -> String {
        self.address.url(None, database)
    }

    /// Makes an empty database with a name of its own.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[must_use]
    pub fn create_database(&self) -> Database {
        self.create_database_with("")
    }

    /// Makes a database with all that the one of this name holds, to which nobody may be connected.
    ///
    /// # Panics
    ///
    /// When the server does not answer, or somebody stays connected for five seconds.
    #[must_use]
    pub fn create_copy(&self, of: &str) -> Database {
        // Versions from 15 on copy by way of their log unless told otherwise, in twice the time.
        let strategy = if self.version < 15 {
            ""
        } else {
            "STRATEGY FILE_COPY"
        };
        self.create_database_with(&format!("TEMPLATE {of} {strategy}"))
    }

    fn create_database_with(&self, options: &str) -> Database {
        let name = format!("ph_{}", uuid::Uuid::new_v4().simple());
        self.psql("postgres", &format!("CREATE DATABASE {name} {options}"));
        Database {
            name,
            address: self.address.clone(),
            drop_afterwards: !self.is_ours(),
        }
    }

    /// Whether the kit started it; otherwise `POSTHASTE_TEST_POSTGRES_URL` named it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.cluster.is_some()
    }

    /// Runs SQL as superuser through `psql` and returns its rows: one a line, columns separated by
    /// `|`, no headings, no trailing line end.
    ///
    /// # Panics
    ///
    /// When a statement fails.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        psql(&self.admin_url(database), sql)
    }

    /// Stops the server like a crash (`pg_ctl -m immediate`): no checkpoint, recovery at the next
    /// start, unlogged tables empty afterwards. Returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When the server is not ours, or does not run.
    pub fn crash(&self) {
        self.own().stop(rustix::process::Signal::QUIT);
    }

    /// Stops the server in order (`pg_ctl -m fast`): connections are closed, a checkpoint is made.
    ///
    /// # Panics
    ///
    /// When the server is not ours, or does not run.
    pub fn stop_fast(&self) {
        self.own().stop(rustix::process::Signal::INT);
    }

    /// Starts the stopped server again on its port and data; returns when it accepts connections.
    ///
    /// # Panics
    ///
    /// When the server is not ours, runs already, or does not come up.
    pub fn start_again(&self) {
        self.own().start_again();
    }

    /// A superuser with a password that the server asks for (SCRAM), unlike all other users.
    ///
    /// # Panics
    ///
    /// When the server is not ours, or the user exists.
    pub fn create_password_user(&self, user: &str, password: &str) {
        self.create_superuser(user, password);
        self.own()
            .allow_first(&format!("host all {user} 127.0.0.1/32 scram-sha-256"));
        self.restart();
    }

    /// Restarts the server with a certificate for `localhost` and `127.0.0.1` from this authority,
    /// and makes a user that gets in over TLS only.
    ///
    /// # Panics
    ///
    /// When the server is not ours, or was given a certificate before.
    pub fn enable_tls(&self, ca: &TestCa) -> TlsLogin {
        self.enable_tls_for(ca, &["localhost", "127.0.0.1"])
    }

    /// [`Self::enable_tls`] with a certificate for other names, to see the name check refuse.
    ///
    /// # Panics
    ///
    /// As [`Self::enable_tls`].
    pub fn enable_tls_for(&self, ca: &TestCa, names: &[&str]) -> TlsLogin {
        let login = TlsLogin {
            user: "tls_user".to_owned(),
            password: "correct horse".to_owned(),
        };
        self.create_superuser(&login.user, &login.password);
        let cluster = self.own();
        cluster.install_certificate(&ca.server_certificate(names));
        cluster.allow_first(&format!(
            "hostssl all {user} 127.0.0.1/32 scram-sha-256\nhostnossl all {user} all reject",
            user = login.user
        ));
        self.restart();
        login
    }

    /// A hot standby that streams from this server: it answers reads and refuses writes.
    ///
    /// # Panics
    ///
    /// When the server is not ours, does not run, or is not version 15: the one version whose
    /// `pg_basebackup` is installed.
    #[must_use]
    pub fn standby(&self) -> Self {
        assert_eq!(
            self.version,
            install::PACKAGED,
            "no pg_basebackup of this version"
        );
        let source = self.admin_url("");
        let cluster = Cluster::start_from(self.version, |data| {
            let mut backup =
                install::account().command(&install::packaged_bin().join("pg_basebackup"));
            backup.args([
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
            ]);
            run(backup.args(["--no-sync", "-d", &source, "-D"]).arg(data));
        });
        Self {
            version: self.version,
            address: Address::local(cluster.port()),
            cluster: Some(cluster),
        }
    }

    /// Restarts the server as a standby whose primary is gone: it answers reads, refuses writes.
    ///
    /// # Panics
    ///
    /// When the server is not ours, or does not run.
    pub fn demote(&self) {
        self.stop_fast();
        self.own().become_standby();
        self.start_again();
    }

    /// Makes a standby the primary; returns when it takes writes.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn promote(&self) {
        assert_eq!(self.psql("postgres", "select pg_promote()"), "t");
    }

    /// The work of `pg_upgrade` on this server, which stays stopped: one of the packaged version.
    ///
    /// # Panics
    ///
    /// When the server is not ours, does not run, or is not older.
    #[must_use]
    pub fn upgrade(&self) -> Self {
        assert!(self.version < install::PACKAGED, "it is not older");
        let old = self.own();
        old.stop(rustix::process::Signal::INT);
        let cluster = Cluster::start_from(install::PACKAGED, |data| upgrade::run(old, data));
        Self {
            version: install::PACKAGED,
            address: Address::local(cluster.port()),
            cluster: Some(cluster),
        }
    }

    /// The server's log, for a failure's message.
    ///
    /// # Panics
    ///
    /// When the server is not ours.
    #[must_use]
    pub fn log(&self) -> String {
        self.own().log()
    }

    /// Lines of the log that tell of waits for a table's lock, longer than `deadlock_timeout`,
    /// where `log_lock_waits` is on.
    ///
    /// # Panics
    ///
    /// When the server is not ours.
    #[must_use]
    pub fn waits_for_tables(&self) -> Vec<String> {
        let log = self.log();
        let waits = log
            .lines()
            .filter(|line| line.contains("still waiting for") && line.contains("on relation"));
        waits.map(str::to_owned).collect()
    }

    /// The folder of `psql` and the other client programs.
    ///
    /// # Panics
    ///
    /// When they are not installed.
    #[must_use]
    pub fn client_programs() -> PathBuf {
        install::packaged_bin()
    }

    fn create_superuser(&self, user: &str, password: &str) {
        let sql = format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'");
        self.psql("postgres", &sql);
    }

    // A reload would be quicker, but takes effect at a moment that no client can see.
    fn restart(&self) {
        self.stop_fast();
        self.start_again();
    }

    fn own(&self) -> &Cluster {
        self.cluster.as_ref().expect(
            "this server was given by POSTHASTE_TEST_POSTGRES_URL: tests cannot stop or change it",
        )
    }
}

impl Database {
    /// A connection URL of the superuser.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.url(None, &self.name)
    }

    /// A connection URL for another user, without password.
    #[must_use]
    pub fn url_for(&self, user: &str) -> String {
        self.address.url(Some(user), &self.name)
    }

    /// The database's name, a plain identifier.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`PostgresServer::psql`], in this database.
    ///
    /// # Panics
    ///
    /// When a statement fails.
    pub fn psql(&self, sql: &str) -> String {
        psql(&self.url(), sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.drop_afterwards {
            let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
            psql(&self.address.url(None, "postgres"), &sql);
        }
    }
}

fn psql(url: &str, sql: &str) -> String {
    let mut command = Command::new(install::packaged_bin().join("psql"));
    command.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        url,
        "-c",
        sql,
    ]);
    run(&mut command).trim_end_matches('\n').to_owned()
}
