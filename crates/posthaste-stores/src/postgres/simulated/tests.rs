//! Crashes: the state that they leave, the numbers that are issued again, and statements that go on
//! when nobody waits.

use futures_util::FutureExt;
use posthaste_engine::{
    Admin, Budget, ClaimOutcome, ClaimRequest, Leases, Ownership, Registered, Registration, Store,
    StoreError,
};

use super::*;

fn event(key: &str) -> NewEvent {
    NewEvent {
        topic: "orders".to_owned(),
        key: Some(key.to_owned()),
        ..NewEvent::default()
    }
}

fn commit(database: &SimulatedPostgres) -> Uuid {
    let mut writer = database.begin();
    let id = writer.emit(&event("k")).unwrap();
    writer.commit().unwrap();
    id
}

fn survivors(database: &SimulatedPostgres) -> Vec<Uuid> {
    let commits = database.committed().into_iter();
    commits.flat_map(|commit| commit.events).collect()
}

/// The number of the next transaction, and the next value of the sequence.
fn next(database: &SimulatedPostgres) -> (u64, i64) {
    let mut database = database.server.lock();
    let xid = database.assign_xid();
    database.abort(xid);
    (xid, database.draw())
}

async fn register(database: &SimulatedPostgres) -> Registered {
    let registration = Registration {
        name: "relay".to_owned(),
        version: "1".to_owned(),
        host: Default::default(),
        lease: Duration::from_secs(60),
    };
    database.register(&registration).await.unwrap()
}

async fn own(database: &SimulatedPostgres) -> Arc<dyn Claimed> {
    own_as(database, register(database).await).await
}

async fn own_as(database: &SimulatedPostgres, relay: Registered) -> Arc<dyn Claimed> {
    let request = ClaimRequest::all("default", "null:");
    match database.claim(relay, &request).await.unwrap() {
        ClaimOutcome::Owned(claim) => database.open(&claim).await.unwrap(),
        other => panic!("{other:?}"),
    }
}

const ALL: Budget = Budget {
    events: 100,
    bytes: 1 << 20,
};

#[tokio::test]
async fn numbers_that_only_lost_transactions_used_come_again() {
    let database = SimulatedPostgres::new(Settings::default());
    assert_eq!(next(&database), (1, 1));
    database.crash();
    assert_eq!(next(&database), (1, 1), "nothing was flushed");
    commit(&database);
    let mut open = database.begin();
    open.emit(&event("k")).unwrap();
    let (xid, _) = next(&database);
    database.crash();
    assert!(open.emit(&event("k")).is_err(), "its connection broke");
    // The open transaction's number is issued again; the sequence goes on behind what was logged
    // ahead.
    assert_eq!(next(&database), (xid - 1, 1 + 32 + 1));
    let counters = database.counters();
    assert_eq!((counters.numbers_again, counters.values_again), (2, 1));
}

#[tokio::test]
async fn what_is_not_flushed_is_lost_unless_somebody_flushes_behind_it() {
    let database = SimulatedPostgres::new(Settings::default());
    let unflushed = |key| {
        let mut writer = database.begin();
        let id = writer.emit(&event(key)).unwrap();
        writer.commit_unflushed().unwrap();
        id
    };
    let kept = unflushed("a");
    let flushed = commit(&database);
    unflushed("b");
    assert_eq!(survivors(&database).len(), 3);
    database.crash();
    assert_eq!(survivors(&database), [kept, flushed]);
    let claimed = own(&database).await;
    let page = claimed.next(ALL).await.unwrap();
    let read: Vec<Uuid> = page.events.iter().map(|event| event.id()).collect();
    assert_eq!(read, [kept, flushed]);
    assert_eq!(database.counters().incarnations, 1);
}

#[tokio::test]
async fn a_fail_over_goes_on_with_what_the_standby_has() {
    let database = SimulatedPostgres::new(Settings::default());
    let kept = commit(&database);
    database.replicate();
    let claimed = own(&database).await;
    commit(&database);
    database.fail_over();
    assert_eq!(survivors(&database), [kept]);
    let refused = claimed.next(ALL).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })));
    let again = own(&database).await;
    assert_eq!(again.next(ALL).await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_synchronous_standby_has_all_that_a_commit_waited_for_and_nothing_else() {
    let database = SimulatedPostgres::new(Settings::default());
    let kept = commit(&database);
    let mut unflushed = database.begin();
    unflushed.emit(&event("k")).unwrap();
    unflushed.commit_unflushed().unwrap();
    database.replicate_flushed();
    database.fail_over();
    assert_eq!(survivors(&database), [kept]);
}

#[tokio::test]
async fn a_statement_goes_on_when_nobody_waits_for_it() {
    let database = SimulatedPostgres::new(Settings::default());
    commit(&database);
    let claimed = own(&database).await;
    let page = claimed.next(ALL).await.unwrap();
    let sent = claimed.advance(&page.end, &[]).now_or_never();
    assert!(sent.is_none(), "it is under way");
    for _ in 0..100 {
        if database.status().await.unwrap().pending == 0 {
            assert_eq!(database.counters().unheard, 1);
            return;
        }
    }
    panic!("it was given up with its caller");
}

#[tokio::test]
async fn a_late_commit_is_read_by_the_poll_that_sees_it() {
    let database = SimulatedPostgres::new(Settings::default());
    let claimed = own(&database).await;
    let mut late = database.begin();
    let id = late.emit(&event("late")).unwrap();
    for _ in 0..4 {
        commit(&database);
        let page = claimed.next(ALL).await.unwrap();
        assert_eq!(page.events.len(), 1);
        claimed.advance(&page.end, &[]).await.unwrap();
    }
    late.commit().unwrap();
    let page = claimed.next(ALL).await.unwrap();
    assert_eq!(page.events[0].id(), id);
    assert_eq!(database.counters().stragglers, 1);
}

#[tokio::test]
async fn what_was_open_is_rolled_back_when_its_connection_breaks() {
    let database = SimulatedPostgres::new(Settings::default());
    let relay = register(&database).await;
    let claimed = own_as(&database, relay).await;
    let mut open = database.begin();
    open.emit(&event("lost")).unwrap();
    let kept = commit(&database);
    claimed.next(ALL).await.unwrap();
    database.cut_connections();
    assert!(open.commit().is_err());
    let again = own_as(&database, relay).await;
    let page = again.next(ALL).await.unwrap();
    let read: Vec<Uuid> = page.events.iter().map(|event| event.id()).collect();
    assert_eq!(read, [kept]);
    assert_eq!(database.server.lock().snapshot().xip(), [0; 0]);
}
