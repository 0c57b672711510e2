//! Housekeeping: the windows, and who keeps events beyond them.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Admin, AfterFailure, Claimed, Housekeeping, ParkedFilter, ParkedState, Parking, PinKind,
    Retention, Start, Store,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};

use super::support::*;

fn emit(database: &Database, events: u32) {
    database.psql(&format!(
        "insert into posthaste.outbox (topic, key, payload)
         select 't', 'k' || i, convert_to(i::text, 'UTF8') from generate_series(1, {events}) i"
    ));
}

/// Makes everything that is in the outbox so much older.
fn age(database: &Database, how: &str) {
    database.psql(&format!(
        "update posthaste.outbox set inserted_at = inserted_at - interval '{how}'"
    ));
}

fn rows(database: &Database) -> u64 {
    database
        .psql("select count(*) from posthaste.outbox")
        .parse()
        .unwrap()
}

/// Delivers, advances and keeps house until it is so: transactions of other tests on the same
/// server keep the floors down for a moment.
async fn keep_house_until(
    store: &PostgresStore,
    claimed: &Arc<dyn Claimed>,
    so: impl Fn(&Housekeeping) -> bool,
) -> Housekeeping {
    let mut all = Housekeeping::default();
    loop {
        drain(claimed, ALL).await;
        all.add(store.housekeep(None).await.unwrap());
        if so(&all) {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_leaf_that_fills_slowly_loses_its_oldest_rows() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    emit(&database, 300);
    age(&database, "49 hours");
    emit(&database, 200);
    let done = keep_house_until(&store, &claimed, Housekeeping::did_something).await;
    assert_eq!((done.events, done.leaves), (300, 0));
    assert_eq!(rows(&database), 200);
    assert_eq!(
        store.housekeep(None).await.unwrap(),
        Housekeeping::default()
    );
}

#[tokio::test]
async fn three_quarters_of_the_ring_are_kept_and_no_more() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    // One lap, and not a number more.
    emit(&database, 16 * 1_024 - 1);
    let done = keep_house_until(&store, &claimed, |all| all.leaves >= 4).await;
    assert_eq!(done.leaves, 4);
    assert_eq!(done.events, 4 * 1_024 - 1, "numbers begin with 1");
    assert_eq!(rows(&database), 12 * 1_024);
    let retained = store.retained().await.unwrap();
    assert_eq!(retained.configured_window, Duration::from_secs(86_400));
    assert!(retained.window < retained.configured_window, "{retained:?}");
}

async fn parked_in(store: &PostgresStore, state: ParkedState) -> usize {
    let filter = ParkedFilter {
        state: Some(state),
        ..ParkedFilter::default()
    };
    store.parked(&filter, 100).await.unwrap().len()
}

#[tokio::test]
async fn what_was_set_aside_goes_a_month_after_nothing_waits_for_it() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    database.psql("select posthaste.emit('t', 'keyed', key => 'k')");
    database.psql("select posthaste.emit('t', 'skipped', key => 's')");
    database.psql("select posthaste.emit('t', 'without a key')");
    let page = claimed.next(ALL).await.unwrap();
    let parkings = page.events.iter().map(|event| Parking {
        at: page.cursor_at(event),
        event: event.clone(),
        attempts: 1,
        kind: "invalid",
        reason: "no".to_owned(),
        next: match event.key() {
            Some("s") => AfterFailure::Skip,
            _ => AfterFailure::Dead,
        },
    });
    claimed.park(&parkings.collect::<Vec<_>>()).await.unwrap();
    let age = |days: u32| {
        database.psql(&format!(
            "update posthaste.parked set parked_at = parked_at - interval '{days} days',
                 settled_at = settled_at - interval '{days} days';
             update posthaste.attempts set at = at - interval '{days} days'"
        ))
    };
    age(29);
    assert_eq!(store.housekeep(None).await.unwrap().parked, 0);
    age(2);
    let done = store.housekeep(None).await.unwrap();
    assert_eq!((done.parked, done.attempts, done.more), (2, 2, false));
    // It holds its key: an operator decides.
    assert_eq!(parked_in(&store, ParkedState::Dead).await, 1);
    assert_eq!(parked_in(&store, ParkedState::Skipped).await, 0);
    let forgotten = "select detail from posthaste.audit where action = 'forget'";
    assert!(
        database.psql(forgotten).contains("(seq 3)"),
        "one line: {}",
        database.psql(forgotten)
    );
}

#[tokio::test]
async fn an_open_transaction_is_named_as_what_pins() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    let open = writer(&database.url()).await;
    open.batch_execute(
        "set application_name = 'the slow one'; \
         begin; select posthaste.emit('t', 'late', key => 'k')",
    )
    .await
    .unwrap();
    emit(&database, 3);
    age(&database, "25 hours");
    // They are delivered, and pinned all the same.
    let retained = loop {
        drain(&claimed, ALL).await;
        let retained = store.retained().await.unwrap();
        if retained
            .pins
            .iter()
            .any(|pin| pin.detail.contains("the slow one"))
        {
            break retained;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(
        retained
            .pins
            .iter()
            .all(|pin| pin.kind == PinKind::Transaction),
        "{retained:?}"
    );
    assert_eq!(retained.debt_events, 3);
    open.batch_execute("commit").await.unwrap();
    age(&database, "25 hours");
    keep_house_until(&store, &claimed, |all| all.events >= 4).await;
    assert_eq!(store.retained().await.unwrap().pins, []);
}

#[tokio::test]
async fn the_role_of_a_relay_may_keep_house_and_an_older_one_is_told_what_it_lacks() {
    let database = PostgresServer::shared(15).create_database();
    let role = format!("{}_mover", database.name());
    database.psql(&format!("create role {role} login"));
    let options = InitOptions {
        relay: Some(role.clone()),
        leaf_rows: Some(1 << 10),
        retention: Some(Duration::ZERO),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    let store = store(&database.url_for(&role));
    let by = register(&store, "test").await;
    let claimed = reopen(&store, by, Start::Oldest).await;
    emit(&database, 1_500);
    let done = keep_house_until(&store, &claimed, |all| all.events >= 1_500).await;
    assert_eq!(done.leaves, 1);
    assert_eq!(rows(&database), 0);

    database.psql(&format!(
        "revoke truncate on posthaste.outbox_00 from {role}"
    ));
    let refused = store.check().await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("TRUNCATE on posthaste.outbox_00"),
        "{refused}"
    );
    emit(&database, 16 * 1_024);
    let error = loop {
        drain(&claimed, ALL).await;
        match store.housekeep(Some(by)).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => break error,
        }
    };
    assert!(!error.is_retryable(), "{error}");
    assert!(error.to_string().contains("posthaste init"), "{error}");
    // The session is as good as before.
    database.psql(&format!("grant truncate on posthaste.outbox_00 to {role}"));
    keep_house_until(&store, &claimed, |_| rows(&database) == 0).await;
}
