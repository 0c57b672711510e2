//! Destinations that keep the order of a key and a topic: a key that waits at one topic goes on at
//! the others.

use std::time::Duration;

use posthaste_engine::{
    ClaimRequest, Cursor, DeadAction, DestinationState, OrderBy, ParkedFilter, ParkedState,
    PinKind, Registered, Settlement, Start, StoreError, StoredEvent,
};
use uuid::Uuid;

use super::{
    Case, cases,
    retention::{STEPS_MAX, keep_house},
};
use crate::store_suite::{
    NewEvent,
    bench::{
        ADDRESS, Bench, DESTINATION, LONG, NOTHING, Owner, ids, owned, parking, seqs,
        side_read_whole, whole,
    },
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_key_that_waits_at_a_topic_goes_on_at_the_others,
        a_key_is_side_read_and_joined_for_its_topic_alone,
        each_topic_of_a_key_waits_by_itself,
        followers_of_one_topic_are_set_aside,
        the_longest_topic_and_key_wait_and_come_back,
        what_was_set_aside_is_found_by_its_key,
        the_order_of_a_destination_stays,
        relays_that_do_not_know_the_order_are_waited_for needs Migrations,
        what_was_skipped_is_adopted_by_one_of_another_order,
        what_was_skipped_is_adopted_by_one_that_orders_by_topic,
    ]
}

const KEY: &str = "k";
const WAITS: &str = "orders";
const GOES_ON: &str = "invoices";
/// `posthaste_engine::ORDER_KEY_SEPARATOR`.
const OF_WAITS: &str = "orders\u{1f}k";
const OF_GOES_ON: &str = "invoices\u{1f}k";

/// Events of one key, of both topics by turns.
fn by_turns(count: usize) -> Vec<NewEvent> {
    let event = |number: usize| NewEvent {
        topic: [WAITS, GOES_ON][number % 2].to_owned(),
        ..NewEvent::keyed(KEY, number.to_string())
    };
    (0..count).map(event).collect()
}

async fn own(bench: &Bench) -> Owner {
    own_in(bench, OrderBy::KeyAndTopic).await
}

/// The relay's own claim anew, as after a lost answer.
async fn again(bench: &Bench, owner: &Owner) -> Owner {
    claim_in(bench, owner.relay, OrderBy::KeyAndTopic).await
}

async fn own_in(bench: &Bench, order_by: OrderBy) -> Owner {
    let relay = bench.register("relay-a", LONG).await;
    claim_in(bench, relay, order_by).await
}

async fn claim_in(bench: &Bench, relay: Registered, order_by: OrderBy) -> Owner {
    let target = order_by.target(ADDRESS);
    let request = ClaimRequest {
        address: &target,
        ..whole(DESTINATION)
    };
    let outcome = bench.store.claim(relay, &request).await.unwrap();
    bench.open(relay, owned(outcome)).await
}

/// The first event of [`WAITS`] is dead, all of [`GOES_ON`] is delivered, and the followers of the
/// first were passed over.
struct Blocked {
    owner: Owner,
    followers: Vec<Uuid>,
}

impl Blocked {
    async fn new(bench: &Bench, count: usize) -> Self {
        let owner = own(bench).await;
        let written = bench.commit(&by_turns(count)).await;
        let read = owner.whole().await;
        owner
            .claimed
            .park(&[parking(&read, 0, None)])
            .await
            .unwrap();
        pass_over_from(&owner, read.end(), &read.events).await;
        pass_over(&owner).await;
        let followers = written[1..].iter().skip(1).step_by(2).copied().collect();
        Self { owner, followers }
    }
}

async fn pass_over_from(owner: &Owner, end: &Cursor, events: &[StoredEvent]) {
    let others = events.iter().filter(|event| event.topic() != WAITS);
    let finished: Vec<i64> = others.map(StoredEvent::seq).collect();
    owner.claimed.advance(end, &finished).await.unwrap();
}

/// Reads all that is there, delivers what is not of [`WAITS`], and answers that and the place.
async fn pass_over(owner: &Owner) -> (Vec<Uuid>, Cursor) {
    let (events, end) = owner.up_to_joinable().await;
    pass_over_from(owner, &end, &events).await;
    let others = events.iter().filter(|event| event.topic() != WAITS);
    (ids(others), end)
}

async fn marked(owner: &Owner) -> Vec<String> {
    let keys = [OF_WAITS, OF_GOES_ON, KEY].map(str::to_owned);
    owner.claimed.marked(&keys).await.unwrap()
}

async fn skip(bench: &Bench) {
    let filter = ParkedFilter {
        key: Some(KEY.to_owned()),
        state: Some(ParkedState::Dead),
        ..ParkedFilter::default()
    };
    assert_eq!(bench.store.act(&filter, DeadAction::Skip).await.unwrap(), 1);
}

async fn a_key_that_waits_at_a_topic_goes_on_at_the_others(bench: Bench) {
    let owner = own(&bench).await;
    let written = bench.commit(&by_turns(6)).await;
    let read = owner.whole().await;
    assert_eq!(ids(&read.events), written);
    for (number, event) in read.events.iter().enumerate() {
        assert_eq!(event.key(), Some(KEY));
        let key = [OF_WAITS, OF_GOES_ON][number % 2];
        assert_eq!(event.order_key(), Some(key));
    }
    let first = parking(&read, 0, Some(Duration::ZERO));
    owner.claimed.park(&[first]).await.unwrap();
    assert_eq!(marked(&owner).await, [OF_WAITS]);
    let again = again(&bench, &owner).await;
    let markers = again.claimed.markers(None, 10).await.unwrap();
    assert_eq!(markers.len(), 1);
    assert_eq!((&*markers[0].key, markers[0].released), (OF_WAITS, false));
    let due = again.claimed.due(10).await.unwrap().events;
    assert_eq!(ids(due.iter().map(|copy| &copy.event)), written[..1]);
    let copy = &due[0].event;
    assert_eq!((copy.key(), copy.order_key()), (Some(KEY), Some(OF_WAITS)));
    assert_eq!((copy.topic(), copy.payload()), (WAITS, Some(&b"0"[..])));
    let (others, _) = pass_over(&again).await;
    assert_eq!(others, [written[1], written[3], written[5]]);
}

async fn a_key_is_side_read_and_joined_for_its_topic_alone(bench: Bench) {
    let Blocked { owner, followers } = Blocked::new(&bench, 20).await;
    skip(&bench).await;
    assert_eq!(side_read_and_join(&owner).await, followers);
    let again = again(&bench, &owner).await;
    assert_eq!(ids(&again.events().await), NOTHING, "nothing comes twice");
    let more = bench.commit(&by_turns(2)).await;
    assert_eq!(ids(&again.events().await), more, "the main group's again");
}

async fn side_read_and_join(owner: &Owner) -> Vec<Uuid> {
    let (_, stands) = pass_over(owner).await;
    assert_eq!(owner.claimed.due(10).await.unwrap().released, [OF_WAITS]);
    let keys = [OF_WAITS.to_owned()];
    let mut side = owner.claimed.side_read(&keys).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    for event in &read.events {
        assert_eq!((event.topic(), event.key()), (WAITS, Some(KEY)));
        assert_eq!(event.order_key(), Some(OF_WAITS));
    }
    if !read.events.is_empty() {
        side.advance(read.end(), &seqs(&read.events)).await.unwrap();
    }
    owner.claimed.join(&keys, &stands).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
    ids(&read.events)
}

async fn each_topic_of_a_key_waits_by_itself(bench: Bench) {
    let owner = own(&bench).await;
    bench.commit(&by_turns(4)).await;
    let read = owner.whole().await;
    let heads = [
        parking(&read, 0, None),
        parking(&read, 1, Some(Duration::ZERO)),
    ];
    owner.claimed.park(&heads).await.unwrap();
    owner.claimed.advance(read.end(), &[]).await.unwrap();
    assert_eq!(marked(&owner).await.len(), 2);
    let status = bench.store.status().await.unwrap();
    assert_eq!(status.destinations[0].blocked_keys, 2);
    assert_eq!(status.pending, 2, "the followers");
    let due = owner.claimed.due(10).await.unwrap().events;
    assert_eq!(due.len(), 1, "the dead one is not tried");
    let delivered = Settlement::Delivered;
    owner.claimed.settle(due[0].id, &delivered).await.unwrap();
    let released = owner.claimed.due(10).await.unwrap().released;
    assert_eq!(released, [OF_GOES_ON], "the other topic waits on");
}

async fn followers_of_one_topic_are_set_aside(bench: Bench) {
    let Blocked { owner, followers } = Blocked::new(&bench, 12).await;
    bench.outbox.set_retention(Duration::ZERO).await;
    let pins = bench.store.retained().await.unwrap().pins;
    let pin = pins.iter().find(|pin| pin.kind == PinKind::Key);
    assert_eq!(pin.and_then(|pin| pin.key.as_deref()), Some(KEY));
    let mut evacuated = 0;
    for _ in 0..STEPS_MAX {
        pass_over(&owner).await;
        evacuated += keep_house(&bench).await.evacuated;
        if bench.store.retained().await.unwrap().debt_events == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(evacuated, followers.len() as u64);
    assert_eq!(bench.store.status().await.unwrap().pending, 0);
    skip(&bench).await;
    let mut delivered = Vec::new();
    while let Some(copy) = owner.claimed.due(10).await.unwrap().events.first() {
        assert_eq!(copy.event.order_key(), Some(OF_WAITS));
        assert_eq!(copy.event.key(), Some(KEY));
        delivered.push(copy.event.id());
        let settled = owner.claimed.settle(copy.id, &Settlement::Delivered);
        settled.await.unwrap();
    }
    assert_eq!(delivered, followers, "one after the other");
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
}

async fn the_longest_topic_and_key_wait_and_come_back(bench: Bench) {
    let event = NewEvent {
        topic: "t".repeat(249),
        ..NewEvent::keyed(&"k".repeat(1_024), "")
    };
    let owner = own(&bench).await;
    let written = bench.commit(&[event.clone(), event.clone()]).await;
    let read = owner.whole().await;
    let head = parking(&read, 0, Some(Duration::ZERO));
    owner.claimed.park(&[head]).await.unwrap();
    owner.claimed.advance(read.end(), &[]).await.unwrap();
    let due = owner.claimed.due(10).await.unwrap().events;
    assert_eq!(due[0].event.fault(), None);
    event.assert_stored_as(written[0], &due[0].event);
    let settled = owner.claimed.settle(due[0].id, &Settlement::Delivered);
    settled.await.unwrap();
    let again = again(&bench, &owner).await;
    let (_, stands) = again.up_to_joinable().await;
    let keys = again.claimed.due(10).await.unwrap().released;
    let mut side = again.claimed.side_read(&keys).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&read.events), written[1..]);
}

async fn what_was_set_aside_is_found_by_its_key(bench: Bench) {
    let Blocked { .. } = Blocked::new(&bench, 2).await;
    let of = |key: &str| ParkedFilter {
        key: Some(key.to_owned()),
        ..ParkedFilter::default()
    };
    let found = bench.store.parked(&of(KEY), 10).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].event.key(), Some(KEY));
    assert!(found[0].holds_key);
    for other in [OF_WAITS, "another"] {
        let found = bench.store.parked(&of(other), 10).await.unwrap();
        assert!(found.is_empty());
        let acted = bench.store.act(&of(other), DeadAction::Skip).await;
        assert_eq!(acted.unwrap(), 0);
    }
    let acted = bench.store.act(&of(KEY), DeadAction::Skip).await;
    assert_eq!(acted.unwrap(), 1);
}

async fn the_order_of_a_destination_stays(bench: Bench) {
    let owner = own(&bench).await;
    for retarget in [false, true] {
        let request = ClaimRequest {
            retarget,
            ..whole(DESTINATION)
        };
        let claim = bench.store.claim(owner.relay, &request).await;
        let Err(StoreError::Misconfigured { reason, .. }) = claim else {
            panic!("expected Misconfigured, got {claim:?}");
        };
        for part in [DESTINATION, "`key-and-topic`", "`key`", "`order`"] {
            assert!(reason.contains(part), "{reason}");
        }
    }
}

/// Their housekeeping would move the markers, and copy nothing of what waits there.
async fn relays_that_do_not_know_the_order_are_waited_for(bench: Bench) {
    let old = bench.register("relay-of-old", LONG).await;
    bench.outbox.make_relays_old().await;
    let relay = bench.register("relay-a", LONG).await;
    let target = OrderBy::KeyAndTopic.target(ADDRESS);
    let request = ClaimRequest {
        address: &target,
        ..whole(DESTINATION)
    };
    let claim = bench.store.claim(relay, &request).await;
    let Err(StoreError::Unavailable { reason, .. }) = claim else {
        panic!("expected Unavailable, got {claim:?}");
    };
    for part in ["`relay-of-old`", "`key-and-topic`", DESTINATION] {
        assert!(reason.contains(part), "{reason}");
    }
    let by_key = bench.claim(relay, "another", Start::Oldest).await;
    owned(by_key);
    bench.store.leave(old, Duration::ZERO).await.unwrap();
    owned(bench.store.claim(relay, &request).await.unwrap());
}

async fn what_was_skipped_is_adopted_by_one_of_another_order(bench: Bench) {
    adopted(bench, OrderBy::KeyAndTopic, OrderBy::Key).await;
}

async fn what_was_skipped_is_adopted_by_one_that_orders_by_topic(bench: Bench) {
    adopted(bench, OrderBy::Key, OrderBy::KeyAndTopic).await;
}

/// A destination that leaves a skipped event is removed and made anew with another order; the event
/// is tried after all.
async fn adopted(bench: Bench, before: OrderBy, after: OrderBy) {
    let owner = own_in(&bench, before).await;
    let written = bench.commit(&by_turns(1)).await;
    let read = owner.whole().await;
    owner
        .claimed
        .park(&[parking(&read, 0, None)])
        .await
        .unwrap();
    owner.claimed.advance(read.end(), &[]).await.unwrap();
    skip(&bench).await;
    let left = bench.store.leave(owner.relay, Duration::ZERO).await;
    left.unwrap();
    let removed = DestinationState::Removed;
    let removed = bench.store.set_destination(DESTINATION, removed).await;
    assert!(removed.unwrap());
    let relay = bench.register("relay-b", LONG).await;
    let target = after.target(ADDRESS);
    let request = ClaimRequest {
        address: &target,
        start: Start::Now,
        ..whole(DESTINATION)
    };
    let claim = owned(bench.store.claim(relay, &request).await.unwrap());
    let owner = bench.open(relay, claim).await;
    let filter = ParkedFilter {
        state: Some(ParkedState::Skipped),
        key: Some(KEY.to_owned()),
        ..ParkedFilter::default()
    };
    let acted = bench.store.act(&filter, DeadAction::Retry).await.unwrap();
    assert_eq!(acted, 1);
    let due = owner.claimed.due(10).await.unwrap().events;
    assert_eq!(ids(due.iter().map(|copy| &copy.event)), written);
    let key = after.order_key(WAITS, KEY);
    let copy = &due[0].event;
    assert_eq!((copy.key(), copy.order_key()), (Some(KEY), Some(&*key)));
}
