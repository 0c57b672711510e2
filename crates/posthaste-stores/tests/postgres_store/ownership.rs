//! Leases, claims and destinations on PostgreSQL.

use std::time::Duration;

use super::support::*;
use posthaste_engine::{
    Admin, ClaimOutcome, DestinationState, Leases, Ownership, Registered, RelayReport, Start,
    Store, StoreError,
};
use posthaste_stores::postgres::PostgresStore;

async fn try_claim(store: &PostgresStore, relay: Registered) -> ClaimOutcome {
    store.claim(relay, &whole("null:")).await.unwrap()
}

#[tokio::test]
async fn a_live_relay_keeps_its_claim_and_a_dead_one_is_fenced_before_the_epoch_rises() {
    let database = fresh().await;
    let store = store(&database.url());
    let one = register(&store, "one").await;
    let two = register(&store, "two").await;
    let first = claim(&store, one, Start::Oldest).await;
    assert_eq!((first.partitions.len(), first.settle), (64, Duration::ZERO));
    assert!(first.partitions.is_all());
    let ClaimOutcome::Held(shares) = try_claim(&store, two).await else {
        panic!("two relays own one destination");
    };
    let holder = shares.member(one.registration).unwrap();
    assert_eq!((holder.name.as_str(), holder.owned), ("one", 64));
    assert_eq!(shares.member(two.registration).unwrap().owned, 0);
    assert_eq!(
        (holder.host.pid, holder.host.process_started),
        (4_000_000_000, 77)
    );
    assert!(holder.lease_left > LEASE / 2);

    // The lease runs out, by the database's clock.
    database.psql("update posthaste.relays set lease_until = clock_timestamp() where name = 'one'");
    let second = claim(&store, two, Start::Oldest).await;
    assert!(second.epoch > first.epoch);
    assert!(second.settle > SETTLE / 2);
    let renewed = store.renew(one, LEASE, &RelayReport::new()).await;
    assert!(matches!(renewed, Err(StoreError::Fenced { .. })));
    let reclaimed = store.claim(one, &whole("null:")).await;
    assert!(matches!(reclaimed, Err(StoreError::Fenced { .. })));
    let opened = store.open(&first).await;
    assert!(matches!(opened.map(drop), Err(StoreError::Fenced { .. })));
    assert_eq!(
        database.psql("select action from posthaste.audit order by id"),
        "destination created\nfence\ntake-over"
    );
}

#[tokio::test]
async fn a_late_renewal_revives_a_relay_that_nobody_fenced() {
    let database = fresh().await;
    let store = store(&database.url());
    let one = register(&store, "one").await;
    let _claim = claim(&store, one, Start::Oldest).await;
    database.psql("update posthaste.relays set lease_until = clock_timestamp()");
    let renewal = store.renew(one, LEASE, &RelayReport::new()).await.unwrap();
    let [(name, wanted, shares)] = &renewal.destinations[..] else {
        panic!("{renewal:?}");
    };
    assert_eq!(
        (name.as_str(), wanted.state),
        ("default", DestinationState::Active)
    );
    let myself = shares.member(one.registration).unwrap();
    assert!(
        myself.owned == 64 && myself.lease_left > LEASE / 2,
        "{myself:?}"
    );
    assert_eq!(shares.dead, 0);
    let two = register(&store, "two").await;
    assert!(matches!(
        try_claim(&store, two).await,
        ClaimOutcome::Held(_)
    ));
}

#[tokio::test]
async fn fast_fencing_sets_the_settle_time_and_a_release_carries_it_on() {
    let database = fresh().await;
    let store = store(&database.url());
    let one = register(&store, "one").await;
    let _claim = claim(&store, one, Start::Oldest).await;
    let two = register(&store, "two").await;
    store
        .fence(two, one.registration, "its process is gone")
        .await
        .unwrap();
    assert!(claim(&store, two, Start::Oldest).await.settle > SETTLE / 2);
    // Released at once: the next owner still has to wait.
    store.leave(two, Duration::ZERO).await.unwrap();
    let three = register(&store, "three").await;
    assert!(claim(&store, three, Start::Oldest).await.settle > SETTLE / 2);
    store.leave(three, 3 * SETTLE).await.unwrap();
    let four = register(&store, "four").await;
    assert!(claim(&store, four, Start::Oldest).await.settle > 2 * SETTLE);
}

#[tokio::test]
async fn a_clean_release_needs_no_settling_and_leaves_nothing_to_the_leaver() {
    let database = fresh().await;
    let store = store(&database.url());
    let one = register(&store, "one").await;
    let claimed = reopen(&store, one, Start::Oldest).await;
    let page = claimed.next(ALL).await.unwrap();
    store.leave(one, Duration::ZERO).await.unwrap();
    let late = claimed.advance(&page.end, &[]).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })));
    let two = register(&store, "two").await;
    assert_eq!(
        claim(&store, two, Start::Oldest).await.settle,
        Duration::ZERO
    );
}

#[tokio::test]
async fn relays_that_race_for_a_new_destination_agree_on_one_owner() {
    let database = fresh().await;
    let stores: Vec<_> = (0..6).map(|_| store(&database.url())).collect();
    let claims = stores.iter().map(|store| async move {
        let relay = register(store, "racer").await;
        try_claim(store, relay).await
    });
    let outcomes = futures_util::future::join_all(claims).await;
    let owned = |outcome: &&ClaimOutcome| matches!(outcome, ClaimOutcome::Owned(_));
    assert_eq!(outcomes.iter().filter(owned).count(), 1);
    assert_eq!(
        database.psql("select count(*) from posthaste.destinations"),
        "1"
    );
    assert_eq!(database.psql("select count(*) from posthaste.cursors"), "1");
}

#[tokio::test]
async fn now_starts_behind_what_is_visible_and_before_what_is_open() {
    let database = fresh().await;
    let store = store(&database.url());
    database.psql("select posthaste.emit('t', 'old')");
    let late = writer(&database.url()).await;
    late.batch_execute("begin; select posthaste.emit('t', 'open')")
        .await
        .unwrap();
    let claimed = open(&store, Start::Now).await;
    database.psql("select posthaste.emit('t', 'new')");
    late.batch_execute("commit").await.unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["open", "new"]);
}

#[tokio::test]
async fn an_address_is_kept_and_a_changed_one_audited() {
    let database = fresh().await;
    let store = store(&database.url());
    let one = register(&store, "one").await;
    for address in ["file:a", "file:a", "file:b"] {
        store.claim(one, &whole(address)).await.unwrap();
    }
    assert_eq!(
        store.status().await.unwrap().destinations[0].address,
        "file:b"
    );
    assert_eq!(
        database.psql("select detail from posthaste.audit where action = 'address changed'"),
        "file:a -> file:b"
    );
}

#[tokio::test]
async fn destinations_are_paused_resumed_and_removed_and_a_removed_name_begins_anew() {
    let database = fresh().await;
    let store = store(&database.url());
    let one = register(&store, "one").await;
    let claimed = reopen(&store, one, Start::Oldest).await;
    database.psql("select posthaste.emit('t', 'e')");
    let page = claimed.next(ALL).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    for state in [
        DestinationState::Paused,
        DestinationState::Paused,
        DestinationState::Active,
    ] {
        assert!(store.set_destination("default", state).await.unwrap());
        let renewal = store.renew(one, LEASE, &RelayReport::new()).await.unwrap();
        assert_eq!(renewal.destinations[0].1.state, state);
    }
    assert!(
        !store
            .set_destination("other", DestinationState::Paused)
            .await
            .unwrap()
    );
    let refused = store
        .set_destination("default", DestinationState::Removed)
        .await;
    let Err(StoreError::Misconfigured { reason, .. }) = refused else {
        panic!("a live relay's destination was removed: {refused:?}");
    };
    assert!(reason.contains("relay `one`"), "{reason}");
    store.leave(one, Duration::ZERO).await.unwrap();
    assert!(
        store
            .set_destination("default", DestinationState::Removed)
            .await
            .unwrap()
    );
    assert!(store.status().await.unwrap().destinations.is_empty());

    let again = open(&store, Start::Oldest).await;
    assert_eq!(drain(&again, ALL).await, ["e"]);
    assert_eq!(
        database.psql("select max(id) > min(id) from posthaste.destinations"),
        "t"
    );
}
