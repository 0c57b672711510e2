//! The schema and the checks at start.

use posthaste_engine::StoreError;

use super::{Case, cases};
use crate::store_suite::bench::{Bench, ids};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_fresh_outbox_passes_the_check,
        migrating_again_changes_nothing needs Migrations,
        two_may_migrate_at_once needs Migrations,
        a_newer_schema_is_refused needs Migrations,
    ]
}

async fn a_fresh_outbox_passes_the_check(bench: Bench) {
    bench.store.check().await.unwrap();
    bench.commit_numbered("k", 3).await;
    bench.own().await.deliver_all().await;
    bench.store.check().await.unwrap();
}

async fn migrating_again_changes_nothing(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 3).await;
    owner.deliver_all().await;
    let pending = bench.commit_numbered("k", 2).await;
    bench.outbox.init().await.unwrap();
    bench.store.check().await.unwrap();
    assert_eq!(ids(&owner.again(&bench).await.events().await), pending);
}

async fn two_may_migrate_at_once(bench: Bench) {
    let (a, b, c) = tokio::join!(
        bench.outbox.init(),
        bench.outbox.init(),
        bench.outbox.init()
    );
    a.unwrap();
    b.unwrap();
    c.unwrap();
    bench.store.check().await.unwrap();
}

async fn a_newer_schema_is_refused(bench: Bench) {
    bench.outbox.migrate_to_the_future().await;
    let refused = bench.store.check().await;
    assert!(
        matches!(refused, Err(StoreError::Schema { .. })),
        "expected Schema, got {refused:?}"
    );
    let refused = bench.outbox.init().await;
    assert!(
        matches!(refused, Err(StoreError::Schema { .. })),
        "expected Schema, got {refused:?}"
    );
}
