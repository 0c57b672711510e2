//! The locks by which relays do one thing after another: the roles that may take them, and the
//! holders that errors name.

use std::time::Duration;

use posthaste_engine::{
    Admin, ClaimRequest, DestinationState, Housekeeping, Leases, Ownership, Retention, Start,
    Store, StoreError,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::PostgresServer;

use super::support::*;

/// Every advisory lock that a release of ours has ever taken.
const EVERY_ADVISORY_LOCK: &str = "
    select count(pg_advisory_lock(hashtextextended('posthaste.' || name, id)))
    from unnest(array['destination', 'retention', 'init', 'hint']) name
    cross join generate_series(0, 99) id";

#[tokio::test]
async fn advisory_locks_that_any_role_may_take_stop_nothing() {
    let database = fresh().await;
    let role = format!("{}_stranger", database.name());
    database.psql(&format!("create role {role} login"));
    let stranger = writer(&database.url_for(&role)).await;
    stranger.batch_execute(EVERY_ADVISORY_LOCK).await.unwrap();

    init(&database.url(), &InitOptions::default())
        .await
        .unwrap();
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    database.psql("select posthaste.emit('t', 'e', key => 'k')");
    assert_eq!(drain(&claimed, ALL).await, ["e"]);
    let kept = store.housekeep(None).await.unwrap();
    assert_eq!(kept, Housekeeping::default());
    let relay = register(&store, "another").await;
    store
        .claim(relay, &ClaimRequest::all("default", "null:"))
        .await
        .unwrap();
    store.revoke(relay, "default", SETTLE).await.unwrap();
    let paused = store.set_destination("default", DestinationState::Paused);
    assert!(paused.await.unwrap());
    store.leave(relay, Duration::ZERO).await.unwrap();

    for lock in [
        "lock table posthaste.retention_lock in access share mode",
        "lock table posthaste.migrations in access share mode",
        "select destination_id from posthaste.destination_locks for share",
    ] {
        let refused = stranger.batch_execute(&format!("begin; {lock}")).await;
        let refused = refused.expect_err(lock);
        assert_eq!(refused.code().unwrap().code(), "42501", "{lock}");
        stranger.batch_execute("rollback").await.unwrap();
    }
}

#[tokio::test]
async fn no_lock_of_a_relay_is_one_that_others_can_see_and_take() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    drain(&claimed, ALL).await;
    // The claim waits at its first row, with all the locks that it takes before.
    let holder = writer(&database.url()).await;
    holder
        .batch_execute("begin; select id from posthaste.cursors for update")
        .await
        .unwrap();
    let relay = register(&store, "another").await;
    let request = ClaimRequest::all("default", "null:");
    let claim = store.claim(relay, &request);
    let look = async {
        let ours = "from pg_locks l join pg_database d on d.oid = l.database
                    where d.datname = current_database()";
        while database.psql(&format!(
            "select count(*) {ours} and l.locktype = 'tuple' \
             and l.relation = 'posthaste.cursors'::regclass"
        )) == "0"
        {
            tokio::task::yield_now().await;
        }
        // Relays that listen for hints hold one in shared mode, which nobody waits for.
        let advisory = database.psql(&format!(
            "select count(*) {ours} and l.locktype = 'advisory' and l.mode = 'ExclusiveLock'"
        ));
        holder.batch_execute("commit").await.unwrap();
        advisory
    };
    let (claimed, advisory) = tokio::join!(claim, look);
    claimed.unwrap();
    assert_eq!(advisory, "0");
}

/// The error of a claim that waits for what `lock` holds.
async fn refused(url: &str, lock: &str, destination: &str) -> StoreError {
    let holder = writer(url).await;
    let held = format!("set application_name = 'the debugger'; begin; {lock}");
    holder.batch_execute(&held).await.unwrap();
    let store = PostgresStore::new(url).unwrap();
    let relay = register(&store, "waits").await;
    let request = ClaimRequest::all(destination, "null:");
    store.claim(relay, &request).await.unwrap_err()
}

#[tokio::test]
async fn who_holds_a_lock_for_too_long_is_named() {
    let (old, new) = (fresh().await, fresh().await);
    open(&store(&old.url()), Start::Oldest).await;
    let (of_row, of_table) = (old.url(), new.url());
    let (row, table) = tokio::join!(
        refused(
            &of_row,
            "select destination_id from posthaste.destination_locks for update",
            "default"
        ),
        refused(
            &of_table,
            "lock table posthaste.retention_lock in share row exclusive mode",
            "new"
        ),
    );
    for error in [row, table] {
        assert!(error.is_retryable(), "{error:?}");
        let text = error.to_string();
        for part in ["process ", "role `", "application `the debugger`"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[tokio::test]
async fn of_two_that_create_the_schema_at_once_each_succeeds() {
    let database = PostgresServer::shared(15).create_database();
    let (url, options) = (database.url(), InitOptions::default());
    let (one, two) = tokio::join!(init(&url, &options), init(&url, &options));
    let mut applied = [one.unwrap().applied, two.unwrap().applied].concat();
    applied.sort_unstable();
    assert_eq!(applied, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    store(&url).check().await.unwrap();
}
