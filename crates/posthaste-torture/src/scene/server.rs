//! What is done to PostgreSQL under a fleet.

use std::time::Duration;

use posthaste_testkit::servers::postgres::{PostgresServer, odd_settings};
use rand::Rng;
use tokio_postgres::error::SqlState;

use super::{LEASE, Scene};
use crate::{
    crash::crash_server,
    ground::{Ground, RELAYS_ROLE},
    postgres::Postgres,
    relay::{LIMIT, until},
};

impl Scene {
    pub(super) fn end_backends(&self) {
        let (_, postgres) = self.postgres();
        let ended = postgres.number(
            "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
             where application_name = 'posthaste' and datname = current_database()",
        );
        assert!(ended > 0, "no relay was connected");
    }

    /// Half of the time no transaction is under way, so that numbers of aborted ones are the last.
    pub(super) async fn crash(&mut self) {
        let is_quiet = self.random.random_bool(0.5) && self.open.is_none();
        let _failing = self.load.failing();
        let (server, postgres) = self.postgres();
        let mut again = 0;
        if is_quiet {
            let paused = self.load.pause().await;
            crash_server(server, postgres, &mut again, || ()).await;
            drop(paused);
        } else {
            server.crash();
            server.start_again();
        }
        self.numbers_issued_again += again;
        self.open_commits().await;
    }

    pub(super) async fn restart(&mut self) {
        let _failing = self.load.failing();
        let (server, _) = self.postgres();
        server.stop_fast();
        server.start_again();
        self.open_commits().await;
    }

    /// While it is on, what the relays read is refused: a row that is hidden must not count as
    /// delivered.
    pub(super) async fn row_security(&mut self) {
        // A relay that starts while it is on is told so, and ends.
        self.fleet.is_shared_out().await;
        // Nobody may alter the table beside a transaction that has written to it.
        self.open_commits().await;
        let is_noticed = self.random.random_bool(0.5);
        self.alter_outbox("enable row level security").await;
        if is_noticed {
            until("a refused read", || self.is_refused()).await;
        }
        let on = LEASE.mul_f64(self.random.random_range(0.2..1.5));
        tokio::time::sleep(on).await;
        self.alter_outbox("disable row level security").await;
        // Relays ask again at growing intervals, half a minute apart at the most.
        until("the end of the refusal", || !self.is_refused()).await;
        self.fleet.delivers().await;
    }

    /// Whether the relays say that row-level security stops them.
    fn is_refused(&self) -> bool {
        let error = &self.fleet.status()["destinations"][0]["last_error"];
        error
            .as_str()
            .is_some_and(|error| error.contains("row-level security"))
    }

    /// As a careful operator alters a table: writers wait behind it for a moment only.
    async fn alter_outbox(&self, how: &str) {
        const AGAIN: Duration = Duration::from_millis(30);
        let (_, postgres) = self.postgres();
        let client = postgres.client().await.expect("a connection");
        let script = format!("set lock_timeout = '50ms'; alter table posthaste.outbox {how}");
        let altered = async {
            while let Err(error) = client.batch_execute(&script).await {
                assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{error}");
                tokio::time::sleep(AGAIN).await;
            }
        };
        let altered = tokio::time::timeout(LIMIT, altered).await;
        altered.expect("a moment in which nobody uses the outbox");
    }

    /// Each session of the relays begins with odd settings until they are reset. Delivery goes
    /// on meanwhile.
    pub(super) async fn odd_settings_of_the_relays(&mut self) {
        let on = LEASE.mul_f64(self.random.random_range(0.2..1.5));
        let (server, postgres) = self.postgres();
        let role = format!("role {RELAYS_ROLE} in database {}", postgres.name());
        postgres.rows(&odd_settings(&role, server.version()));
        self.end_backends();
        self.fleet.delivers().await;
        tokio::time::sleep(on).await;
        self.fleet.delivers().await;
        postgres.rows(&format!("alter {role} reset all"));
        self.end_backends();
    }

    /// Ends the transaction that stays open, if there is one. After a crash it has ended already.
    pub(super) async fn open_commits(&mut self) {
        if let Some(open) = self.open.take() {
            open.ends().await;
        }
    }

    pub(super) fn postgres(&self) -> (&PostgresServer, &Postgres) {
        match &*self.ground {
            Ground::Postgres {
                server, postgres, ..
            } => (server, postgres),
            Ground::Sqlite(_) => panic!("{} has no server", self.setting),
        }
    }
}
