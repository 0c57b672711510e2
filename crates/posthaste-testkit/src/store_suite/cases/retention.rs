//! Housekeeping: what is past its time goes, and nothing that anybody still needs.

use std::time::Duration;

use posthaste_engine::{
    AfterFailure, DeadAction, DestinationState, Housekeeping, ParkedFilter, ParkedState, PinKind,
    Retained, RetentionMode, Start,
};
use uuid::Uuid;

use super::{Case, admin::in_state, cases};
use crate::store_suite::{
    NewEvent,
    bench::{
        Bench, LONG, NOTHING, Owner, PLENTY, ids, owned, parking, refused, seqs, side_read_whole,
    },
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        without_a_destination_nothing_goes,
        inside_the_window_nothing_goes,
        delivered_events_past_the_window_go,
        delivered_events_go_in_small_deletes_alone,
        what_is_read_but_not_finished_stays,
        numbers_never_come_again,
        numbers_never_come_again_after_a_crash needs Crash,
        a_paused_destination_without_a_relay_pins,
        a_removed_destination_pins_nothing,
        a_released_key_pins_its_followers,
        a_side_read_pins_what_it_has_not_finished,
        what_an_open_transaction_wrote_stays needs OpenTogether,
        a_destination_from_now_on_gets_what_commits_late needs OpenTogether,
        a_new_destination_starts_at_what_is_left,
        the_audit_forgets_what_is_older_than_a_month,
        a_skipped_event_that_dies_again_is_forgotten_a_month_after_its_last_attempt,
    ]
}

/// More than any case needs.
pub(super) const STEPS_MAX: usize = 1_000;

/// Steps until nothing more is due at once. Another destination's creation is in the way,
/// or a reader of another case on the same server: it passes.
pub(super) async fn keep_house(bench: &Bench) -> Housekeeping {
    let mut all = Housekeeping::default();
    for _ in 0..STEPS_MAX {
        all.add(bench.store.housekeep(None).await.unwrap());
        if !all.more && all.in_the_way.is_none() {
            return all;
        }
    }
    panic!("still something to do after {STEPS_MAX} steps: {all:?}");
}

/// The window at its narrowest, and steps until nothing more is due.
pub(super) async fn let_go(bench: &Bench) -> Housekeeping {
    bench.outbox.set_retention(Duration::ZERO).await;
    keep_house(bench).await
}

/// Steps until nothing is left that is past its time; all of it is delivered. Acts of other cases
/// on the same server may keep it for a moment, so that the store has to be told again how far
/// everybody has come.
pub(super) async fn let_all_go(bench: &Bench, owners: &[&Owner]) -> u64 {
    bench.outbox.set_retention(Duration::ZERO).await;
    let mut gone = 0;
    loop {
        for owner in owners {
            rest(owner).await;
        }
        gone += keep_house(bench).await.events;
        if bench.store.retained().await.unwrap().debt_events == 0 {
            return gone + keep_house(bench).await.events;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The events still in the outbox, as a new destination sees them.
pub(super) async fn left(bench: &Bench) -> Vec<Uuid> {
    let relay = bench.register("looker", LONG).await;
    let claim = owned(bench.claim(relay, "looker", Start::Oldest).await);
    let looker = bench.open(relay, claim).await;
    let events = looker.events().await;
    bench.store.leave(relay, Duration::ZERO).await.unwrap();
    remove(bench, "looker").await;
    ids(&events)
}

async fn remove(bench: &Bench, name: &str) {
    let removed = bench.store.set_destination(name, DestinationState::Removed);
    assert!(removed.await.unwrap());
}

/// Advances until the store has noted all that it wants to note, as an idle relay does.
pub(super) async fn rest(owner: &Owner) {
    for _ in 0..STEPS_MAX {
        let page = owner.page(PLENTY).await;
        assert!(page.events.is_empty(), "delivered already");
        let outcome = owner.claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up && !page.store_end && !outcome.read_at_once {
            return;
        }
    }
    panic!("still wants to advance");
}

async fn deliver_and_rest(owner: &Owner) -> Vec<Uuid> {
    let delivered = ids(&owner.deliver_all().await);
    rest(owner).await;
    delivered
}

/// Another destination, of another relay.
async fn another(bench: &Bench, name: &str, start: Start) -> Owner {
    let relay = bench.register(&format!("relay of {name}"), LONG).await;
    let claim = owned(bench.claim(relay, name, start).await);
    bench.open(relay, claim).await
}

fn assert_pinned(retained: &Retained, debt: u64, kind: PinKind, destination: Option<&str>) {
    assert_eq!(retained.debt_events, debt, "{retained:?}");
    assert!(retained.debt_exact);
    // Others may be a moment behind, for what other cases do on the same server.
    let mut pins = retained.pins.iter();
    let named = pins.any(|pin| (pin.kind, pin.destination.as_deref()) == (kind, destination));
    assert!(named, "{retained:?}");
}

async fn without_a_destination_nothing_goes(bench: Bench) {
    let written = bench.commit_numbered("k", 5).await;
    assert_eq!(let_go(&bench).await, Housekeeping::default());
    let retained = bench.store.retained().await.unwrap();
    assert_pinned(&retained, 5, PinKind::NoDestination, None);
    assert_eq!(left(&bench).await, written);
}

async fn inside_the_window_nothing_goes(bench: Bench) {
    let written = bench.commit_numbered("k", 5).await;
    let owner = bench.own().await;
    deliver_and_rest(&owner).await;
    assert_eq!(keep_house(&bench).await, Housekeeping::default());
    let retained = bench.store.retained().await.unwrap();
    assert_eq!(retained.window, Duration::from_secs(24 * 3_600));
    assert_eq!(retained.debt_events, 0);
    assert_eq!(left(&bench).await, written);
}

async fn delivered_events_past_the_window_go(bench: Bench) {
    // Enough for more than one step, and for a leaf to be worth its lock.
    for _ in 0..3 {
        bench.commit_numbered("k", 700).await;
    }
    let owner = bench.own().await;
    assert_eq!(deliver_and_rest(&owner).await.len(), 2_100);
    let before = bench.store.status().await.unwrap().retained_bytes;
    assert!(let_all_go(&bench, &[&owner]).await >= 2_100);
    assert_eq!(left(&bench).await, NOTHING);
    assert!(bench.store.status().await.unwrap().retained_bytes <= before);
    // The owner goes on as if nothing had been.
    let more = bench.commit_numbered("k", 3).await;
    assert_eq!(ids(&owner.deliver_all().await), more);
}

async fn delivered_events_go_in_small_deletes_alone(bench: Bench) {
    bench.outbox.only_delete().await;
    bench.commit_numbered("k", 1_500).await;
    let owner = bench.own().await;
    assert_eq!(deliver_and_rest(&owner).await.len(), 1_500);
    bench.outbox.set_retention(Duration::ZERO).await;
    let mut all = Housekeeping::default();
    while all.events < 1_500 {
        rest(&owner).await;
        all.add(keep_house(&bench).await);
    }
    assert_eq!((all.events, all.leaves), (1_500, 0));
    assert_eq!(left(&bench).await, NOTHING);
    let retained = bench.store.retained().await.unwrap();
    assert_eq!(retained.mode, RetentionMode::Delete);
}

async fn what_is_read_but_not_finished_stays(bench: Bench) {
    let written = bench.commit_numbered("k", 10).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let finished = seqs(&read.events[..4]);
    owner
        .claimed
        .advance(&read.cursor_at(3), &finished)
        .await
        .unwrap();
    let_go(&bench).await;
    let again = owner.again(&bench).await;
    assert_eq!(ids(&again.events().await), written[4..]);
    let retained = bench.store.retained().await.unwrap();
    assert!(retained.debt_events >= 6, "{retained:?}");
    assert!(!retained.pins.is_empty());
}

async fn numbers_never_come_again(bench: Bench) {
    bench.commit_numbered("k", 3).await;
    let owner = bench.own().await;
    let former = owner.deliver_all().await;
    let_all_go(&bench, &[&owner]).await;
    bench.commit_numbered("k", 3).await;
    let latter = owner.events().await;
    assert!(seqs(&latter)[0] > seqs(&former)[2]);
}

async fn numbers_never_come_again_after_a_crash(bench: Bench) {
    bench.commit_numbered("k", 3).await;
    let owner = bench.own().await;
    deliver_and_rest(&owner).await;
    let_all_go(&bench, &[&owner]).await;
    bench.outbox.crash().await;
    let written = bench.commit_numbered("k", 3).await;
    let bench = Bench {
        store: bench.outbox.store().await,
        outbox: bench.outbox,
    };
    let again = owner.again(&bench).await;
    assert_eq!(ids(&again.events().await), written);
    assert_eq!(left(&bench).await, written);
}

async fn a_paused_destination_without_a_relay_pins(bench: Bench) {
    let written = bench.commit_numbered("k", 10).await;
    let owner = bench.own().await;
    let slow = another(&bench, "slow", Start::Oldest).await;
    deliver_and_rest(&owner).await;
    let paused = DestinationState::Paused;
    assert!(bench.store.set_destination("slow", paused).await.unwrap());
    bench.store.leave(slow.relay, Duration::ZERO).await.unwrap();
    assert_eq!(let_go(&bench).await, Housekeeping::default());
    let retained = bench.store.retained().await.unwrap();
    assert_pinned(&retained, 10, PinKind::Destination, Some("slow"));
    assert_eq!(left(&bench).await, written);

    let slow = another(&bench, "slow", Start::Now).await;
    assert_eq!(deliver_and_rest(&slow).await, written);
    assert_eq!(let_all_go(&bench, &[&owner, &slow]).await, 10);
    assert_eq!(bench.store.retained().await.unwrap().pins, []);
    assert_eq!(left(&bench).await, NOTHING);
}

async fn a_removed_destination_pins_nothing(bench: Bench) {
    let written = bench.commit_numbered("k", 10).await;
    let owner = bench.own().await;
    let abandoned = another(&bench, "abandoned", Start::Oldest).await;
    let read = abandoned.whole().await;
    abandoned
        .claimed
        .park(&[parking(&read, 0, None)])
        .await
        .unwrap();
    // Its marker stays until a side read has joined.
    skip_the_dead(&bench).await;
    deliver_and_rest(&owner).await;
    let_go(&bench).await;
    assert!(left(&bench).await.ends_with(&written[1..]));
    let leave = bench.store.leave(abandoned.relay, Duration::ZERO);
    leave.await.unwrap();
    remove(&bench, "abandoned").await;
    let_all_go(&bench, &[&owner]).await;
    assert_eq!(left(&bench).await, NOTHING);
}

/// The first of five events of a key is dead, all else is delivered; answers the followers.
async fn blocked(bench: &Bench, owner: &Owner) -> Vec<Uuid> {
    let mut events: Vec<_> = (0..5)
        .map(|number| NewEvent::keyed("blocked", number.to_string()))
        .collect();
    events.push(NewEvent::keyed("free", "beside"));
    let written = bench.commit(&events).await;
    let read = owner.whole().await;
    owner
        .claimed
        .park(&[parking(&read, 0, None)])
        .await
        .unwrap();
    // A store that marks events leaves those that are passed over unmarked.
    let finished: Vec<i64> = read
        .events
        .iter()
        .filter(|event| event.key() != Some("blocked"))
        .map(|event| event.seq())
        .collect();
    owner.claimed.advance(read.end(), &finished).await.unwrap();
    pass_over(owner).await;
    written[1..5].to_vec()
}

pub(super) async fn skip_the_dead(bench: &Bench) {
    let all = ParkedFilter::default();
    assert_eq!(bench.store.act(&all, DeadAction::Skip).await.unwrap(), 1);
}

/// As [`rest`]; the blocked key's events may be read again.
pub(super) async fn pass_over(owner: &Owner) -> posthaste_engine::Cursor {
    for _ in 0..STEPS_MAX {
        let page = owner.page(PLENTY).await;
        let outcome = owner.claimed.advance(&page.end, &[]).await.unwrap();
        let quiet = page.caught_up && !page.store_end && !outcome.read_at_once;
        if quiet && page.joinable {
            return page.end;
        }
    }
    panic!("still wants to advance");
}

async fn a_released_key_pins_its_followers(bench: Bench) {
    let owner = bench.own().await;
    let followers = blocked(&bench, &owner).await;
    skip_the_dead(&bench).await;
    let_go(&bench).await;
    let retained = bench.store.retained().await.unwrap();
    let of_keys = retained.pins.iter().filter(|pin| pin.kind == PinKind::Key);
    let keys: Vec<_> = of_keys.map(|pin| pin.key.as_deref()).collect();
    assert_eq!(keys, [Some("blocked")], "{retained:?}");
    assert!(retained.debt_events >= 4, "{retained:?}");

    let stands = pass_over(&owner).await;
    let mut side = owner.claimed.side_read(&["blocked".into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&read.events), followers);
    side.advance(read.end(), &seqs(&read.events)).await.unwrap();
    owner
        .claimed
        .join(&["blocked".into()], &stands)
        .await
        .unwrap();
    let_all_go(&bench, &[&owner]).await;
    assert_eq!(left(&bench).await, NOTHING);
}

async fn a_side_read_pins_what_it_has_not_finished(bench: Bench) {
    let owner = bench.own().await;
    let followers = blocked(&bench, &owner).await;
    skip_the_dead(&bench).await;
    let stands = pass_over(&owner).await;
    let mut side = owner.claimed.side_read(&["blocked".into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    side.advance(&read.cursor_at(1), &seqs(&read.events[..2]))
        .await
        .unwrap();
    let_go(&bench).await;
    let again = owner.again(&bench).await;
    let stands = pass_over(&again).await;
    let mut side = again.claimed.side_read(&["blocked".into()]).await.unwrap();
    let rest = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&rest.events), followers[2..]);
}

async fn what_an_open_transaction_wrote_stays(bench: Bench) {
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let first = late.emit(&NewEvent::keyed("late", "1")).await;
    let owner = bench.own().await;
    bench.commit_numbered("k", 5).await;
    owner.deliver_all().await;
    let second = late.emit(&NewEvent::keyed("late", "2")).await;
    bench.commit_numbered("k", 5).await;
    // Ever further, as a relay does while the transaction stays open.
    for _ in 0..10 {
        let page = owner.page(PLENTY).await;
        owner
            .claimed
            .advance(&page.end, &seqs(&page.events))
            .await
            .unwrap();
    }
    let_go(&bench).await;
    late.commit().await;
    let_go(&bench).await;
    assert_eq!(ids(&owner.events().await), [first, second]);
}

async fn a_destination_from_now_on_gets_what_commits_late(bench: Bench) {
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let event = late.emit(&NewEvent::keyed("late", "1")).await;
    let owner = bench.own().await;
    let new = another(&bench, "new", Start::Now).await;
    late.commit().await;
    assert_eq!(deliver_and_rest(&owner).await, [event]);
    assert_eq!(let_go(&bench).await.events, 0);
    assert_eq!(ids(&new.events().await), [event]);
}

async fn a_new_destination_starts_at_what_is_left(bench: Bench) {
    bench.commit_numbered("k", 2_000).await;
    let owner = bench.own().await;
    deliver_and_rest(&owner).await;
    let_all_go(&bench, &[&owner]).await;
    let written = bench.commit_numbered("k", 3).await;
    let new = another(&bench, "new", Start::Oldest).await;
    assert_eq!(deliver_and_rest(&new).await, written);
    assert_eq!(deliver_and_rest(&owner).await, written);
    assert_eq!(let_all_go(&bench, &[&owner, &new]).await, 3);
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn the_audit_forgets_what_is_older_than_a_month(bench: Bench) {
    let owner = bench.own().await;
    let (giver, taker) = (owner.relay, bench.register("the second", LONG).await);
    let hand_over = |from, to| {
        let bench = &bench;
        async move {
            bench.store.leave(from, Duration::ZERO).await.unwrap();
            owned(bench.claim(to, "default", Start::Oldest).await);
        }
    };
    hand_over(giver, taker).await;
    let told = bench.store.hand_overs(100).await.unwrap().len();
    assert!(told > 0);
    bench.outbox.age_audit(29 * DAY).await;
    assert_eq!(keep_house(&bench).await.audit, 0);
    assert_eq!(bench.store.hand_overs(100).await.unwrap().len(), told);

    bench.outbox.age_audit(2 * DAY).await;
    let third = bench.register("the third", LONG).await;
    hand_over(taker, third).await;
    let all = bench.store.hand_overs(100).await.unwrap().len();
    assert!(keep_house(&bench).await.audit >= told as u64);
    let left = bench.store.hand_overs(100).await.unwrap();
    assert_eq!(left.len(), all - told, "{left:?}");
    assert!(
        left.iter()
            .any(|line| line.relay.as_deref() == Some("the third"))
    );
    assert_eq!(keep_house(&bench).await.audit, 0);
}

async fn a_skipped_event_that_dies_again_is_forgotten_a_month_after_its_last_attempt(bench: Bench) {
    let keys = ["holds", "dies again", "waits again"];
    let events = keys.map(|key| NewEvent::keyed(key, ""));
    let written = bench.commit(&events).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let mut parked: Vec<_> = (0..3).map(|index| parking(&read, index, None)).collect();
    for parking in &mut parked[1..] {
        parking.next = AfterFailure::Skip;
    }
    owner.claimed.park(&parked).await.unwrap();
    owner.finish_all(&read).await;

    bench.outbox.age_parked(20 * DAY).await;
    let skipped = in_state(ParkedState::Skipped);
    let retried = bench.store.act(&skipped, DeadAction::Retry).await.unwrap();
    assert_eq!(retried, 2);
    for copy in owner.claimed.due(10).await.unwrap().events {
        let waits = copy.event.key() == Some("waits again");
        let settlement = refused(waits.then_some(DAY));
        owner.claimed.settle(copy.id, &settlement).await.unwrap();
    }
    bench.outbox.age_parked(20 * DAY).await;
    assert_eq!(keep_house(&bench).await.parked, 0, "it was tried since");

    bench.outbox.age_parked(11 * DAY).await;
    assert_eq!(keep_house(&bench).await.parked, 1);
    let waiting = ParkedFilter::default();
    let waiting = bench.store.parked(&waiting, 10).await.unwrap();
    let mut kept = ids(waiting.iter().map(|parked| &parked.event));
    kept.sort();
    let mut wanted = [written[0], written[2]];
    wanted.sort();
    assert_eq!(kept, wanted, "an operator decides, or a relay");
    assert_eq!(keep_house(&bench).await.parked, 0);
}
