//! Events that are set aside, and the markers of the keys that wait behind them.

use std::time::Duration;

use posthaste_engine::{
    AfterFailure, DeadAction, Due, ParkedFilter, ParkedState, Parking, Settlement,
};

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, LONG, Owner, ids, parking, seqs, side_read_whole},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        parked_and_marked_before_the_cursor_passes,
        a_parked_copy_keeps_every_byte,
        due_events_come_in_due_order,
        the_limit_of_due_events_is_kept,
        a_delivered_copy_releases_its_key,
        a_failed_attempt_waits_anew,
        what_is_put_off_uses_up_no_attempt,
        what_was_put_off_is_found_before_it_is_due,
        the_last_failure_makes_it_dead,
        a_skipped_failure_releases_its_key,
        a_delivery_counts_although_it_was_skipped_meanwhile,
        parking_by_policy_skip_sets_no_marker,
        parking_as_dead_blocks_the_key,
        an_event_without_a_key_blocks_nothing,
        two_parked_events_hold_one_key,
        parking_moves_the_marker,
        many_events_are_parked_at_once,
        markers_come_in_bounded_steps,
        the_same_id_again_is_another_event,
        a_claim_counts_what_was_put_off_alone,
    ]
}

const NOW: Option<Duration> = Some(Duration::ZERO);
const HOUR: Duration = Duration::from_secs(3_600);

async fn due(owner: &Owner) -> Due {
    owner.claimed.due(100).await.unwrap()
}

fn failed(next: AfterFailure) -> Settlement {
    Settlement::Failed {
        kind: "unroutable",
        reason: "nowhere to put it".to_owned(),
        next,
    }
}

/// Parks the first of three events of key `k`; nothing has passed the cursor yet.
async fn one_parked(bench: &Bench, change: impl FnOnce(&mut Parking)) -> (Owner, Parking) {
    bench.commit_numbered("k", 3).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let mut parked = parking(&read, 0, NOW);
    change(&mut parked);
    owner
        .claimed
        .park(std::slice::from_ref(&parked))
        .await
        .unwrap();
    (owner, parked)
}

async fn state(bench: &Bench, state: ParkedState) -> usize {
    let filter = ParkedFilter {
        state: Some(state),
        ..ParkedFilter::default()
    };
    bench.store.parked(&filter, 100).await.unwrap().len()
}

async fn parked_and_marked_before_the_cursor_passes(bench: Bench) {
    let (owner, parked) = one_parked(&bench, |_| ()).await;
    // As after a crash before the advance: read from another handle, under another claim.
    let again = owner.again(&bench).await;
    let markers = again.claimed.markers(None, 10).await.unwrap();
    assert_eq!(markers.len(), 1);
    assert_eq!(markers[0].key, "k");
    assert!(!markers[0].released);
    let waiting = due(&again).await;
    assert_eq!(waiting.events.len(), 1);
    assert_eq!(waiting.events[0].event.id(), parked.event.id());
    assert_eq!(waiting.events[0].attempts, 1);
    assert!(waiting.released.is_empty());
    if bench.store.info().progress == posthaste_engine::Progress::Cursor {
        assert_eq!(again.events().await.len(), 3, "the cursor has not passed");
    }
}

async fn a_parked_copy_keeps_every_byte(bench: Bench) {
    let event = NewEvent {
        payload: Some(vec![0, 0xff, 0xfe, b'"']),
        headers: vec![
            ("a".to_owned(), None),
            ("a".to_owned(), Some("\u{1}\"\\🚚".to_owned())),
            ("b".to_owned(), Some(String::new())),
        ],
        event_type: Some("t".to_owned()),
        tracestate: Some("x=y".to_owned()),
        ..NewEvent::keyed("Größe", "")
    };
    let tombstone = NewEvent {
        payload: None,
        ..NewEvent::keyed("none", "")
    };
    let written = bench.commit(&[event.clone(), tombstone.clone()]).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    owner
        .claimed
        .park(&[parking(&read, 0, NOW), parking(&read, 1, NOW)])
        .await
        .unwrap();
    let copies = due(&owner).await.events;
    event.assert_stored_as(written[0], &copies[0].event);
    tombstone.assert_stored_as(written[1], &copies[1].event);
    assert_eq!(copies[0].event.inserted_at(), read.events[0].inserted_at());
}

async fn due_events_come_in_due_order(bench: Bench) {
    let events: Vec<_> = (0..4)
        .map(|number| NewEvent::keyed(&format!("k{number}"), "x"))
        .collect();
    let written = bench.commit(&events).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let mut parked: Vec<_> = (0..4).map(|index| parking(&read, index, NOW)).collect();
    parked[0].next = AfterFailure::RetryIn(HOUR * 2);
    parked[3].next = AfterFailure::RetryIn(HOUR);
    // The second before the first, to tell due order from the order of events.
    owner.claimed.park(&parked[2..]).await.unwrap();
    owner.claimed.park(&parked[..2]).await.unwrap();
    let waiting = due(&owner).await;
    let copies: Vec<_> = waiting.events.iter().map(|copy| copy.event.id()).collect();
    assert_eq!(copies, [written[2], written[1]]);
    let next = waiting.next_in.unwrap();
    assert!(
        next <= HOUR && next > HOUR - Duration::from_secs(600),
        "{next:?}"
    );
}

/// In due order; nothing else is found, neither what was refused nor what is due.
async fn what_was_put_off_is_found_before_it_is_due(bench: Bench) {
    let events: Vec<_> = (0..4)
        .map(|number| NewEvent::keyed(&format!("k{number}"), "x"))
        .collect();
    let written = bench.commit(&events).await;
    let owner = bench.own().await;
    assert!(owner.claimed.put_off(None, 1).await.unwrap().is_empty());
    let read = owner.whole().await;
    let waits = [Some(2 * HOUR), NOW, Some(HOUR), Some(HOUR)];
    let parked = (0..4).map(|index| Parking {
        kind: if index == 3 { "too_large" } else { "not_now" },
        ..parking(&read, index, waits[index])
    });
    let parked: Vec<Parking> = parked.collect();
    owner.claimed.park(&parked).await.unwrap();
    let now = due(&owner).await;
    assert_eq!(ids(now.events.iter().map(|copy| &copy.event)), [written[1]]);
    let found = owner.claimed.put_off(None, 100).await.unwrap();
    let found_ids = ids(found.iter().map(|of| &of.copy.event));
    assert_eq!(found_ids, [written[2], written[0]]);
    let [first, last] = &found[..] else {
        unreachable!()
    };
    events[2].assert_stored_as(written[2], &first.copy.event);
    assert!(first.copy.holds_key && first.at < last.at && first.at.1 == first.copy.id);
    let one = owner.claimed.put_off(None, 1).await.unwrap();
    assert_eq!((one.len(), one[0].at), (1, first.at));
    let behind = owner.claimed.put_off(Some(first.at), 100).await.unwrap();
    assert_eq!((behind.len(), behind[0].at), (1, last.at));
    let behind = owner.claimed.put_off(Some(last.at), 100).await.unwrap();
    assert!(behind.is_empty(), "{behind:?}");
    for of in &found {
        let delivered = &Settlement::Delivered;
        owner.claimed.settle(of.copy.id, delivered).await.unwrap();
    }
    assert!(owner.claimed.put_off(None, 1).await.unwrap().is_empty());
}

async fn the_limit_of_due_events_is_kept(bench: Bench) {
    bench.commit_numbered("k", 5).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let parked: Vec<_> = (0..5).map(|index| parking(&read, index, NOW)).collect();
    owner.claimed.park(&parked).await.unwrap();
    assert_eq!(owner.claimed.due(2).await.unwrap().events.len(), 2);
}

async fn a_delivered_copy_releases_its_key(bench: Bench) {
    let (owner, _) = one_parked(&bench, |_| ()).await;
    let copy = due(&owner).await.events.remove(0);
    owner
        .claimed
        .settle(copy.id, &Settlement::Delivered)
        .await
        .unwrap();
    let now = due(&owner).await;
    assert!(now.events.is_empty());
    assert_eq!(now.released, ["k"]);
    assert_eq!(now.next_in, None);
    let again = owner.again(&bench).await;
    assert!(again.claimed.markers(None, 10).await.unwrap()[0].released);
    assert_eq!(state(&bench, ParkedState::Delivered).await, 1);
}

async fn a_failed_attempt_waits_anew(bench: Bench) {
    let (owner, _) = one_parked(&bench, |_| ()).await;
    let copy = due(&owner).await.events.remove(0);
    owner
        .claimed
        .settle(copy.id, &failed(AfterFailure::RetryIn(HOUR)))
        .await
        .unwrap();
    let waiting = due(&owner).await;
    assert!(waiting.events.is_empty());
    assert!(waiting.released.is_empty(), "the key stays blocked");
    assert!(waiting.next_in.unwrap() > HOUR / 2);
    let seen = bench
        .store
        .parked(&ParkedFilter::default(), 10)
        .await
        .unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].state, ParkedState::Parked);
    assert_eq!(seen[0].attempts, 2);
    assert_eq!(seen[0].kind, "unroutable");
    assert_eq!(seen[0].reason, "nowhere to put it");
    assert!(seen[0].due_at.unwrap() > seen[0].parked_at);

    // And comes again when its time has come.
    owner
        .claimed
        .settle(copy.id, &failed(AfterFailure::RetryIn(Duration::ZERO)))
        .await
        .unwrap();
    let copy = due(&owner).await.events.remove(0);
    assert_eq!(copy.attempts, 3);
}

async fn what_is_put_off_uses_up_no_attempt(bench: Bench) {
    let put_off = |parking: &mut Parking| (parking.attempts, parking.kind) = (0, "not_now");
    let (owner, _) = one_parked(&bench, put_off).await;
    let copy = due(&owner).await.events.remove(0);
    assert!(copy.holds_key && !copy.never_tried);
    let postponed = |retry_in| Settlement::Postponed {
        kind: copy.kind_when_postponed(),
        reason: "the queue is full".to_owned(),
        retry_in,
    };
    let again = postponed(Duration::ZERO);
    owner.claimed.settle(copy.id, &again).await.unwrap();
    assert_eq!(due(&owner).await.events.remove(0).attempts, 0);
    let later = postponed(HOUR);
    owner.claimed.settle(copy.id, &later).await.unwrap();
    let waiting = due(&owner).await;
    assert!(waiting.events.is_empty() && waiting.released.is_empty());
    assert!(waiting.next_in.unwrap() > HOUR / 2);
    let all = ParkedFilter::default();
    let seen = bench.store.parked(&all, 10).await.unwrap().remove(0);
    assert_eq!((seen.state, seen.attempts), (ParkedState::Parked, 0));
    assert_eq!(
        (&*seen.kind, &*seen.reason),
        ("not_now", "the queue is full")
    );
}

async fn the_last_failure_makes_it_dead(bench: Bench) {
    let (owner, _) = one_parked(&bench, |_| ()).await;
    let copy = due(&owner).await.events.remove(0);
    owner
        .claimed
        .settle(copy.id, &failed(AfterFailure::Dead))
        .await
        .unwrap();
    let waiting = due(&owner).await;
    assert!(waiting.events.is_empty() && waiting.released.is_empty());
    assert_eq!(waiting.next_in, None);
    assert_eq!(state(&bench, ParkedState::Dead).await, 1);
}

async fn a_skipped_failure_releases_its_key(bench: Bench) {
    let (owner, _) = one_parked(&bench, |_| ()).await;
    let copy = due(&owner).await.events.remove(0);
    owner
        .claimed
        .settle(copy.id, &failed(AfterFailure::Skip))
        .await
        .unwrap();
    let waiting = due(&owner).await;
    assert!(waiting.events.is_empty());
    assert_eq!(waiting.released, ["k"]);
    assert_eq!(state(&bench, ParkedState::Skipped).await, 1);
}

async fn a_delivery_counts_although_it_was_skipped_meanwhile(bench: Bench) {
    let (owner, _) = one_parked(&bench, |_| ()).await;
    let copy = due(&owner).await.events.remove(0);
    let all = ParkedFilter::default();
    bench.store.act(&all, DeadAction::Skip).await.unwrap();
    let refused = failed(AfterFailure::RetryIn(Duration::ZERO));
    owner.claimed.settle(copy.id, &refused).await.unwrap();
    assert_eq!(state(&bench, ParkedState::Skipped).await, 1, "that stands");
    let settle = owner.claimed.settle(copy.id, &Settlement::Delivered);
    settle.await.unwrap();
    assert_eq!(state(&bench, ParkedState::Delivered).await, 1);
}

async fn parking_by_policy_skip_sets_no_marker(bench: Bench) {
    let (owner, _) = one_parked(&bench, |parked| parked.next = AfterFailure::Skip).await;
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
    let waiting = due(&owner).await;
    assert!(waiting.events.is_empty() && waiting.released.is_empty());
    assert_eq!(state(&bench, ParkedState::Skipped).await, 1);
}

async fn parking_as_dead_blocks_the_key(bench: Bench) {
    let (owner, _) = one_parked(&bench, |parked| parked.next = AfterFailure::Dead).await;
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert_eq!(markers.len(), 1);
    assert!(!markers[0].released);
    assert!(due(&owner).await.events.is_empty());
    assert_eq!(state(&bench, ParkedState::Dead).await, 1);
}

async fn an_event_without_a_key_blocks_nothing(bench: Bench) {
    bench.commit(&[NewEvent::unkeyed("x")]).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    owner.claimed.park(&[parking(&read, 0, NOW)]).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
    let copy = due(&owner).await.events.remove(0);
    owner
        .claimed
        .settle(copy.id, &Settlement::Delivered)
        .await
        .unwrap();
    let waiting = due(&owner).await;
    assert!(waiting.events.is_empty() && waiting.released.is_empty());
}

async fn two_parked_events_hold_one_key(bench: Bench) {
    bench.commit_numbered("k", 2).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    for index in 0..2 {
        let parked = parking(&read, index, NOW);
        owner.claimed.park(&[parked]).await.unwrap();
    }
    let copies = due(&owner).await.events;
    assert_eq!(copies.len(), 2);
    for (copy, released) in copies.iter().zip([0, 1]) {
        owner
            .claimed
            .settle(copy.id, &Settlement::Delivered)
            .await
            .unwrap();
        assert_eq!(due(&owner).await.released.len(), released);
    }
}

async fn parking_moves_the_marker(bench: Bench) {
    let written = bench.commit_numbered("k", 4).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    for index in [0, 2] {
        let parked = parking(&read, index, NOW);
        owner.claimed.park(&[parked]).await.unwrap();
    }
    assert_eq!(owner.claimed.markers(None, 10).await.unwrap().len(), 1);
    owner
        .claimed
        .advance(read.end(), &seqs(&read.events[..3]))
        .await
        .unwrap();
    for copy in due(&owner).await.events {
        owner
            .claimed
            .settle(copy.id, &Settlement::Delivered)
            .await
            .unwrap();
    }
    let (_, until) = owner.up_to_joinable().await;
    let mut side = owner.claimed.side_read(&["k".into()]).await.unwrap();
    let behind = side_read_whole(&mut *side, &until).await;
    assert_eq!(ids(&behind.events), written[3..], "from the later place on");
}

async fn many_events_are_parked_at_once(bench: Bench) {
    let events: Vec<_> = (0..300)
        .map(|number| NewEvent::keyed(&format!("k{number:03}"), "x"))
        .collect();
    bench.commit(&events).await;
    let relay = bench.register("relay-a", LONG).await;
    let owner = bench.own_as(relay).await;
    let read = owner.whole().await;
    let parked: Vec<_> = (0..300).map(|index| parking(&read, index, NOW)).collect();
    owner.claimed.park(&parked).await.unwrap();
    assert_eq!(owner.claimed.markers(None, 1_000).await.unwrap().len(), 300);
    assert_eq!(owner.claimed.markers(None, 7).await.unwrap().len(), 7);
    assert_eq!(owner.claimed.due(1_000).await.unwrap().events.len(), 300);
}

async fn markers_come_in_bounded_steps(bench: Bench) {
    let keys: Vec<String> = (0..30).map(|number| format!("k{number:02}")).collect();
    let events = keys.iter().map(|key| NewEvent::keyed(key, "x"));
    bench.commit(&events.collect::<Vec<_>>()).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let even = (0..30).step_by(2);
    let parked: Vec<_> = even.map(|index| parking(&read, index, NOW)).collect();
    owner.claimed.park(&parked).await.unwrap();
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let markers = owner.claimed.markers(after.as_deref(), 4).await.unwrap();
        let Some(last) = markers.last() else { break };
        after = Some(last.key.clone());
        found.extend(markers.into_iter().map(|marker| marker.key));
    }
    let blocked: Vec<String> = keys.iter().step_by(2).cloned().collect();
    assert_eq!(found, blocked, "each once");

    let mut marked = owner.claimed.marked(&keys[..10]).await.unwrap();
    marked.sort_unstable();
    assert_eq!(marked, blocked[..5]);
    let none = owner.claimed.marked(&["never seen".to_owned()]).await;
    assert!(none.unwrap().is_empty());
}

/// An event that was skipped is emitted again, mended, under its old id, before the cursor has
/// passed the first.
async fn the_same_id_again_is_another_event(bench: Bench) {
    let refused = NewEvent::keyed("k", "refused");
    let id = bench.commit(std::slice::from_ref(&refused)).await[0];
    let owner = bench.own().await;
    let read = owner.whole().await;
    let mut parked = parking(&read, 0, None);
    parked.next = AfterFailure::Skip;
    owner.claimed.park(&[parked]).await.unwrap();
    let mended = NewEvent {
        id: Some(id),
        ..NewEvent::keyed("k", "mended")
    };
    bench.commit(std::slice::from_ref(&mended)).await;

    // As after a crash before the advance.
    let again = owner.again(&bench).await;
    let aside = again.claimed.set_aside().await.unwrap().again;
    let events = again.events().await;
    let mut others = events.iter();
    let of_mended = others.find(|event| event.payload() == Some(b"mended"));
    let of_mended = of_mended.expect("the mended event is read").reference();
    assert_eq!(of_mended.id, id);
    assert!(!aside.contains(&of_mended), "{aside:?}");
    if bench.store.info().progress == posthaste_engine::Progress::Cursor {
        assert!(aside.contains(&read.events[0].reference()), "{aside:?}");
        assert_eq!(events.len(), 2, "the cursor has not passed the first");
    }
}

/// It is bounded, over all claims.
async fn a_claim_counts_what_was_put_off_alone(bench: Bench) {
    let alone = ["1", "2", "refused"].map(NewEvent::unkeyed);
    bench.commit(&alone).await;
    bench.commit(&[NewEvent::keyed("k", "3")]).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let parkings = read.events.iter().enumerate().map(|(index, event)| {
        let mut parking = parking(&read, index, Some(Duration::ZERO));
        if event.payload() != Some(b"refused") {
            (parking.kind, parking.attempts) = ("not_now", 0);
        }
        parking
    });
    let parkings: Vec<_> = parkings.collect();
    owner.claimed.park(&parkings).await.unwrap();
    let owner = owner.again(&bench).await;
    let put_off = owner.claimed.set_aside().await.unwrap().put_off_alone;
    assert_eq!(put_off, 2, "neither the refused one nor the key");

    let due = owner.claimed.due(10).await.unwrap().events;
    let first = due.iter().find(|copy| copy.event.payload() == Some(b"1"));
    let first = first.expect("it is due").id;
    owner
        .claimed
        .settle(first, &Settlement::Delivered)
        .await
        .unwrap();
    let owner = owner.again(&bench).await;
    assert_eq!(owner.claimed.set_aside().await.unwrap().put_off_alone, 1);
}
