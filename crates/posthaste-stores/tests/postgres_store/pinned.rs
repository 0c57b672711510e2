//! An old snapshot, behind which the server may remove nothing that our statements leave behind.

use std::time::Duration;

use posthaste_engine::{Leases, Start};
use posthaste_stores::postgres::PostgresStore;
use posthaste_testkit::servers::postgres::Database;

use super::support::*;

/// Blocks that were looked at in the cursors' table and its indexes, once so many updates were told
/// of.
async fn blocks(database: &Database, updates: u64) -> u64 {
    let told = "select n_tup_upd from pg_stat_user_tables where relname = 'cursors'";
    while database.psql(told).parse::<u64>().unwrap() < updates {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let looked_at = "select coalesce(heap_blks_hit + heap_blks_read, 0)
            + coalesce(idx_blks_hit + idx_blks_read, 0)
        from pg_statio_user_tables where relname = 'cursors'";
    database.psql(looked_at).parse().unwrap()
}

/// A claim that advances so often. Its sessions tell their numbers when they end.
async fn advance(store: PostgresStore, relay: &str, database: &Database, times: u64) {
    let relay = register(&store, relay).await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    let emits = writer(&database.url()).await;
    for _ in 0..times {
        emits
            .batch_execute("select posthaste.emit('t', 'e')")
            .await
            .unwrap();
        let page = claimed.next(ALL).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
    }
    store.leave(relay, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn an_old_snapshot_does_not_make_advances_dear() {
    const BEFORE: u64 = 1_500;
    const MEASURED: u64 = 300;
    let database = fresh().await;
    let old = writer(&database.url()).await;
    old.batch_execute("begin isolation level repeatable read; select 1")
        .await
        .unwrap();
    advance(store(&database.url()), "first", &database, BEFORE).await;
    let before = blocks(&database, BEFORE).await;
    advance(store(&database.url()), "second", &database, MEASURED).await;
    let looked_at = blocks(&database, BEFORE + MEASURED).await - before;
    // Some fifty versions fill a page: the way through an index would lead through thirty of them.
    assert!(looked_at / MEASURED < 15, "{looked_at} blocks");
    old.batch_execute("commit").await.unwrap();
}
