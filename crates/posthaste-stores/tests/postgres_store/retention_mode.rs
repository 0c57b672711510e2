//! Retention that truncates nothing, and what truncation does to readers of a hot standby: two real
//! servers.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{Claimed, Housekeeping, Retention, RetentionMode, Start};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::PostgresServer;

use super::support::*;

async fn set_mode(url: &str, mode: RetentionMode) {
    let options = InitOptions {
        retention_mode: Some(mode),
        ..InitOptions::default()
    };
    init(url, &options).await.expect("init");
}

async fn small_outbox(url: &str, mode: RetentionMode) {
    let options = InitOptions {
        leaf_rows: Some(1 << 10),
        retention: Some(Duration::ZERO),
        retention_mode: Some(mode),
        ..InitOptions::default()
    };
    init(url, &options).await.expect("init");
}

fn events(count: u32) -> String {
    format!("insert into posthaste.outbox (topic) select 't' from generate_series(1, {count})")
}

const ROWS: &str = "select count(*) from posthaste.outbox";

/// Delivers and keeps house until nothing is left.
async fn empty(
    store: &PostgresStore,
    claimed: &Arc<dyn Claimed>,
    rows: impl Fn() -> String,
) -> Housekeeping {
    let mut all = Housekeeping::default();
    loop {
        drain(claimed, ALL).await;
        all.add(store.housekeep(None).await.unwrap());
        if rows() == "0" {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A reader with an open snapshot of the standby, and what it sees.
async fn reader(url: &str) -> (tokio_postgres::Client, i64) {
    let client = writer(url).await;
    let begin = "begin isolation level repeatable read";
    client.batch_execute(begin).await.unwrap();
    let rows = client.query_one(ROWS, &[]).await.unwrap().get(0);
    (client, rows)
}

#[tokio::test]
async fn a_long_reader_on_a_standby_is_ended_by_truncation_and_not_by_deletes() {
    const DATABASE: &str = "postgres";
    let primary = PostgresServer::builder()
        .setting("fsync", "off")
        .setting("hot_standby_feedback", "on")
        .setting("wal_receiver_status_interval", "1s")
        .setting("max_standby_streaming_delay", "0")
        .start();
    let standby = primary.standby();
    let (url, standby_url) = (primary.admin_url(DATABASE), standby.admin_url(DATABASE));
    let rows = || primary.psql(DATABASE, ROWS);
    let replayed = async || {
        let written = primary.psql(DATABASE, "select pg_current_wal_lsn()");
        let reached = format!("select pg_last_wal_replay_lsn() >= '{written}'");
        while standby.psql(DATABASE, &reached) != "t" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let fed_back = async || {
        let fed = "select count(*) from pg_stat_replication where backend_xmin is not null";
        while primary.psql(DATABASE, fed) == "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    small_outbox(&url, RetentionMode::Delete).await;
    let store = store(&url);
    let claimed = open(&store, Start::Oldest).await;
    primary.psql(DATABASE, &events(3_000));
    replayed().await;
    let (long, seen) = reader(&standby_url).await;
    assert_eq!(seen, 3_000);
    fed_back().await;
    let done = empty(&store, &claimed, rows).await;
    assert_eq!((done.events, done.leaves), (3_000, 0));
    assert_eq!(store.retained().await.unwrap().advice, None);
    replayed().await;
    let still: i64 = long.query_one(ROWS, &[]).await.unwrap().get(0);
    assert_eq!(still, seen);
    drop(long);

    // Nor does vacuum, which would shorten an empty table behind the same lock.
    let (long, seen) = reader(&standby_url).await;
    assert_eq!(seen, 0);
    let pages =
        "select sum(pg_relation_size(t.relid)) from pg_partition_tree('posthaste.outbox') t";
    let before = primary.psql(DATABASE, pages);
    primary.psql(DATABASE, "vacuum posthaste.outbox");
    assert_eq!(primary.psql(DATABASE, pages), before);
    replayed().await;
    long.query_one(ROWS, &[]).await.unwrap();
    long.batch_execute("commit").await.unwrap();

    // The running relay heeds another mode.
    set_mode(&url, RetentionMode::Truncate).await;
    primary.psql(DATABASE, &events(3_000));
    replayed().await;
    let (_long, _) = reader(&standby_url).await;
    fed_back().await;
    let advice = store.retained().await.unwrap().advice.expect("advice");
    assert!(advice.contains("--retention-mode delete"), "{advice}");
    let done = empty(&store, &claimed, rows).await;
    assert!(done.leaves > 0, "{done:?}");
    let cancelled =
        "select confl_lock from pg_stat_database_conflicts where datname = current_database()";
    while standby.psql(DATABASE, cancelled) == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn deletes_go_on_behind_what_vacuum_has_not_removed() {
    let database = PostgresServer::shared(15).create_database();
    small_outbox(&database.url(), RetentionMode::Delete).await;
    let (store, other) = (store(&database.url()), store(&database.url()));
    let claimed = open(&store, Start::Oldest).await;
    let rows = || database.psql(ROWS);
    for _ in 0..3 {
        database.psql(&events(5_000));
        let done = empty(&store, &claimed, rows).await;
        assert_eq!((done.events, done.leaves), (5_000, 0));
    }
    // Another relay, which deleted nothing, goes on as well.
    database.psql(&events(100));
    empty(&other, &claimed, rows).await;
    // One lap of the ring later the same leaves hold greater numbers.
    database.psql(&format!(
        "select count(nextval('posthaste.outbox_seq_seq')) from generate_series(1, {})",
        16 * 1_024
    ));
    database.psql(&events(100));
    assert_eq!(empty(&store, &claimed, rows).await.events, 100);
}
