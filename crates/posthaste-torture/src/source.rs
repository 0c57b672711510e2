//! The database under a fleet.

use std::sync::Arc;

use posthaste_testkit::{
    proxy::Proxy,
    servers::{
        mysql::{MysqlServer, Version},
        postgres::PostgresServer,
    },
};

use crate::{
    crash::Crashing, database::Database, mysql::Mysql, postgres::Postgres, sqlite::Sqlite,
};

/// The role of the relays: no superuser and not the owner of the outbox, so that policies and
/// rights count for it.
pub(crate) const RELAYS_ROLE: &str = "mover";

/// Of a server and its standby.
const STANDBY_SETTINGS: [(&str, &str); 6] = [
    ("hot_standby_feedback", "on"),
    ("wal_receiver_status_interval", "1s"),
    ("wal_retrieve_retry_interval", "500ms"),
    // Enough for a standby that was cut off by a crash: it has no slot.
    ("wal_keep_size", "1GB"),
    // A reader in the way of replay is cancelled soon, but not over a lock that it has for a
    // moment.
    ("max_standby_streaming_delay", "500ms"),
    // Often enough that it works beside a reader.
    ("autovacuum_naptime", "5s"),
];

/// A server with one database that is tortured, or a file.
pub enum Source {
    /// Relays reach it through proxies.
    Postgres {
        /// The server, which may be crashed.
        server: Box<PostgresServer>,
        /// A hot standby that streams from it.
        standby: Option<Box<PostgresServer>>,
        /// The database on the server.
        postgres: Arc<Postgres>,
    },
    /// Relays reach it through proxies.
    Mysql {
        /// The server, which may be crashed.
        server: Box<MysqlServer>,
        /// The database on the server.
        mysql: Arc<Mysql>,
    },
    /// Relays open it.
    Sqlite(Arc<Sqlite>),
}

impl Source {
    /// A server of its own. It takes aborted transactions' numbers with it when it crashes, notes
    /// whoever waits for a lock longer than writers may wait, and shrinks its outbox soon.
    #[must_use]
    pub fn postgres() -> Self {
        Self::on_servers(false)
    }

    /// The same with a hot standby beside it, and with retention that deletes: truncation would
    /// cancel readers of the standby.
    #[must_use]
    pub fn postgres_with_standby() -> Self {
        Self::on_servers(true)
    }

    fn on_servers(has_standby: bool) -> Self {
        let mut builder = PostgresServer::builder()
            // Records that nobody waits for stay unwritten.
            .setting("wal_writer_delay", "10s")
            .setting("log_lock_waits", "on")
            .setting("deadlock_timeout", "200ms");
        if has_standby {
            for (name, value) in STANDBY_SETTINGS {
                builder = builder.setting(name, value);
            }
        }
        let server = Box::new(builder.start());
        server.psql("postgres", &format!("create role {RELAYS_ROLE} login"));
        let mode = if has_standby { "delete" } else { "truncate" };
        let init = [
            ["--leaf-rows", "8192"],
            ["--retention", "1s"],
            ["--retention-mode", mode],
            ["--relay", RELAYS_ROLE],
        ];
        let postgres = Postgres::with_init(&server, init.as_flattened()).with_paced_writers();
        postgres.watch_ownership();
        Self::Postgres {
            postgres: Arc::new(postgres),
            standby: has_standby.then(|| Box::new(server.standby())),
            server,
        }
    }

    /// A server of its own, which loses nothing that has committed when it crashes. MySQL has a
    /// binary log; MariaDB has none, and shows what it has not written yet.
    #[must_use]
    pub fn mysql(version: Version) -> Self {
        let builder = MysqlServer::builder(version).shows_locks();
        // A killed process leaves what it has handed to the operating system.
        let builder = builder.setting("innodb-flush-method", "nosync");
        let server = Box::new(builder.start());
        let role = format!("{RELAYS_ROLE}@127.0.0.1");
        server.sql("", &format!("create user '{RELAYS_ROLE}'@'127.0.0.1'"));
        let init = ["--retention", "1s", "--relay", &role];
        let mysql = Mysql::with_init(&server, &init).with_paced_writers();
        mysql.watch_ownership(RELAYS_ROLE);
        Self::Mysql {
            server,
            mysql: Arc::new(mysql),
        }
    }

    /// A file of its own.
    pub async fn sqlite() -> Self {
        Self::Sqlite(Arc::new(Sqlite::new().await))
    }

    /// The database that writers write to and relays read.
    #[must_use]
    pub fn database(&self) -> Arc<dyn Database> {
        match self {
            Self::Postgres { postgres, .. } => Arc::clone(postgres) as Arc<dyn Database>,
            Self::Mysql { mysql, .. } => Arc::clone(mysql) as Arc<dyn Database>,
            Self::Sqlite(file) => Arc::clone(file) as Arc<dyn Database>,
        }
    }

    /// An address for one relay, and what it goes through.
    ///
    /// # Panics
    ///
    /// When no port is to be had.
    #[must_use]
    pub fn way(&self) -> (String, Option<Proxy>) {
        match self {
            Self::Postgres {
                server, postgres, ..
            } => {
                let proxy = Proxy::to_local_port(server.port()).unwrap();
                let (port, name) = (proxy.port(), postgres.name());
                let url = format!("postgres://{RELAYS_ROLE}@127.0.0.1:{port}/{name}");
                (url, Some(proxy))
            }
            Self::Mysql { server, mysql } => {
                let proxy = Proxy::to_local_port(server.port()).unwrap();
                (mysql.url_of(RELAYS_ROLE, proxy.port()), Some(proxy))
            }
            Self::Sqlite(file) => (file.url(), None),
        }
    }

    /// Whether several relays deliver from it at once, where the destination lets them.
    #[must_use]
    pub fn is_shared_out(&self) -> bool {
        !matches!(self, Self::Sqlite(_))
    }

    /// The server, for whoever crashes it.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn crashing(&self) -> Box<dyn Crashing + '_> {
        match self {
            Self::Postgres {
                server, postgres, ..
            } => Box::new((&**server, &**postgres)),
            Self::Mysql { server, mysql } => Box::new((&**server, &**mysql)),
            Self::Sqlite(_) => panic!("SQLite has no server"),
        }
    }

    /// Stops the server in order, and starts it again.
    pub fn restart(&self) {
        match self {
            Self::Postgres { server, .. } => server.stop_fast(),
            Self::Mysql { server, .. } => server.stop(),
            Self::Sqlite(_) => {}
        }
        self.crashing().start_again();
    }

    /// Ends the relays' connections, and answers how many.
    pub async fn end_connections(&self) -> u64 {
        match self {
            Self::Postgres { postgres, .. } => postgres.end_connections(),
            Self::Mysql { mysql, .. } => mysql.end_connections(RELAYS_ROLE).await,
            Self::Sqlite(_) => 0,
        }
    }

    /// Thefts of partitions (I8), as far as somebody watched.
    #[must_use]
    pub fn thefts(&self) -> Vec<String> {
        match self {
            Self::Postgres { postgres, .. } => postgres.thefts(),
            Self::Mysql { mysql, .. } => mysql.thefts(),
            Self::Sqlite(_) => Vec::new(),
        }
    }

    /// Writers that waited too long for a table, in PostgreSQL's words: they wait for us. One that
    /// only reads one is none: a relay may wait until a leaf is emptied. Those of MySQL fail.
    #[must_use]
    pub fn long_waits(&self) -> Vec<String> {
        let Self::Postgres { server, .. } = self else {
            return Vec::new();
        };
        let mut waits = server.waits_for_tables();
        waits.retain(|line| !line.contains("AccessShareLock"));
        waits
    }

    /// Leaves of the outbox that were emptied.
    #[must_use]
    pub fn truncated_leaves(&self) -> u64 {
        match self {
            Self::Postgres { postgres, .. } => {
                postgres.number("select count(*) from posthaste.audit where action = 'truncate'")
            }
            Self::Mysql { .. } | Self::Sqlite(_) => 0,
        }
    }
}
