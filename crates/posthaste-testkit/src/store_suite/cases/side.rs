//! Side read and join: how a released key comes back to the main group.

use std::{collections::BTreeMap, time::Duration};

use posthaste_engine::{
    AfterFailure, Budget, Cursor, DeadAction, Page, ParkedFilter, Parking, Settlement, SideRead,
    StoreError, StoredEvent,
};
use uuid::Uuid;

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, NOTHING, Owner, PLENTY, ids, parking, seqs, side_read_whole},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_released_key_is_side_read_and_joined,
        a_side_read_pages_within_the_budget,
        a_side_read_follows_the_main_group,
        a_side_read_goes_on_behind_its_marker,
        a_side_read_ends_where_all_else_is_gone,
        a_rejection_in_a_side_read_moves_the_marker,
        what_a_side_read_skips_does_not_come_again,
        a_joined_key_is_the_main_groups_again,
        a_side_read_needs_a_marker,
        many_released_keys_are_side_read_and_joined_at_once,
        a_key_that_is_blocked_again_leaves_the_others,
        late_commits_of_a_blocked_key_are_side_read
            needs OpenTogether needs LateCommitDelaysOnlyItself,
    ]
}

/// Key `k` among others: its first event is parked, the main group passes the rest over.
pub(super) struct Blocked {
    pub(super) owner: Owner,
    /// Of `k`, behind the parked event, in order.
    pub(super) followers: Vec<Uuid>,
    pub(super) stands: Cursor,
}

pub(super) const MINE: &str = "k";

fn mixed(count: usize) -> Vec<NewEvent> {
    (0..count)
        .map(|number| {
            let key = if number % 3 == 0 { MINE } else { "other" };
            NewEvent::keyed(key, number.to_string())
        })
        .collect()
}

fn of_mine<'a>(events: impl IntoIterator<Item = &'a StoredEvent>) -> Vec<Uuid> {
    ids(events.into_iter().filter(|event| event.key() == Some(MINE)))
}

/// Reads all that is there, advances behind it, and answers the events and the place. Events of the
/// blocked key are passed over.
async fn pass_over(owner: &Owner) -> (Vec<StoredEvent>, Cursor) {
    let (events, end) = owner.up_to_joinable().await;
    let finished: Vec<i64> = events
        .iter()
        .filter(|event| event.key() != Some(MINE))
        .map(StoredEvent::seq)
        .collect();
    owner.claimed.advance(&end, &finished).await.unwrap();
    (events, end)
}

pub(super) async fn blocked(bench: &Bench, events: usize) -> Blocked {
    bench.commit(&mixed(events)).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let first = parking(&read, 0, None);
    owner.claimed.park(&[first]).await.unwrap();
    let owner = owner.again(bench).await;
    let (_, stands) = pass_over(&owner).await;
    Blocked {
        owner,
        followers: of_mine(&read.events[1..]),
        stands,
    }
}

/// Releases the key, as an operator does.
pub(super) async fn release(bench: &Bench, owner: &Owner) {
    let filter = ParkedFilter::default();
    assert_eq!(bench.store.act(&filter, DeadAction::Skip).await.unwrap(), 1);
    assert_eq!(owner.claimed.due(10).await.unwrap().released, [MINE]);
}

/// Everything of the key up to `until`, each page delivered.
pub(super) async fn side_read_to(
    side: &mut dyn SideRead,
    until: &Cursor,
    budget: Budget,
) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    loop {
        let page = side.next(budget, until).await.unwrap();
        assert!(page.events.len() <= budget.events);
        let caught_up = page.caught_up;
        if !page.events.is_empty() {
            side.advance(&page.end, &seqs(&page.events)).await.unwrap();
        }
        events.extend(page.events);
        if caught_up {
            return events;
        }
    }
}

async fn a_released_key_is_side_read_and_joined(bench: Bench) {
    let Blocked {
        owner,
        followers,
        stands,
    } = blocked(&bench, 30).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_to(&mut *side, &stands, PLENTY).await;
    assert_eq!(ids(&read), followers);
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
    assert!(owner.claimed.due(10).await.unwrap().released.is_empty());
    let again = owner.again(&bench).await;
    assert!(again.claimed.markers(None, 10).await.unwrap().is_empty());
    assert_eq!(ids(&again.events().await), NOTHING, "nothing comes twice");
}

async fn a_side_read_pages_within_the_budget(bench: Bench) {
    let Blocked {
        owner,
        followers,
        stands,
    } = blocked(&bench, 90).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let budget = Budget {
        events: 4,
        bytes: 1 << 20,
    };
    let read = side_read_to(&mut *side, &stands, budget).await;
    assert_eq!(ids(&read), followers);
    let mut tiny = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let budget = Budget {
        events: 4,
        bytes: 1,
    };
    assert_eq!(
        ids(&side_read_to(&mut *tiny, &stands, budget).await),
        NOTHING,
        "the marker has moved to the end"
    );
}

/// The main group goes on while the side read is under way; the last bit is read while it stands.
async fn a_side_read_follows_the_main_group(bench: Bench) {
    let Blocked {
        owner,
        mut followers,
        stands,
    } = blocked(&bench, 12).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let mut read = side_read_to(&mut *side, &stands, PLENTY).await;
    let mut stands = stands;
    for _ in 0..3 {
        let events = mixed(9);
        let written = events.iter().zip(bench.commit(&events).await);
        let mine = written.filter(|(event, _)| event.key.as_deref() == Some(MINE));
        let mine: Vec<Uuid> = mine.map(|(_, id)| id).collect();
        let (events, end) = pass_over(&owner).await;
        assert_eq!(of_mine(&events), bench.brought_of_blocked(&mine));
        followers.extend(mine);
        stands = end;
        read.extend(side_read_to(&mut *side, &stands, PLENTY).await);
    }
    assert_eq!(ids(&read), followers);
    // Committed, but not read by the main group: beyond the target, so left to it.
    let beyond = bench.commit_numbered(MINE, 2).await;
    let rest = side_read_to(&mut *side, &stands, PLENTY).await;
    assert_eq!(ids(&rest), NOTHING);
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert_eq!(
        ids(&owner.deliver_all().await),
        beyond,
        "neither lost nor repeated"
    );
}

async fn a_side_read_goes_on_behind_its_marker(bench: Bench) {
    let Blocked {
        owner,
        followers,
        stands,
    } = blocked(&bench, 30).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&read.events), followers);
    // A part of it is delivered; then the relay dies.
    side.advance(&read.cursor_at(3), &seqs(&read.events[..4]))
        .await
        .unwrap();

    let again = owner.again(&bench).await;
    let (events, stands) = pass_over(&again).await;
    assert_eq!(ids(&events), NOTHING);
    let mut side = again.claimed.side_read(&[MINE.into()]).await.unwrap();
    let rest = side_read_to(&mut *side, &stands, PLENTY).await;
    assert_eq!(ids(&rest), followers[4..]);
    again.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert!(again.claimed.markers(None, 10).await.unwrap().is_empty());
}

async fn a_side_read_ends_where_all_else_is_gone(bench: Bench) {
    let Blocked { owner, stands, .. } = blocked(&bench, 3).await;
    bench.outbox.set_retention(Duration::ZERO).await;
    while bench.store.housekeep(None).await.unwrap().more {}
    bench.commit_numbered("other", 1).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    for _ in 0..10 {
        let page = side.next(PLENTY, &stands).await.unwrap();
        assert!(page.events.is_empty());
        if page.caught_up {
            return;
        }
    }
    panic!("it has no end");
}

async fn a_rejection_in_a_side_read_moves_the_marker(bench: Bench) {
    let Blocked {
        owner,
        followers,
        stands,
    } = blocked(&bench, 30).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    // Two are accepted, the third is refused.
    let again = parking(&read, 2, Some(std::time::Duration::ZERO));
    owner.claimed.park(&[again]).await.unwrap();
    drop(side);
    let due = owner.claimed.due(10).await.unwrap();
    assert!(due.released.is_empty(), "blocked again");
    assert_eq!(due.events.len(), 1);
    assert_eq!(due.events[0].event.id(), followers[2]);
    let marker = owner.claimed.markers(None, 10).await.unwrap();
    assert!(!marker[0].released);

    let settled = owner
        .claimed
        .settle(due.events[0].id, &Settlement::Delivered);
    settled.await.unwrap();
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let rest = side_read_to(&mut *side, &stands, PLENTY).await;
    assert_eq!(ids(&rest), followers[3..]);
}

async fn what_a_side_read_skips_does_not_come_again(bench: Bench) {
    let Blocked {
        owner,
        followers,
        stands,
    } = blocked(&bench, 30).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    let skip = Parking {
        next: AfterFailure::Skip,
        ..parking(&read, 2, None)
    };
    owner.claimed.park(&[skip]).await.unwrap();
    // A relay that stops stores what lies before the first event that waits, and here that is of
    // another key.
    let before = read.cursor_at(0);
    side.advance(&before, &seqs(&read.events[..1]))
        .await
        .unwrap();
    drop(side);
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert!(markers[0].released, "the key goes on");

    let owner = owner.again(&bench).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let rest = side_read_to(&mut *side, &stands, PLENTY).await;
    assert_eq!(ids(&rest), followers[3..]);
    // Without a marker none is left.
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
}

async fn a_joined_key_is_the_main_groups_again(bench: Bench) {
    let Blocked { owner, stands, .. } = blocked(&bench, 9).await;
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    side_read_to(&mut *side, &stands, PLENTY).await;
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    let more = bench.commit_numbered(MINE, 3).await;
    let read = owner.whole().await;
    assert_eq!(ids(&read.events), more);
    // It may be blocked once more, from its new place on.
    let first = [parking(&read, 0, None)];
    owner.claimed.park(&first).await.unwrap();
    owner
        .claimed
        .advance(read.end(), &seqs(&read.events[..1]))
        .await
        .unwrap();
    let (_, stands) = owner.up_to_joinable().await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&read.events), more[1..]);
}

async fn a_side_read_needs_a_marker(bench: Bench) {
    let owner = bench.own().await;
    let refused = owner.claimed.side_read(&["never blocked".into()]).await;
    assert!(matches!(refused.map(|_| ()), Err(StoreError::Bug { .. })));
}

async fn late_commits_of_a_blocked_key_are_side_read(bench: Bench) {
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let early_place = late.emit(&NewEvent::keyed(MINE, "late")).await;
    let Blocked {
        owner, followers, ..
    } = blocked(&bench, 9).await;
    late.commit().await;
    let (events, stands) = pass_over(&owner).await;
    assert_eq!(ids(&events), bench.brought_of_blocked(&[early_place]));
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    let mut read = ids(&side_read_to(&mut *side, &stands, PLENTY).await);
    let mut expected = [followers, vec![early_place]].concat();
    // The late one committed last; no order binds it to those that do not share its lock.
    read.sort_unstable();
    expected.sort_unstable();
    assert_eq!(read, expected);
}

const ROUNDS: usize = 7;

/// Five keys, blocked one by one: each from its event of another round on.
struct ManyBlocked {
    owner: Owner,
    keys: Vec<String>,
    /// Of each key, behind its parked event, in order.
    followers: BTreeMap<String, Vec<Uuid>>,
    stands: Cursor,
}

async fn many_released(bench: &Bench) -> ManyBlocked {
    let keys = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    for round in 0..ROUNDS {
        let of_round = keys
            .iter()
            .map(|key| NewEvent::keyed(key, round.to_string()));
        bench.commit(&of_round.collect::<Vec<_>>()).await;
    }
    let owner = bench.own().await;
    let read = owner.whole().await;
    let from = |key: usize| key * keys.len() + key;
    for key in 0..keys.len() {
        let parked = parking(&read, from(key), None);
        owner.claimed.park(&[parked]).await.unwrap();
    }
    let followers: BTreeMap<String, Vec<Uuid>> = keys
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let behind = read.events[from(at) + 1..].iter();
            let ours = behind.filter(|event| event.key() == Some(key));
            (key.clone(), ids(ours))
        })
        .collect();
    let owner = owner.again(bench).await;
    let (events, stands) = owner.up_to_joinable().await;
    let waits = |event: &StoredEvent| {
        event
            .key()
            .is_some_and(|key| followers[key].contains(&event.id()))
    };
    let finished: Vec<StoredEvent> = events.into_iter().filter(|event| !waits(event)).collect();
    owner
        .claimed
        .advance(&stands, &seqs(&finished))
        .await
        .unwrap();
    let all = ParkedFilter::default();
    assert_eq!(bench.store.act(&all, DeadAction::Skip).await.unwrap(), 5);
    let mut released = owner.claimed.due(10).await.unwrap().released;
    released.sort_unstable();
    assert_eq!(released, keys);
    ManyBlocked {
        owner,
        keys,
        followers,
        stands,
    }
}

fn by_key(events: &[StoredEvent]) -> BTreeMap<String, Vec<Uuid>> {
    let mut by_key: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
    for event in events {
        let of_key = by_key.entry(event.key().unwrap().to_owned()).or_default();
        of_key.push(event.id());
    }
    by_key
}

const FOUR: Budget = Budget {
    events: 4,
    bytes: 1 << 20,
};

async fn many_released_keys_are_side_read_and_joined_at_once(bench: Bench) {
    let ManyBlocked {
        owner,
        keys,
        followers,
        stands,
    } = many_released(&bench).await;
    let mut side = owner.claimed.side_read(&keys).await.unwrap();
    let page = side.next(FOUR, &stands).await.unwrap();
    side.advance(&page.end, &seqs(&page.events)).await.unwrap();
    // The relay dies: each key goes on behind its own marker, wherever that has come to.
    let again = owner.again(&bench).await;
    let (_, stands) = again.up_to_joinable().await;
    let mut side = again.claimed.side_read(&keys).await.unwrap();
    let mut read = page.events;
    read.extend(side_read_to(&mut *side, &stands, FOUR).await);
    assert_eq!(by_key(&read), followers);
    again.claimed.join(&keys, &stands).await.unwrap();
    assert!(again.claimed.markers(None, 10).await.unwrap().is_empty());
    let last = again.again(&bench).await;
    assert_eq!(ids(&last.events().await), NOTHING, "nothing comes twice");
}

fn blocked_again(page: &Page, event: &StoredEvent) -> Parking {
    Parking {
        event: event.clone(),
        at: page.cursor_at(event),
        attempts: 1,
        kind: "unroutable",
        reason: "nowhere to put it".to_owned(),
        next: AfterFailure::Dead,
    }
}

async fn a_key_that_is_blocked_again_leaves_the_others(bench: Bench) {
    let ManyBlocked {
        owner,
        keys,
        mut followers,
        stands,
    } = many_released(&bench).await;
    let mut side = owner.claimed.side_read(&keys).await.unwrap();
    let (mut read, mut left) = (Vec::new(), false);
    loop {
        let page = side.next(FOUR, &stands).await.unwrap();
        let is_c = |event: &StoredEvent| event.key() == Some("c");
        let first_of_c = page.events.iter().find(|event| is_c(event));
        if let Some(event) = first_of_c {
            assert!(!left, "it has left");
            left = true;
            owner
                .claimed
                .park(&[blocked_again(&page, event)])
                .await
                .unwrap();
            side.leave(&["c".into()]);
        }
        // A decision in between does not bring it back.
        let all = ParkedFilter::default();
        bench.store.act(&all, DeadAction::Skip).await.unwrap();
        // Events behind the parked one are not finished.
        let others: Vec<_> = page.events.iter().filter(|event| !is_c(event)).collect();
        let finished = others.iter().copied().chain(first_of_c);
        let finished: Vec<i64> = finished.map(StoredEvent::seq).collect();
        side.advance(&page.end, &finished).await.unwrap();
        read.extend(others.into_iter().cloned());
        if page.caught_up {
            break;
        }
    }
    let of_c = followers.remove("c").unwrap();
    assert_eq!(by_key(&read), followers);
    let others: Vec<String> = followers.into_keys().collect();
    owner.claimed.join(&others, &stands).await.unwrap();
    let mut side = owner.claimed.side_read(&["c".into()]).await.unwrap();
    let rest = side_read_to(&mut *side, &stands, FOUR).await;
    assert_eq!(ids(&rest), of_c[1..]);
    owner.claimed.join(&["c".into()], &stands).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
}
