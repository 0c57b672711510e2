//! The outbox's numbers: near their end, and set back.

use std::sync::Arc;

use posthaste_engine::{Admin, Claimed, Start, Store, StoreError};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::Database;

use super::support::*;

/// Reads and stores until nothing is left; answers the topics.
async fn drain(claimed: &Arc<dyn Claimed>) -> Vec<String> {
    let mut topics = Vec::new();
    loop {
        let page = claimed.next(ALL).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        topics.extend(page.events.iter().map(|event| event.topic().to_owned()));
        if page.caught_up && !page.store_end {
            return topics;
        }
    }
}

fn write(database: &Database, topic: &str, events: u32) {
    database.psql(&format!(
        "insert into posthaste.outbox (topic) select '{topic}' from generate_series(1, {events})"
    ));
}

/// As the next relay does, once the one before has died.
async fn open_anew(database: &Database, store: &PostgresStore) -> Arc<dyn Claimed> {
    database.psql("update posthaste.relays set lease_until = clock_timestamp()");
    let relay = register(store, "next").await;
    let claim = claim(store, relay, Start::Oldest).await;
    store.open(&claim).await.expect("open")
}

#[tokio::test]
async fn events_written_while_the_sequence_was_set_back_are_delivered_after_init() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    write(&database, "before", 50);
    assert_eq!(drain(&claimed).await.len(), 50);

    database.psql("select setval('posthaste.outbox_seq_seq', 20)");
    write(&database, "hidden", 10);
    let read = claimed.next(ALL).await;
    assert!(
        matches!(read, Err(StoreError::IncarnationChanged { .. })),
        "{read:?}"
    );
    // The next relay names the fix.
    let told = store.check().await.unwrap_err().to_string();
    assert!(told.contains("posthaste init"), "{told}");

    let options = InitOptions::default();
    init(&database.url(), &options).await.expect("the mend");
    let claimed = open_anew(&database, &store).await;
    write(&database, "after", 3);
    let topics = drain(&claimed).await;
    let count = |topic| topics.iter().filter(|found| *found == topic).count();
    assert_eq!(
        (count("before"), count("hidden"), count("after")),
        (0, 10, 3)
    );
    let audited = database.psql("select count(*) from posthaste.audit where action = 'sequence'");
    assert_eq!(audited, "1");
    // A second one finds nothing to mend.
    init(&database.url(), &options).await.expect("again");
    assert!(drain(&claimed).await.is_empty());
}

/// A claim that has not looked since the sequence was set back must not store a floor of its own
/// over the mend.
#[tokio::test]
async fn a_claim_from_before_the_sequence_was_set_forward_stores_nothing() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    write(&database, "before", 50);
    drain(&claimed).await;
    write(&database, "read", 1);
    let page = claimed.next(ALL).await.unwrap();

    database.psql("select setval('posthaste.outbox_seq_seq', 20)");
    write(&database, "hidden", 1);
    init(&database.url(), &InitOptions::default())
        .await
        .unwrap();
    let stored = claimed.advance(&page.end, &[]).await;
    assert!(
        matches!(stored, Err(StoreError::IncarnationChanged { .. })),
        "{stored:?}"
    );
    let claimed = open_anew(&database, &store).await;
    assert_eq!(drain(&claimed).await, ["hidden", "read"]);
}

#[tokio::test]
async fn numbers_near_their_end_are_delivered_to_the_last() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    write(&database, "early", 5);
    drain(&claimed).await;
    // Across the end of the segment before the last one.
    database.psql(&format!(
        "select setval('posthaste.outbox_seq_seq', {})",
        i64::MAX - 2_000
    ));
    for _ in 0..4 {
        write(&database, "late", 500);
    }
    let mut delivered = 0;
    while delivered < 2_000 {
        let page = claimed.next(pages_of(300)).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        delivered += page.events.len();
    }
    assert_eq!(delivered, 2_000);
    assert!(drain(&claimed).await.is_empty());
    let status = store.status().await.unwrap();
    assert_eq!(status.pending, 0);

    // The writer is told; nothing waits behind a later number.
    let refused = std::panic::catch_unwind(|| write(&database, "none", 1));
    assert!(refused.is_err(), "the sequence has ended");
    let claimed = open_anew(&database, &store).await;
    assert!(drain(&claimed).await.is_empty());
}
