//! Views and acts of operators.

use std::time::Duration;

use posthaste_engine::{
    DeadAction, DestinationState, ParkedFilter, ParkedState, Start, StoreError,
};

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{
        ADDRESS, Bench, DESTINATION, LONG, Owner, SHORT, assert_fenced, ids, owned, parking, seqs,
    },
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        retry_makes_it_due_with_a_full_set_of_attempts,
        skip_releases_the_key_and_keeps_the_event,
        discard_erases_the_payload,
        acting_means_what_the_filter_means,
        parked_events_are_listed_oldest_first,
        a_destination_is_paused_and_resumed,
        a_destination_that_is_held_is_not_removed,
        a_removed_destination_begins_anew,
        an_unknown_destination_is_not_found,
        status_of_an_empty_outbox,
        nothing_is_pending_without_a_destination,
        a_removed_destination_has_nothing_set_aside,
        what_a_relay_serves_is_told_by_name,
        status_counts_exactly,
        status_shows_relays,
        status_shows_what_was_reported,
        a_claim_knows_the_breaker_that_was_reported,
    ]
}

/// Four events of keys `k0` to `k3`; the first three are parked, the last of these is dead.
async fn three_parked(bench: &Bench) -> Owner {
    let events: Vec<_> = (0..4)
        .map(|number| NewEvent::keyed(&format!("k{number}"), format!("payload {number}")))
        .collect();
    bench.commit(&events).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let later = Some(LONG);
    owner
        .claimed
        .park(&[
            parking(&read, 0, later),
            parking(&read, 1, later),
            parking(&read, 2, None),
        ])
        .await
        .unwrap();
    owner
        .claimed
        .advance(read.end(), &seqs(&read.events))
        .await
        .unwrap();
    owner
}

pub(super) fn of_key(key: &str) -> ParkedFilter {
    ParkedFilter {
        key: Some(key.to_owned()),
        ..ParkedFilter::default()
    }
}

pub(super) fn in_state(state: ParkedState) -> ParkedFilter {
    ParkedFilter {
        state: Some(state),
        ..ParkedFilter::default()
    }
}

async fn retry_makes_it_due_with_a_full_set_of_attempts(bench: Bench) {
    let owner = three_parked(&bench).await;
    assert!(owner.claimed.due(10).await.unwrap().events.is_empty());
    assert_eq!(
        bench
            .store
            .act(&of_key("k2"), DeadAction::Retry)
            .await
            .unwrap(),
        1
    );
    let due = owner.claimed.due(10).await.unwrap();
    assert_eq!(due.events.len(), 1);
    assert_eq!(due.events[0].event.key(), Some("k2"));
    assert_eq!(due.events[0].attempts, 0);
    assert!(
        due.released.is_empty(),
        "the key stays blocked until it succeeds"
    );
}

async fn skip_releases_the_key_and_keeps_the_event(bench: Bench) {
    let owner = three_parked(&bench).await;
    assert_eq!(
        bench
            .store
            .act(&of_key("k2"), DeadAction::Skip)
            .await
            .unwrap(),
        1
    );
    assert_eq!(owner.claimed.due(10).await.unwrap().released, ["k2"]);
    let kept = bench
        .store
        .parked(&in_state(ParkedState::Skipped), 10)
        .await
        .unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].event.payload(), Some(&b"payload 2"[..]));
    assert_eq!(kept[0].due_at, None);
    // It waits no longer, so that nothing more is done to it.
    assert_eq!(
        bench
            .store
            .act(&of_key("k2"), DeadAction::Discard)
            .await
            .unwrap(),
        0
    );
}

async fn discard_erases_the_payload(bench: Bench) {
    let owner = three_parked(&bench).await;
    assert_eq!(
        bench
            .store
            .act(&of_key("k0"), DeadAction::Discard)
            .await
            .unwrap(),
        1
    );
    assert_eq!(owner.claimed.due(10).await.unwrap().released, ["k0"]);
    let kept = bench
        .store
        .parked(&in_state(ParkedState::Discarded), 10)
        .await
        .unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].event.key(), Some("k0"));
    assert_eq!(kept[0].event.payload(), None);
}

async fn acting_means_what_the_filter_means(bench: Bench) {
    let owner = three_parked(&bench).await;
    let waiting = bench
        .store
        .parked(&ParkedFilter::default(), 10)
        .await
        .unwrap();
    let nobodys = [
        ParkedFilter {
            destination: Some("another".to_owned()),
            ..ParkedFilter::default()
        },
        ParkedFilter {
            key: Some("k0".to_owned()),
            id: Some(waiting[1].event.id()),
            ..ParkedFilter::default()
        },
        ParkedFilter {
            state: Some(ParkedState::Dead),
            ..of_key("k0")
        },
        in_state(ParkedState::Delivered),
    ];
    for filter in nobodys {
        let acted = bench.store.act(&filter, DeadAction::Skip).await.unwrap();
        assert_eq!(acted, 0, "{filter:?}");
        assert!(bench.store.parked(&filter, 10).await.unwrap().is_empty());
    }
    let dead = in_state(ParkedState::Dead);
    assert_eq!(bench.store.act(&dead, DeadAction::Retry).await.unwrap(), 1);
    let one = ParkedFilter {
        id: Some(waiting[0].event.id()),
        destination: Some(DESTINATION.to_owned()),
        ..ParkedFilter::default()
    };
    assert_eq!(bench.store.act(&one, DeadAction::Skip).await.unwrap(), 1);
    let all = ParkedFilter::default();
    assert_eq!(bench.store.act(&all, DeadAction::Skip).await.unwrap(), 2);
    let mut released = owner.claimed.due(10).await.unwrap().released;
    released.sort_unstable();
    assert_eq!(released, ["k0", "k1", "k2"]);
}

async fn parked_events_are_listed_oldest_first(bench: Bench) {
    let owner = three_parked(&bench).await;
    let keys = |parked: Vec<posthaste_engine::ParkedEvent>| -> Vec<String> {
        parked
            .iter()
            .map(|parked| parked.event.key().unwrap().to_owned())
            .collect()
    };
    let all = bench
        .store
        .parked(&ParkedFilter::default(), 10)
        .await
        .unwrap();
    assert!(all.iter().all(|parked| parked.destination == DESTINATION));
    assert_eq!(all[0].attempts, 1);
    assert_eq!(all[0].kind, "invalid");
    assert_eq!(all[0].reason, "refused by the schema");
    assert!(all[0].due_at.is_some() && all[2].due_at.is_none());
    assert_eq!(keys(all), ["k0", "k1", "k2"]);
    let two = bench
        .store
        .parked(&ParkedFilter::default(), 2)
        .await
        .unwrap();
    assert_eq!(keys(two), ["k0", "k1"]);
    drop(owner);
}

async fn a_destination_is_paused_and_resumed(bench: Bench) {
    let owner = bench.own().await;
    for state in [DestinationState::Paused, DestinationState::Active] {
        assert!(
            bench
                .store
                .set_destination(DESTINATION, state)
                .await
                .unwrap()
        );
        let renewal = bench.renew(owner.relay, LONG).await.unwrap();
        let [(name, seen, _)] = &renewal.destinations[..] else {
            panic!("one destination: {renewal:?}");
        };
        assert_eq!((name.as_str(), seen.state), (DESTINATION, state));
        let status = bench.store.status().await.unwrap();
        assert_eq!(status.destinations[0].state, state);
        assert_eq!(owner.again(&bench).await.claim.wanted.state, state);
    }
}

async fn a_destination_that_is_held_is_not_removed(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 2).await;
    let refused = bench
        .store
        .set_destination(DESTINATION, DestinationState::Removed)
        .await;
    let Err(StoreError::Misconfigured { reason, .. }) = refused else {
        panic!("expected Misconfigured, got {refused:?}");
    };
    assert!(reason.contains("relay-a"), "{reason}");
    assert_eq!(owner.deliver_all().await.len(), 2, "it goes on");
}

async fn a_removed_destination_begins_anew(bench: Bench) {
    let owner = bench.own().await;
    let written = bench.commit_numbered("k", 3).await;
    let read = owner.whole().await;
    owner
        .claimed
        .park(&[parking(&read, 0, None)])
        .await
        .unwrap();
    owner.finish_all(&read).await;
    // Its relay is dead, but nobody has fenced it yet.
    bench.let_expire(owner.relay).await;
    let removed = loop {
        match bench
            .store
            .set_destination(DESTINATION, DestinationState::Removed)
            .await
        {
            Err(StoreError::Misconfigured { .. }) => tokio::time::sleep(SHORT / 4).await,
            answer => break answer,
        }
    };
    assert!(removed.unwrap());
    let status = bench.store.status().await.unwrap();
    assert!(status.destinations.is_empty());
    assert!(status.relays.iter().all(|relay| relay.shares.is_empty()));
    let gone = bench
        .store
        .set_destination(DESTINATION, DestinationState::Active)
        .await;
    assert!(!gone.unwrap());
    assert_fenced(owner.claimed.advance(read.end(), &seqs(&read.events)).await);

    let heir = bench.register("relay-b", LONG).await;
    let heir = bench.own_as(heir).await;
    assert!(heir.claim.epoch > owner.claim.epoch, "sinks compare epochs");
    assert_ne!(heir.claim.destination_id, owner.claim.destination_id);
    assert!(heir.claimed.markers(None, 10).await.unwrap().is_empty());
    assert_eq!(ids(&heir.events().await), written);
    assert_fenced(owner.claimed.advance(read.end(), &seqs(&read.events)).await);
}

async fn an_unknown_destination_is_not_found(bench: Bench) {
    for state in [
        DestinationState::Active,
        DestinationState::Paused,
        DestinationState::Removed,
    ] {
        assert!(!bench.store.set_destination("unknown", state).await.unwrap());
    }
}

async fn status_of_an_empty_outbox(bench: Bench) {
    let status = bench.store.status().await.unwrap();
    assert_eq!(status.pending, 0);
    assert!(status.pending_exact);
    assert_eq!(status.oldest_pending_age, None);
    assert!(status.destinations.is_empty() && status.relays.is_empty());
    assert_eq!(status.retained.debt_events, 0);
    assert!(status.retained.pins.is_empty());
}

async fn a_removed_destination_has_nothing_set_aside(bench: Bench) {
    let owner = three_parked(&bench).await;
    let leave = bench.store.leave(owner.relay, Duration::ZERO);
    leave.await.unwrap();
    let removed = DestinationState::Removed;
    let set = bench.store.set_destination(DESTINATION, removed);
    assert!(set.await.unwrap());
    let all = ParkedFilter::default();
    assert!(bench.store.parked(&all, 10).await.unwrap().is_empty());
    let acted = bench.store.act(&all, DeadAction::Retry).await.unwrap();
    assert_eq!(acted, 0);
}

async fn what_a_relay_serves_is_told_by_name(bench: Bench) {
    let relay = bench.register("relay-a", LONG).await;
    for name in ["z", "a"] {
        owned(bench.claim(relay, name, Start::Oldest).await);
    }
    let status = bench.store.status().await.unwrap();
    let shares = status.relays[0].shares.iter();
    let names: Vec<_> = shares.map(|share| share.destination.as_str()).collect();
    assert_eq!(names, ["a", "z"]);
}

async fn nothing_is_pending_without_a_destination(bench: Bench) {
    bench.commit_numbered("k", 2).await;
    let status = bench.store.status().await.unwrap();
    assert_eq!((status.pending, status.pending_exact), (0, true));
    assert_eq!(status.oldest_pending_age, None);
}

async fn status_counts_exactly(bench: Bench) {
    let owner = three_parked(&bench).await;
    // Behind the parked events: one more of a blocked key that the main group passes over ...
    bench.commit_numbered("k0", 2).await;
    let (_, end) = owner.up_to_joinable().await;
    owner.claimed.advance(&end, &[]).await.unwrap();
    // ... and three that nobody has read.
    bench.commit_numbered("fresh", 3).await;
    let other = owned(bench.claim(owner.relay, "other", Start::Now).await);
    let other = bench.open(owner.relay, other).await;
    bench.commit_numbered("fresh", 1).await;

    let status = bench.store.status().await.unwrap();
    let names: Vec<_> = status
        .destinations
        .iter()
        .map(|d| d.name.as_str())
        .collect();
    assert_eq!(names, [DESTINATION, "other"]);
    let [first, second] = &status.destinations[..] else {
        panic!("two destinations");
    };
    assert_eq!((first.pending, first.pending_exact), (6, true));
    assert_eq!((first.parked, first.dead, first.blocked_keys), (2, 1, 3));
    assert_eq!(first.address, ADDRESS);
    assert_eq!(first.state, DestinationState::Active);
    assert_eq!(first.relay.as_deref(), Some("relay-a"));
    assert_eq!((second.pending, second.pending_exact), (1, true));
    assert_eq!((second.parked, second.dead, second.blocked_keys), (0, 0, 0));
    assert_eq!((status.pending, status.pending_exact), (6, true));
    assert!(status.oldest_pending_age.unwrap() >= second.oldest_pending_age.unwrap());
    assert!(status.retained_bytes > 0);

    other.deliver_all().await;
    let status = bench.store.status().await.unwrap();
    assert_eq!(status.destinations[1].pending, 0);
    assert_eq!(status.destinations[1].oldest_pending_age, None);
}

async fn status_shows_relays(bench: Bench) {
    let owner = bench.own().await;
    let expired = bench.register("relay-b", LONG).await;
    bench.claim(expired, "other", Start::Oldest).await;
    bench.let_expire(expired).await;
    let fenced = bench.register("relay-c", LONG).await;
    bench
        .store
        .fence(owner.relay, fenced.registration, "test")
        .await
        .unwrap();
    tokio::time::sleep(SHORT * 2).await;
    let mut relays = bench.store.status().await.unwrap().relays;
    relays.sort_by(|a, b| a.name.cmp(&b.name));
    let seen: Vec<_> = relays
        .iter()
        .map(|relay| (relay.name.as_str(), relay.state.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("relay-a", "live"),
            ("relay-b", "expired"),
            ("relay-c", "fenced")
        ]
    );
    assert_eq!(
        relays[0].partitions,
        u32::from(owner.claim.partitions.len())
    );
    assert_eq!(relays[2].partitions, 0);
    assert!(relays[0].lease_expires_at > relays[1].lease_expires_at);
    assert_eq!(relays[0].version, "1.2.3");
    bench
        .store
        .leave(owner.relay, Duration::ZERO)
        .await
        .unwrap();
    let status = bench.store.status().await.unwrap();
    assert!(status.relays.iter().all(|relay| relay.name != "relay-a"));
    assert_eq!(status.destinations[0].relay, None);
}

async fn a_claim_knows_the_breaker_that_was_reported(bench: Bench) {
    let owner = bench.own().await;
    assert!(!owner.claim.breaker_open);
    owner.claimed.report("open", Some("away")).await.unwrap();
    let next = bench.own_as(owner.relay).await;
    assert!(next.claim.breaker_open);
    next.claimed.report("closed", None).await.unwrap();
    assert!(!bench.own_as(owner.relay).await.claim.breaker_open);
}

async fn status_shows_what_was_reported(bench: Bench) {
    let owner = bench.own().await;
    owner
        .claimed
        .report("open", Some("no such directory"))
        .await
        .unwrap();
    let seen = bench.outbox.store().await.status().await.unwrap();
    assert_eq!(seen.destinations[0].breaker, "open");
    assert_eq!(
        seen.destinations[0].last_error.as_deref(),
        Some("no such directory")
    );
    owner.claimed.report("closed", None).await.unwrap();
    let seen = bench.store.status().await.unwrap();
    assert_eq!(seen.destinations[0].breaker, "closed");
    assert_eq!(seen.destinations[0].last_error, None);
}
