//! The database under a fleet.

use std::sync::Arc;

use posthaste_testkit::{proxy::Proxy, servers::postgres::PostgresServer};

use crate::{database::Database, postgres::Postgres, sqlite::Sqlite};

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

    /// A file of its own.
    pub async fn sqlite() -> Self {
        Self::Sqlite(Arc::new(Sqlite::new().await))
    }

    /// The database that writers write to and relays read.
    #[must_use]
    pub fn database(&self) -> Arc<dyn Database> {
        match self {
            Self::Postgres { postgres, .. } => Arc::clone(postgres) as Arc<dyn Database>,
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
            Self::Sqlite(file) => (file.url(), None),
        }
    }

    /// Whether several relays deliver from it at once, where the destination lets them.
    #[must_use]
    pub fn is_shared_out(&self) -> bool {
        matches!(self, Self::Postgres { .. })
    }

    /// Writers that waited too long for a table, in the server's words: they wait for us. One that
    /// only reads one is none: a relay may wait until a leaf is emptied.
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
            Self::Sqlite(_) => 0,
        }
    }
}
