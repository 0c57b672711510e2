//! Troubles of the database itself: nothing is lost, and a new claim goes on.

use std::time::Duration;

use posthaste_engine::{Registered, StoreError};

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, DESTINATION, LONG, NOTHING, Owner, PLENTY, ids, parking, registration, seqs},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_crash_voids_every_claim needs Crash,
        a_crash_keeps_what_was_answered needs Crash,
        cut_connections_are_unavailable_for_a_moment needs CutConnections,
    ]
}

/// Tries until the database answers again. Anything that waiting does not heal is a failure.
async fn heals<T, F: Future<Output = Result<T, StoreError>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// A restarted relay, after the former one's process is gone.
async fn restart(bench: &Bench, dead: Registered) -> Owner {
    let relay = heals(|| async {
        let again = registration("relay-a", LONG);
        bench.store.register(&again).await
    })
    .await;
    heals(|| {
        bench
            .store
            .fence(relay, dead.registration, "its process is gone")
    })
    .await;
    let claim = heals(|| async {
        bench.store.check().await?;
        Ok(bench.take_over(relay, DESTINATION).await)
    })
    .await;
    bench.open(relay, claim).await
}

async fn a_crash_voids_every_claim(bench: Bench) {
    let written = bench.commit_numbered("k", 6).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let at = read.cursor_at(1);
    owner
        .claimed
        .advance(&at, &seqs(&read.events[..2]))
        .await
        .unwrap();
    // A transaction that the crash takes along, with the numbers that it has drawn.
    let mut lost = bench.outbox.writer().await;
    lost.begin().await;
    lost.emit(&NewEvent::keyed("k", "never committed")).await;
    bench.outbox.crash().await;
    drop(lost);

    for _ in 0..2 {
        let refused = owner.claimed.advance(read.end(), &seqs(&read.events)).await;
        assert!(
            refused.is_err_and(|error| error.is_retryable()),
            "nothing was changed"
        );
    }
    let refused = owner.claimed.next(PLENTY).await;
    assert!(refused.is_err_and(|error| error.is_retryable()));

    let owner = restart(&bench, owner.relay).await;
    let mut expected = written[2..].to_vec();
    expected.extend(bench.commit_numbered("k", 2).await);
    assert_eq!(ids(&owner.deliver_all().await), expected);
}

async fn a_crash_keeps_what_was_answered(bench: Bench) {
    bench.commit_numbered("k", 4).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    owner
        .claimed
        .park(&[parking(&read, 0, Some(Duration::ZERO))])
        .await
        .unwrap();
    owner
        .claimed
        .advance(read.end(), &seqs(&read.events[..1]))
        .await
        .unwrap();
    bench.outbox.crash().await;
    let owner = restart(&bench, owner.relay).await;
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert_eq!(markers.len(), 1);
    let due = owner.claimed.due(10).await.unwrap();
    assert_eq!(due.events[0].event.id(), read.events[0].id());
    if bench.store.info().progress == posthaste_engine::Progress::Cursor {
        assert_eq!(ids(&owner.events().await), NOTHING);
    }
}

async fn cut_connections_are_unavailable_for_a_moment(bench: Bench) {
    let written = bench.commit_numbered("k", 4).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    bench.outbox.cut_connections().await;
    let refused = owner.claimed.advance(read.end(), &seqs(&read.events)).await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. })),
        "expected Unavailable, got {refused:?}"
    );
    heals(async || bench.renew(owner.relay, LONG).await).await;
    let owner = owner.again(&bench).await;
    assert_eq!(ids(&owner.deliver_all().await), written);
    bench.outbox.cut_connections().await;
    heals(|| async { bench.store.status().await.map(drop) }).await;
    let owner = {
        let claim = heals(|| async {
            bench.renew(owner.relay, LONG).await?;
            Ok(bench.take_over(owner.relay, DESTINATION).await)
        })
        .await;
        bench.open(owner.relay, claim).await
    };
    let more = bench.commit_numbered("k", 1).await;
    assert_eq!(ids(&owner.deliver_all().await), more);
}
