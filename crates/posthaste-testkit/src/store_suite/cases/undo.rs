//! Operators take back that an event was skipped.

use std::time::Duration;

use posthaste_engine::{
    DeadAction, DestinationState, ParkedFilter, ParkedState, Settlement, Start,
};
use uuid::Uuid;

use super::{
    Case,
    admin::{in_state, of_key},
    cases,
    retention::let_all_go,
    side::{Blocked, MINE, blocked, release, side_read_to},
};
use crate::store_suite::bench::{
    Bench, DESTINATION, LONG, Owner, PLENTY, ids, owned, parking, refused,
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        what_was_skipped_is_tried_again_once_its_key_has_gone_on,
        a_skipped_event_that_is_retried_and_dies_again_holds_its_key_no_more,
        a_skipped_event_that_is_retried_and_waits_again_holds_its_key_no_more,
        a_skipped_event_that_dies_again_twice_holds_its_key_no_more,
        a_key_is_released_while_a_skipped_event_of_it_is_tried_again,
        a_dead_event_that_is_retried_goes_on_to_hold_its_key,
        a_removed_destinations_events_are_tried_again_by_the_next_of_its_name,
        what_the_next_of_its_name_sends_itself_is_not_tried_again,
        an_event_that_the_outbox_keeps_no_longer_is_tried_again_by_the_next,
        a_removed_destinations_events_are_discarded,
        a_skipped_event_is_discarded_where_that_is_asked_for,
        a_list_tells_which_event_holds_its_key,
    ]
}

const HOUR: Duration = Duration::from_secs(3_600);

fn skipped(key: &str) -> ParkedFilter {
    ParkedFilter {
        state: Some(ParkedState::Skipped),
        ..of_key(key)
    }
}

async fn what_was_skipped_is_tried_again_once_its_key_has_gone_on(bench: Bench) {
    let Blocked { owner, stands, .. } = blocked(&bench, 9).await;
    let act = async |filter: &ParkedFilter, action| bench.store.act(filter, action).await.unwrap();
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    assert_eq!(
        act(&skipped(MINE), DeadAction::Retry).await,
        0,
        "it comes back"
    );
    side_read_to(&mut *side, &stands, PLENTY).await;
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert_eq!(act(&of_key(MINE), DeadAction::Retry).await, 0);
    assert_eq!(act(&skipped(MINE), DeadAction::Skip).await, 0);
    assert_eq!(act(&skipped(MINE), DeadAction::Retry).await, 1);
    assert_eq!(
        act(&skipped(MINE), DeadAction::Retry).await,
        0,
        "it waits again"
    );
    let due = owner.claimed.due(10).await.unwrap();
    assert_eq!(due.events.len(), 1);
    assert!(due.events[0].event.payload().is_some());
    assert_eq!(
        (due.events[0].event.key(), due.events[0].attempts),
        (Some(MINE), 0)
    );
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert!(markers.is_empty(), "it holds its key up no more");
    assert!(!due.events[0].holds_key);
    let settled = owner
        .claimed
        .settle(due.events[0].id, &Settlement::Delivered);
    settled.await.unwrap();
    assert!(owner.claimed.due(10).await.unwrap().events.is_empty());
    let delivered = in_state(ParkedState::Delivered);
    assert_eq!(bench.store.parked(&delivered, 10).await.unwrap().len(), 1);
}

/// The first event of [`MINE`] was skipped, its key has gone on, and it is to be tried again.
async fn retried(bench: &Bench) -> Owner {
    let Blocked { owner, stands, .. } = blocked(bench, 9).await;
    release(bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    side_read_to(&mut *side, &stands, PLENTY).await;
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    let acted = bench.store.act(&skipped(MINE), DeadAction::Retry).await;
    assert_eq!(acted.unwrap(), 1);
    owner
}

/// The one copy that is due.
async fn due(owner: &Owner) -> i64 {
    let due = owner.claimed.due(10).await.unwrap().events;
    assert_eq!(due.len(), 1, "{due:?}");
    due[0].id
}

async fn settle(owner: &Owner, copy: i64, settlement: Settlement) {
    owner.claimed.settle(copy, &settlement).await.unwrap();
}

/// A later event of the key dies, and its followers are passed over.
async fn later_one_dies(bench: &Bench, owner: &Owner) -> Vec<Uuid> {
    let written = bench.commit_numbered(MINE, 3).await;
    let read = owner.whole().await;
    assert_eq!(ids(&read.events), written);
    let dead = parking(&read, 0, None);
    owner.claimed.park(&[dead]).await.unwrap();
    owner.claimed.advance(read.end(), &[]).await.unwrap();
    assert_held(bench, owner).await;
    written
}

async fn assert_held(bench: &Bench, owner: &Owner) {
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert_eq!(markers.len(), 1);
    assert!(!markers[0].released);
    assert!(owner.claimed.due(10).await.unwrap().released.is_empty());
    let status = bench.store.status().await.unwrap();
    assert_eq!(status.destinations[0].blocked_keys, 1);
}

/// An operator skips this event: the key comes back to the main group, and what follows is
/// side-read.
async fn goes_on_without(bench: &Bench, owner: &Owner, written: &[Uuid]) {
    let one = ParkedFilter {
        id: Some(written[0]),
        ..ParkedFilter::default()
    };
    assert_eq!(bench.store.act(&one, DeadAction::Skip).await.unwrap(), 1);
    let (_, stands) = owner.up_to_joinable().await;
    owner.claimed.advance(&stands, &[]).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap()[0].released);
    assert_eq!(owner.claimed.due(10).await.unwrap().released, [MINE]);
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_to(&mut *side, &stands, PLENTY).await;
    assert_eq!(ids(&read), written[1..]);
    let mut again = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_to(&mut *again, &stands, PLENTY).await;
    assert!(read.is_empty(), "the marker has moved");
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
}

async fn assert_waits(bench: &Bench, parked: u64, dead: u64) {
    let status = bench.store.status().await.unwrap();
    let of = &status.destinations[0];
    assert_eq!((of.parked, of.dead, of.blocked_keys), (parked, dead, 0));
    let waiting = bench.store.parked(&ParkedFilter::default(), 10).await;
    assert_eq!(waiting.unwrap().len() as u64, parked + dead);
}

async fn a_skipped_event_that_is_retried_and_dies_again_holds_its_key_no_more(bench: Bench) {
    let owner = retried(&bench).await;
    settle(&owner, due(&owner).await, refused(None)).await;
    assert_waits(&bench, 0, 1).await;
    let written = later_one_dies(&bench, &owner).await;
    // Another life of the relay finds the same.
    let owner = owner.again(&bench).await;
    assert_held(&bench, &owner).await;
    goes_on_without(&bench, &owner, &written).await;
    assert_waits(&bench, 0, 1).await;
    // It is decided on like any other.
    let acted = bench.store.act(&of_key(MINE), DeadAction::Skip).await;
    assert_eq!(acted.unwrap(), 1);
    assert_waits(&bench, 0, 0).await;
    let skipped = bench.store.parked(&skipped(MINE), 10).await.unwrap();
    assert_eq!(skipped.len(), 2);
}

async fn a_skipped_event_that_is_retried_and_waits_again_holds_its_key_no_more(bench: Bench) {
    let owner = retried(&bench).await;
    let copy = due(&owner).await;
    settle(&owner, copy, refused(Some(HOUR))).await;
    let written = later_one_dies(&bench, &owner).await;
    goes_on_without(&bench, &owner, &written).await;
    assert_waits(&bench, 1, 0).await;
    assert!(owner.claimed.due(10).await.unwrap().next_in.is_some());
    settle(&owner, copy, Settlement::Delivered).await;
    assert_waits(&bench, 0, 0).await;
}

async fn a_skipped_event_that_dies_again_twice_holds_its_key_no_more(bench: Bench) {
    let owner = retried(&bench).await;
    for _ in 0..2 {
        settle(&owner, due(&owner).await, refused(None)).await;
        let acted = bench.store.act(&of_key(MINE), DeadAction::Retry).await;
        assert_eq!(acted.unwrap(), 1);
    }
    settle(&owner, due(&owner).await, refused(None)).await;
    let written = later_one_dies(&bench, &owner).await;
    goes_on_without(&bench, &owner, &written).await;
    assert_waits(&bench, 0, 1).await;
}

async fn a_key_is_released_while_a_skipped_event_of_it_is_tried_again(bench: Bench) {
    let owner = retried(&bench).await;
    let in_flight = due(&owner).await;
    let written = later_one_dies(&bench, &owner).await;
    goes_on_without(&bench, &owner, &written).await;
    // The relay dies before the answer comes: it is sent again.
    let again = owner.again(&bench).await;
    assert_eq!(due(&again).await, in_flight);
    assert!(again.claimed.due(10).await.unwrap().released.is_empty());
    settle(&again, in_flight, Settlement::Delivered).await;
    assert_waits(&bench, 0, 0).await;
}

async fn a_dead_event_that_is_retried_goes_on_to_hold_its_key(bench: Bench) {
    let Blocked { owner, .. } = blocked(&bench, 9).await;
    for retry_in in [None, Some(HOUR)] {
        let acted = bench.store.act(&of_key(MINE), DeadAction::Retry).await;
        assert_eq!(acted.unwrap(), 1);
        assert_held(&bench, &owner).await;
        let waiting = owner.claimed.due(10).await.unwrap().events;
        assert!(waiting[0].holds_key);
        settle(&owner, waiting[0].id, refused(retry_in)).await;
        assert_held(&bench, &owner).await;
    }
}

/// A destination is removed while its event waits; answers the event, and who is left to ask.
async fn removed_with_one_waiting(bench: &Bench) -> (Uuid, ParkedFilter) {
    let owner = bench.own().await;
    let written = bench.commit_numbered(MINE, 1).await;
    let read = owner.whole().await;
    let waits = parking(&read, 0, Some(HOUR));
    owner.claimed.park(&[waits]).await.unwrap();
    owner.claimed.advance(read.end(), &[]).await.unwrap();
    bench
        .store
        .leave(owner.relay, Duration::ZERO)
        .await
        .unwrap();
    let removed = DestinationState::Removed;
    let set = bench.store.set_destination(DESTINATION, removed).await;
    assert!(set.unwrap());
    (written[0], skipped(MINE))
}

async fn a_removed_destinations_events_are_tried_again_by_the_next_of_its_name(bench: Bench) {
    let (id, left) = removed_with_one_waiting(&bench).await;
    let listed = bench.store.parked(&left, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].destination, DESTINATION);
    let retried = bench.store.act(&left, DeadAction::Retry).await;
    assert_eq!(retried.unwrap(), 0, "nobody of its name");

    let relay = bench.register("relay-b", LONG).await;
    let claim = owned(bench.claim(relay, DESTINATION, Start::Now).await);
    let heir = bench.open(relay, claim).await;
    let retried = bench.store.act(&left, DeadAction::Retry).await;
    assert_eq!(retried.unwrap(), 1, "it begins behind the event");
    assert_waits(&bench, 1, 0).await;
    let due = heir.claimed.due(10).await.unwrap().events;
    assert_eq!((due[0].event.id(), due[0].holds_key), (id, false));
    settle(&heir, due[0].id, Settlement::Delivered).await;
    assert_waits(&bench, 0, 0).await;
}

async fn what_the_next_of_its_name_sends_itself_is_not_tried_again(bench: Bench) {
    let (id, left) = removed_with_one_waiting(&bench).await;
    let relay = bench.register("relay-b", LONG).await;
    let claim = owned(bench.claim(relay, DESTINATION, Start::Oldest).await);
    let heir = bench.open(relay, claim).await;
    assert!(bench.store.parked(&left, 10).await.unwrap().is_empty());
    assert_eq!(ids(&heir.deliver_all().await), [id]);
    let_all_go(&bench, &[&heir]).await;
    let retried = bench.store.act(&left, DeadAction::Retry).await;
    assert_eq!(retried.unwrap(), 0, "it was sent");
}

async fn an_event_that_the_outbox_keeps_no_longer_is_tried_again_by_the_next(bench: Bench) {
    let (id, left) = removed_with_one_waiting(&bench).await;
    let other = bench.register("relay-a", LONG).await;
    let claim = owned(bench.claim(other, "another", Start::Now).await);
    let_all_go(&bench, &[&bench.open(other, claim).await]).await;
    let relay = bench.register("relay-b", LONG).await;
    let claim = owned(bench.claim(relay, DESTINATION, Start::Oldest).await);
    let heir = bench.open(relay, claim).await;
    let retried = bench.store.act(&left, DeadAction::Retry).await;
    assert_eq!(retried.unwrap(), 1);
    let due = heir.claimed.due(10).await.unwrap().events;
    assert_eq!(due[0].event.id(), id);
}

async fn a_removed_destinations_events_are_discarded(bench: Bench) {
    let (_, left) = removed_with_one_waiting(&bench).await;
    let discarded = bench.store.act(&left, DeadAction::Discard).await;
    assert_eq!(discarded.unwrap(), 1);
    assert!(bench.store.parked(&left, 10).await.unwrap().is_empty());
}

async fn a_skipped_event_is_discarded_where_that_is_asked_for(bench: Bench) {
    let Blocked { owner, .. } = blocked(&bench, 9).await;
    release(&bench, &owner).await;
    let discard = async |filter| bench.store.act(&filter, DeadAction::Discard).await.unwrap();
    assert_eq!(discard(of_key(MINE)).await, 0, "only what waits");
    assert_eq!(discard(skipped(MINE)).await, 1);
    let discarded = in_state(ParkedState::Discarded);
    let discarded = bench.store.parked(&discarded, 10).await.unwrap();
    assert!(discarded[0].event.payload().is_none());
    assert_eq!(
        bench
            .store
            .act(&skipped(MINE), DeadAction::Retry)
            .await
            .unwrap(),
        0
    );
}

async fn a_list_tells_which_event_holds_its_key(bench: Bench) {
    let owner = retried(&bench).await;
    settle(&owner, due(&owner).await, refused(None)).await;
    let written = later_one_dies(&bench, &owner).await;
    let waiting = bench
        .store
        .parked(&ParkedFilter::default(), 10)
        .await
        .unwrap();
    let holding: Vec<_> = waiting.iter().filter(|one| one.holds_key).collect();
    assert_eq!((waiting.len(), holding.len()), (2, 1));
    assert_eq!(holding[0].event.id(), written[0]);
}
