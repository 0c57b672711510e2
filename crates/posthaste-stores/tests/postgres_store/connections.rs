//! How many connections a relay opens.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Admin, AfterFailure, ClaimRequest, Claimed, DeadAction, Leases, Ownership, ParkedFilter,
    Parking, Registered, RelayReport, Retention, Store,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::Database;

use super::support::*;

/// Of each relay: leases, claims, housekeeping, operators' questions, hints.
const A_RELAY: usize = 5;
/// Of each destination: reads, progress, side reads.
const A_DESTINATION: usize = 3;

fn sessions(database: &Database) -> usize {
    let ours = "select count(*) from pg_stat_activity
                where datname = current_database() and application_name = 'posthaste'";
    database.psql(ours).parse().unwrap()
}

/// A connection that is dropped is seen for another moment.
async fn wait_for(database: &Database, expected: usize) {
    loop {
        let seen = sessions(database);
        if seen == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn open_one(store: &PostgresStore, relay: Registered, name: &str) -> Arc<dyn Claimed> {
    let request = ClaimRequest::all(name, "null:");
    let claim = owned(store.claim(relay, &request).await.unwrap());
    store.open(&claim).await.unwrap()
}

/// Sets the first event of a key aside, has it released and reads the rest of the key.
async fn side_read(store: &PostgresStore, claimed: &Arc<dyn Claimed>) {
    let page = claimed.next(ALL).await.unwrap();
    let event = page.events[0].clone();
    let parking = Parking {
        at: page.cursor_at(&event),
        event,
        attempts: 1,
        kind: "other",
        reason: "no".to_owned(),
        next: AfterFailure::Dead,
    };
    claimed.park(&[parking]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    let dead = ParkedFilter::default();
    store.act(&dead, DeadAction::Skip).await.unwrap();
    let mut side = claimed.side_read(&["k".into()]).await.unwrap();
    side.next(ALL, &page.end).await.unwrap();
}

async fn opens_no_more_than_is_said(destinations: usize) {
    let database = fresh().await;
    let options = InitOptions {
        notify: Some(true),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    database.psql("select posthaste.emit('t', n::text, key => 'k') from generate_series(1, 3) n");
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let mut claims = Vec::new();
    for number in 0..destinations {
        claims.push(open_one(&store, relay, &format!("d{number}")).await);
    }
    for claimed in &claims {
        side_read(&store, claimed).await;
    }
    store.check().await.unwrap();
    store.status().await.unwrap();
    store.housekeep(Some(relay)).await.unwrap();
    store
        .renew(relay, LEASE, &RelayReport::new())
        .await
        .unwrap();
    wait_for(&database, A_RELAY + A_DESTINATION * destinations).await;

    // Claimed anew, as after every failed call: the connections of a former claim end with it.
    for (number, claimed) in claims.iter_mut().enumerate() {
        *claimed = open_one(&store, relay, &format!("d{number}")).await;
        claimed.next(ALL).await.unwrap();
    }
    wait_for(&database, A_RELAY + (A_DESTINATION - 1) * destinations).await;
    drop(claims);
    drop(store);
    wait_for(&database, 0).await;
}

#[tokio::test]
async fn a_relay_opens_no_more_connections_than_is_said() {
    for destinations in [1, 2, 5] {
        opens_no_more_than_is_said(destinations).await;
    }
}
