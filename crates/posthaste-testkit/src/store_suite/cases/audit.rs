//! The audit says the same of the same, whatever the store.

use std::time::Duration;

use posthaste_engine::{
    AfterFailure, ClaimRequest, DeadAction, DestinationState, ParkedFilter, Settlement,
};

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, DESTINATION, LONG, Owner, owned, parking, seqs, side_read_whole, whole},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        what_becomes_of_events_is_on_record,
        what_becomes_of_a_destination_is_on_record,
    ]
}

const NOW: Option<Duration> = Some(Duration::ZERO);

/// The new lines of the audit, sorted: a statement may write several lines.
async fn said(bench: &Bench, before: usize) -> Vec<String> {
    let mut lines = bench.outbox.audit().await.split_off(before);
    lines.sort();
    lines
}

fn sorted(lines: &[String]) -> Vec<String> {
    let mut lines = lines.to_vec();
    lines.sort();
    lines
}

fn failed(next: AfterFailure) -> Settlement {
    Settlement::Failed {
        kind: "unroutable",
        reason: "nowhere to put it".to_owned(),
        next,
    }
}

/// Makes an attempt with the parked copy of this key.
async fn settle(owner: &Owner, key: &str, settlement: Settlement) {
    let due = owner.claimed.due(10).await.unwrap().events;
    let copy = due.iter().find(|copy| copy.event.key() == Some(key));
    let copy = copy.expect("a copy that is due");
    owner.claimed.settle(copy.id, &settlement).await.unwrap();
}

/// Has all keys come back to the main group.
async fn join(owner: &Owner, keys: &[String]) {
    let (events, stands) = owner.up_to_joinable().await;
    let finished = seqs(&events);
    owner.claimed.advance(&stands, &finished).await.unwrap();
    let mut side = owner.claimed.side_read(keys).await.unwrap();
    side_read_whole(&mut *side, &stands).await;
    owner.claimed.join(keys, &stands).await.unwrap();
}

async fn what_becomes_of_events_is_on_record(bench: Bench) {
    let keys: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    let events: Vec<_> = keys.iter().map(|key| NewEvent::keyed(key, "1")).collect();
    bench.commit(&events).await;
    let owner = bench.own().await;
    let before = bench.outbox.audit().await.len();
    let read = owner.whole().await;
    let kind = parking(&read, 0, NOW).kind;
    let mut parked = [(0, NOW), (1, None), (2, None)].map(|(at, wait)| parking(&read, at, wait));
    parked[2].next = AfterFailure::Skip;
    owner.claimed.park(&parked).await.unwrap();
    owner.claimed.park(&[parking(&read, 3, NOW)]).await.unwrap();
    settle(&owner, "a", Settlement::Delivered).await;
    settle(&owner, "d", failed(AfterFailure::RetryIn(Duration::ZERO))).await;
    settle(&owner, "d", failed(AfterFailure::Dead)).await;

    let act = async |key: &str, action| {
        let filter = ParkedFilter {
            key: Some(key.to_owned()),
            ..ParkedFilter::default()
        };
        assert_eq!(bench.store.act(&filter, action).await.unwrap(), 1);
    };
    act("b", DeadAction::Retry).await;
    settle(&owner, "b", failed(AfterFailure::Skip)).await;
    act("d", DeadAction::Skip).await;
    let owner = owner.again(&bench).await;
    let blocked: Vec<String> = ["a", "b", "d"].map(str::to_owned).to_vec();
    join(&owner, &blocked).await;

    let event = |index: usize| {
        let event = &read.events[index];
        format!("event {} (seq {})", event.id(), event.seq())
    };
    let by_relay =
        |action: &str, detail: String| format!("{action}|relay-a|{DESTINATION}|{detail}");
    let by_operator = |action: &str, detail: String| format!("{action}||{DESTINATION}|{detail}");
    let expected = [
        by_relay("park", format!("{}: {kind}", event(0))),
        by_relay("dead", format!("{}: {kind}", event(1))),
        by_relay("skip", format!("{}: {kind}", event(2))),
        by_relay("park", format!("{}: {kind}", event(3))),
        by_relay(
            "delivered",
            format!("{} after 2 attempts: accepted", event(0)),
        ),
        by_relay("dead", format!("{} after 3 attempts: unroutable", event(3))),
        by_operator("dead retry", event(1)),
        by_relay("skip", format!("{} after 1 attempts: unroutable", event(1))),
        by_operator("dead skip", event(3)),
        by_relay(
            "join",
            "released keys that came back to the main group: 3".to_owned(),
        ),
    ];
    assert_eq!(said(&bench, before).await, sorted(&expected));
}

async fn what_becomes_of_a_destination_is_on_record(bench: Bench) {
    let first = bench.register("relay-a", LONG).await;
    let before = bench.outbox.audit().await.len();
    let owner = bench.own_as(first).await;
    for cluster in ["one", "two"] {
        owner.claimed.reached(cluster).await.unwrap();
    }
    let elsewhere = ClaimRequest {
        address: "file:///elsewhere",
        retarget: true,
        ..whole(DESTINATION)
    };
    let claim = bench.store.claim(first, &elsewhere).await.unwrap();
    let partitions = owned(claim).partitions.len();
    for state in [DestinationState::Paused, DestinationState::Active] {
        assert!(
            bench
                .store
                .set_destination(DESTINATION, state)
                .await
                .unwrap()
        );
    }
    let claim_as = async |relay| {
        let claim = bench.store.claim(relay, &elsewhere).await.unwrap();
        let claim = owned(claim);
        bench.open(relay, claim).await
    };
    let second = bench.register("relay-b", LONG).await;
    let fence = bench.store.fence(second, first.registration, "it is gone");
    fence.await.unwrap();
    claim_as(second).await;
    let withdraw = async |relay| {
        let withdraw = bench.store.withdraw(relay, DESTINATION, Duration::ZERO);
        withdraw.await.unwrap();
    };
    withdraw(second).await;
    let third = bench.register("relay-c", LONG).await;
    let owner = claim_as(third).await;
    bench.commit_numbered("k", 1).await;
    let read = owner.whole().await;
    let parked = parking(&read, 0, NOW);
    let event = format!(
        "event {} (seq {})",
        read.events[0].id(),
        read.events[0].seq()
    );
    owner
        .claimed
        .park(std::slice::from_ref(&parked))
        .await
        .unwrap();
    withdraw(third).await;
    let removed = DestinationState::Removed;
    assert!(
        bench
            .store
            .set_destination(DESTINATION, removed)
            .await
            .unwrap()
    );
    claim_as(third).await;

    let of = |action: &str, relay: &str, detail: &str| {
        format!("{action}|{relay}|{DESTINATION}|{detail}")
    };
    let first = first.registration;
    let all = format!("{partitions} partitions");
    let expected = [
        of("destination created", "relay-a", "start oldest"),
        of("cluster changed", "relay-a", "one -> two"),
        of("address changed", "relay-a", "null: -> file:///elsewhere"),
        of("destination paused", "", ""),
        of("destination active", "", ""),
        format!("fence|relay-b||relay `relay-a` ({first}): it is gone"),
        of("take-over", "relay-b", &format!("{all} of relay `relay-a`")),
        of("withdraw", "relay-b", &all),
        of("hand-over", "relay-c", &format!("{all} of relay `relay-b`")),
        of("park", "relay-c", &format!("{event}: {}", parked.kind)),
        of("withdraw", "relay-c", &all),
        of(
            "destination removed",
            "",
            "1 parked events closed as skipped",
        ),
        of(
            "read again",
            "relay-c",
            "1 skipped events discarded: they are read again from the outbox",
        ),
        of("destination created", "relay-c", "start oldest"),
    ];
    assert_eq!(said(&bench, before).await, sorted(&expected));
}
