//! Helpers of the PostgreSQL store's tests.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Admin, AfterFailure, Budget, Claim, ClaimOutcome, ClaimRequest, Claimed, HostIdentity, Leases,
    Ownership, Page, ParkedFilter, Parking, Registered, Registration, Retention, Settlement, Start,
    Store, StoreError, Want,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};

pub(crate) const LEASE: Duration = Duration::from_secs(600);
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// More than any page of these tests holds.
pub(crate) const ALL: Budget = Budget {
    events: 1_000,
    bytes: 64 << 20,
};

pub(crate) fn pages_of(events: usize) -> Budget {
    Budget {
        events,
        bytes: 64 << 20,
    }
}

/// A fresh database of the shared server with the schema.
pub(crate) async fn fresh() -> Database {
    let database = PostgresServer::shared(15).create_database();
    initialise(&database.url()).await;
    database
}

pub(crate) async fn initialise(url: &str) {
    // The smallest leaves, so that pages cross segments.
    let options = InitOptions {
        leaf_rows: Some(1 << 10),
        ..InitOptions::default()
    };
    init(url, &options).await.expect("init");
}

pub(crate) fn store(url: &str) -> PostgresStore {
    PostgresStore::new(url).expect("a store")
}

pub(crate) async fn register(store: &PostgresStore, name: &str) -> Registered {
    register_for(store, name, LEASE).await
}

pub(crate) async fn register_for(store: &PostgresStore, name: &str, lease: Duration) -> Registered {
    store
        .register(&registration(name, lease))
        .await
        .expect("register")
}

pub(crate) async fn try_register(
    store: &PostgresStore,
    name: &str,
) -> Result<Registered, StoreError> {
    store.register(&registration(name, LEASE)).await
}

fn registration(name: &str, lease: Duration) -> Registration {
    Registration {
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        host: HostIdentity {
            boot_id: "boot".to_owned(),
            pid_namespace: "ns".to_owned(),
            pid: 4_000_000_000,
            process_started: 77,
        },
        lease,
    }
}

pub(crate) async fn claim(store: &PostgresStore, relay: Registered, start: Start) -> Claim {
    let request = ClaimRequest {
        start,
        ..whole("null:")
    };
    owned(store.claim(relay, &request).await.expect("claim"))
}

/// All of the destination, with a settle time.
pub(crate) fn whole(address: &str) -> ClaimRequest<'_> {
    ClaimRequest {
        settle: SETTLE,
        ..ClaimRequest::all("default", address)
    }
}

/// So many partitions of it.
pub(crate) async fn claim_some(store: &PostgresStore, relay: Registered, count: u16) -> Claim {
    owned(claim_at_most(store, relay, count).await)
}

pub(crate) async fn claim_at_most(
    store: &PostgresStore,
    relay: Registered,
    count: u16,
) -> ClaimOutcome {
    let request = ClaimRequest {
        want: Want::AtMost(count),
        ..whole("null:")
    };
    store.claim(relay, &request).await.expect("claim")
}

pub(crate) fn owned(outcome: ClaimOutcome) -> Claim {
    match outcome {
        ClaimOutcome::Owned(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// Registers, claims and opens in one go.
pub(crate) async fn open(store: &PostgresStore, start: Start) -> Arc<dyn Claimed> {
    let relay = register(store, "test").await;
    reopen(store, relay, start).await
}

pub(crate) async fn reopen(
    store: &PostgresStore,
    relay: Registered,
    start: Start,
) -> Arc<dyn Claimed> {
    let claim = claim(store, relay, start).await;
    store.open(&claim).await.expect("open")
}

/// A client of an application.
pub(crate) async fn writer(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .expect("connect");
    tokio::spawn(connection);
    client
}

pub(crate) fn payloads_of(page: &Page) -> Vec<String> {
    let text = |event: &posthaste_engine::StoredEvent| {
        String::from_utf8(event.payload().unwrap_or(b"-").to_vec()).expect("text")
    };
    page.events.iter().map(text).collect()
}

/// Reads until nothing is left; answers every payload, and advances to the end of each page.
pub(crate) async fn drain(claimed: &Arc<dyn Claimed>, budget: Budget) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let page = claimed.next(budget).await.expect("next");
        seen.extend(payloads_of(&page));
        claimed.advance(&page.end, &[]).await.expect("advance");
        if page.caught_up {
            return seen;
        }
    }
}

pub(crate) const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Sets an event of a page aside.
pub(crate) fn parking(page: &Page, index: usize, retry_in: Option<Duration>) -> Parking {
    let event = page.events[index].clone();
    Parking {
        at: page.cursor_at(&event),
        event,
        attempts: 1,
        kind: "other",
        reason: "no such thing".to_owned(),
        next: retry_in.map_or(AfterFailure::Dead, AfterFailure::RetryIn),
    }
}

/// One way through everything that a relay asks of its store.
pub(crate) async fn deliver(
    store: &PostgresStore,
    claimed: &Arc<dyn Claimed>,
    psql: impl Fn(&str),
) {
    psql("select posthaste.emit('t', n::text, key => 'k' || n % 2) from generate_series(1, 30) n");
    let page = claimed.next(pages_of(10)).await.unwrap();
    let parking = parking(&page, 0, AT_ONCE);
    let key = parking.event.key().unwrap().to_owned();
    claimed.park(&[parking]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    store.status().await.unwrap();
    let copy = claimed.due(10).await.unwrap().events.remove(0);
    let parked = store.parked(&ParkedFilter::default(), 10).await.unwrap();
    assert_eq!(parked.len(), 1);
    claimed
        .settle(copy.id, &Settlement::Delivered)
        .await
        .unwrap();
    drain(claimed, ALL).await;
    let mut side = claimed.side_read(std::slice::from_ref(&key)).await.unwrap();
    let standing = claimed.next(ALL).await.unwrap();
    loop {
        let page = side.next(ALL, &standing.end).await.unwrap();
        if page.events.is_empty() && page.caught_up {
            break;
        }
        side.advance(&page.end, &[]).await.unwrap();
    }
    claimed
        .join(std::slice::from_ref(&key), &standing.end)
        .await
        .unwrap();
    claimed.report("closed", None).await.unwrap();
    store.housekeep(None).await.unwrap();
    store.retained().await.unwrap();
}

/// Returns once so many sessions of the database wait for a lock, or for the end of a transaction
/// that has changed a row.
pub(crate) async fn wait_for_waits(database: &Database, count: u32) {
    let waits = format!(
        "select count(*) >= {count} from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'"
    );
    while database.psql(&waits) == "f" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
