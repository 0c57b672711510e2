//! Deletes beside open transactions.

use std::time::Duration;

use posthaste_engine::Retention;
use posthaste_stores::{InitOptions, mysql::init};
use posthaste_testkit::servers::mysql::Version;

use super::support::{Outbox, Relay};

super::on_all! {
    nothing_is_deleted_across_a_hole
}

/// T23
async fn nothing_is_deleted_across_a_hole(version: Version) {
    let outbox = Outbox::shared(version).await;
    let options = InitOptions {
        retention: Some(Duration::ZERO),
        ..InitOptions::default()
    };
    init(&outbox.database.url(), &options).await.unwrap();
    let relay = Relay::new(&outbox).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    b.insert("1").await;
    b.insert("2").await;
    a.begin().await;
    a.insert("3, late").await;
    b.insert("4").await;
    b.insert("5").await;
    assert_eq!(relay.read_all().await, ["1", "2", "4", "5"]);
    // It waits for nobody, and removes what lies below the hole.
    let done = relay.store.housekeep(None).await.unwrap();
    assert_eq!(done.events, 2);
    assert_eq!(b.behind(0).await, ["4", "5"]);
    let kept = relay.store.retained().await.unwrap();
    assert_eq!(kept.debt_events, 2);
    assert_eq!(kept.pins[0].kind.as_str(), "transaction");
    a.commit().await;
    assert_eq!(relay.until_closed(&outbox).await, ["3, late"]);
    let done = relay.store.housekeep(None).await.unwrap();
    assert_eq!(done.events, 3);
}
