//! MySQL 8.0, MariaDB 10.11 and MariaDB 11.4 for tests.

mod install;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::daemon::Daemon;
use super::run::run;
use crate::{ports::Port, tls::ServerCertificate};
use install::Programs;

/// A version that the kit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// MySQL 8.0.15, which reads the constraint CHECK and ignores it.
    MySql8,
    /// MariaDB 10.11, the distribution's, which can load the plugin `metadata_lock_info`.
    MariaDb10,
    /// MariaDB 11.4.
    MariaDb11,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::MySql8, Self::MariaDb10, Self::MariaDb11];

    /// Whether it is one of MariaDB.
    #[must_use]
    pub fn is_mariadb(self) -> bool {
        self != Self::MySql8
    }

    /// Whether the constraint CHECK is enforced.
    #[must_use]
    pub fn has_checks(self) -> bool {
        self != Self::MySql8
    }
}

/// A MySQL or MariaDB server.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process, by
/// `kill -9` too. Calls block; from an asynchronous test they hold a worker thread for the tenths
/// of a second that a start or stop takes.
#[derive(Debug)]
pub struct MysqlServer {
    version: Version,
    daemon: Daemon,
    programs: Programs,
    port: Port,
    settings: Vec<String>,
}

/// Chooses version and settings; made by [`MysqlServer::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    version: Version,
    settings: Vec<String>,
    certificate: Option<ServerCertificate>,
}

/// A database of its own on a [`MysqlServer`].
#[derive(Debug)]
pub struct Database {
    name: String,
    port: u16,
}

impl Builder {
    /// A server's option, such as `("sync-binlog", "0")`; the last one for a name counts.
    ///
    /// Servers start with the defaults, so MySQL has a binary log and MariaDB has none.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push(format!("--{name}={value}"));
        self
    }

    /// With what the store needs to see who writes: MySQL shows it by itself, MariaDB does not.
    #[must_use]
    pub fn shows_locks(self) -> Self {
        match self.version.is_mariadb() {
            true => self.setting("performance-schema", "ON").setting(
                "performance-schema-instrument",
                "wait/lock/metadata/sql/mdl=ON",
            ),
            false => self,
        }
    }

    /// With TLS, and this certificate instead of one that nobody knows.
    #[must_use]
    pub fn certificate(mut self, certificate: ServerCertificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Starts the server and returns when it accepts connections.
    ///
    /// # Panics
    ///
    /// When the version is not installed (the message says how to install it), or the server does
    /// not come up (the message has its log).
    #[must_use]
    pub fn start(self) -> MysqlServer {
        let daemon = Daemon::new("MySQL", install::account());
        let programs = Programs::stage(self.version, &daemon);
        programs.new_data(&daemon);
        daemon.make_folder("tmp");
        let mut settings = self.settings;
        if let Some(of) = self.certificate {
            for (option, pem) in [("ssl-cert", of.certificate_pem), ("ssl-key", of.key_pem)] {
                let file = daemon.write(&format!("{option}.pem"), &pem);
                settings.push(format!("--{option}={}", file.display()));
            }
        }
        let server = MysqlServer {
            version: self.version,
            daemon,
            programs,
            port: Port::reserve(),
            settings,
        };
        server.launch();
        server
    }
}

impl MysqlServer {
    /// A server for one test, which may crash it and change its settings.
    #[must_use]
    pub fn builder(version: Version) -> Builder {
        Builder {
            version,
            settings: Vec::new(),
            certificate: None,
        }
    }

    /// The server of a version that all tests of this process share, which never waits for a disk
    /// and shows who writes; make a database each, and leave the server's state alone.
    ///
    /// # Panics
    ///
    /// As [`Builder::start`].
    #[must_use]
    pub fn shared(version: Version) -> &'static Self {
        static SERVERS: Mutex<BTreeMap<Version, &'static MysqlServer>> =
            Mutex::new(BTreeMap::new());
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        servers.entry(version).or_insert_with(|| {
            // Never dropped: the guard process stops the server when this process ends.
            Box::leak(Box::new(
                Self::builder(version)
                    .shows_locks()
                    .setting("innodb-flush-method", "nosync")
                    .setting("innodb-flush-log-at-trx-commit", "0")
                    .setting("sync-binlog", "0")
                    // For payloads of the largest size.
                    .setting("max-allowed-packet", "128M")
                    .start(),
            ))
        })
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The TCP port on 127.0.0.1; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A connection URL for a user (without password) and a database.
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        url(self.port(), user, database)
    }

    /// A connection URL of the administrator.
    #[must_use]
    pub fn admin_url(&self, database: &str) -> String {
        self.url(ADMIN, database)
    }

    /// Makes an empty database with a name of its own.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[must_use]
    pub fn create_database(&self) -> Database {
        let name = format!("ph_{}", uuid::Uuid::new_v4().simple());
        self.sql("", &format!("create database {name}"));
        Database {
            name,
            port: self.port(),
        }
    }

    /// Runs SQL as administrator through the program `mariadb` and returns its rows: one a line,
    /// columns separated by tabs, no headings, no trailing line end.
    ///
    /// # Panics
    ///
    /// When a statement fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        run_sql(self.port(), database, sql)
    }

    /// Kills the server (`kill -9`); returns when the process has ended.
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

    /// Starts the server again with its data and settings, at the same port.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }

    /// The server's log, for a failure's message.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    fn launch(&self) {
        let mut command = self.programs.server(&self.daemon);
        let folder = self.daemon.folder();
        command.arg(format!("--port={}", self.port()));
        command.arg("--bind-address=127.0.0.1");
        command.arg(format!("--socket={}", folder.join("socket").display()));
        // MariaDB deletes at its start what others have in a folder that they share.
        command.arg(format!("--tmpdir={}", folder.join("tmp").display()));
        // Not beside the kit's own file of this kind.
        command.arg(format!("--pid-file={}", folder.join("data/pid").display()));
        command.args(&self.settings);
        self.daemon
            .launch(command, |log| log.contains("ready for connections"));
    }
}

/// The administrator, who has no password and comes from this machine.
const ADMIN: &str = "root";

fn url(port: u16, user: &str, database: &str) -> String {
    format!("mysql://{user}@127.0.0.1:{port}/{database}")
}

impl Database {
    /// A connection URL of the administrator.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for(ADMIN)
    }

    /// A connection URL for another user, without password.
    #[must_use]
    pub fn url_for(&self, user: &str) -> String {
        url(self.port, user, &self.name)
    }

    /// The database's name, a plain identifier.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`MysqlServer::sql`], in this database.
    ///
    /// # Panics
    ///
    /// When a statement fails.
    pub fn sql(&self, sql: &str) -> String {
        run_sql(self.port, &self.name, sql)
    }
}

fn run_sql(port: u16, database: &str, sql: &str) -> String {
    let mut command = Command::new(install::client_program());
    command.args(["--no-defaults", "--host=127.0.0.1", "--user", ADMIN]);
    command.args([
        "--batch",
        "--skip-column-names",
        "--default-character-set=utf8mb4",
    ]);
    command
        .arg(format!("--port={port}"))
        .arg(format!("--execute={sql}"));
    command.arg(format!("--database={database}"));
    run(&mut command).trim_end_matches('\n').to_owned()
}
