//! A reader on a hot standby, beside retention and vacuum on the primary.

use std::time::Instant;

use posthaste_testkit::servers::postgres::PostgresServer;
use rand::Rng;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::{LEASE, Scene};
use crate::{
    ground::Ground,
    relay::{LIMIT, until},
};

/// What one snapshot shows of the outbox: rows, their sum, and the least of them.
type Seen = (Option<i64>, Option<i64>, Option<i64>);

impl Scene {
    /// A transaction on the standby reads the outbox until rows that it sees are removed and
    /// vacuum has run. It is not cancelled, sees the same rows each time, and holds up neither
    /// replay nor delivery.
    pub(super) async fn standby_reader(&mut self) {
        // A transaction that stays open would keep retention from removing anything.
        self.open_commits().await;
        let time = LEASE.mul_f64(self.random.random_range(0.5..2.0));
        // The primary must know of the standby's snapshots, and what it removed before must be
        // replayed.
        self.standby_feeds_back().await;
        self.standby_replays().await;
        let (_, postgres) = self.postgres();
        let reader = begin(self.standby(), postgres.name()).await;
        let seen = sees(&reader).await;
        let began = Instant::now();
        while began.elapsed() < time || !self.is_removed(seen.2) {
            assert!(
                began.elapsed() < LIMIT,
                "retention stands still beside a reader"
            );
            self.fleet.delivers().await;
            assert_eq!(sees(&reader).await, seen, "one snapshot");
        }
        // Who waits here for another vacuum would look like a writer that waits.
        postgres.rows("vacuum (skip_locked) posthaste.outbox");
        self.standby_replays().await;
        assert_eq!(sees(&reader).await, seen, "one snapshot after a vacuum");
        self.fleet.delivers().await;
        reader.batch_execute("commit").await.expect("a commit");
        drop(reader);
        self.standby_replays().await;
    }

    /// Whether the primary does not have the row with this `seq` any more.
    fn is_removed(&self, seq: Option<i64>) -> bool {
        let (_, postgres) = self.postgres();
        seq.is_none_or(|seq| {
            let left = format!("select count(*) from posthaste.outbox where seq = {seq}");
            postgres.number(&left) == 0
        })
    }

    async fn standby_feeds_back(&self) {
        let (_, postgres) = self.postgres();
        let fed_back = "select count(*) from pg_stat_replication
             where state = 'streaming' and backend_xmin is not null";
        until("the standby's oldest snapshot", || {
            postgres.number(fed_back) > 0
        })
        .await;
    }

    /// The standby has replayed everything that is flushed by now.
    async fn standby_replays(&self) {
        let (_, postgres) = self.postgres();
        let flushed = postgres.rows("select pg_current_wal_flush_lsn()");
        let replayed = format!("select pg_last_wal_replay_lsn() >= '{flushed}'");
        until("the standby to replay", || {
            self.standby().psql(postgres.name(), &replayed) == "t"
        })
        .await;
    }

    fn standby(&self) -> &PostgresServer {
        match &*self.ground {
            Ground::Postgres {
                standby: Some(standby),
                ..
            } => standby,
            _ => panic!("{} has no standby here", self.setting),
        }
    }
}

async fn begin(standby: &PostgresServer, database: &str) -> Client {
    let connected = tokio_postgres::connect(&standby.admin_url(database), NoTls).await;
    let (client, connection) = connected.expect("a connection to the standby");
    tokio::spawn(connection);
    let begun = client
        .batch_execute("begin isolation level repeatable read")
        .await;
    begun.expect("a transaction on the standby");
    client
}

/// Asks by the simple protocol, which ends the query with its answer. By the other one the portal
/// stays open until the next statement, and a bitmap scan then keeps the last page that it read
/// pinned: an idle reader would hold up the replay of whatever prunes that page.
async fn sees(reader: &Client) -> Seen {
    let rows = "select count(*), sum(seq), min(seq) from posthaste.outbox";
    let answer = reader.simple_query(rows).await;
    let answer = answer.expect("a reader on the standby that is left alone");
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.expect("a row");
    let number = |column| row.get(column).map(|text| text.parse().expect("a number"));
    (number(0), number(1), number(2))
}
