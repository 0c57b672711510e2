//! Evacuation: what a blocked key alone keeps beyond its time is set aside behind the event that
//! blocks it.

use std::time::Duration;

use posthaste_engine::{
    AfterFailure, Cursor, DeadAction, ParkedCopy, ParkedFilter, ParkedState, PinKind, Settlement,
};
use uuid::Uuid;

use super::{
    Case, cases,
    retention::{STEPS_MAX, keep_house, left, let_go, pass_over, skip_the_dead},
};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, NOTHING, Owner, ids, next_of, parking, refused, seqs, side_read_whole},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        followers_of_a_blocked_key_get_out_of_the_way,
        followers_within_the_window_stay,
        followers_that_were_set_aside_come_one_by_one_and_in_order,
        a_refused_follower_holds_those_behind_it,
        deciding_on_a_blocked_key_decides_on_its_head_alone,
        a_follower_is_decided_on_by_its_id,
        what_comes_later_is_side_read_behind_the_copies,
        followers_are_set_aside_again_and_again,
        a_new_owner_goes_on_with_the_next_follower,
        keys_are_set_aside_side_by_side,
        a_released_key_is_left_to_its_side_read,
        keys_with_and_without_copies_are_side_read_together,
        a_skipped_event_that_dies_again_hides_no_follower,
        a_skipped_event_that_dies_again_lets_nothing_be_set_aside,
    ]
}

const KEY: &str = "blocked";
const HOUR: Duration = Duration::from_secs(3_600);

/// Key [`KEY`]: its first event is dead, the others were passed over.
struct Blocked {
    owner: Owner,
    head: Uuid,
    followers: Vec<Uuid>,
}

impl Blocked {
    async fn new(bench: &Bench) -> Self {
        let owner = bench.own().await;
        let written = bench.commit_numbered(KEY, 5).await;
        bench.commit_numbered("free", 3).await;
        block(&owner).await;
        Self {
            owner,
            head: written[0],
            followers: written[1..].to_vec(),
        }
    }

    /// The same, and the followers are set aside.
    async fn evacuated(bench: &Bench) -> Self {
        let blocked = Self::new(bench).await;
        assert_eq!(evacuate(bench, &blocked.owner).await, 4);
        blocked
    }
}

/// Reads what is there, parks as dead what comes first of each key that is to be blocked, and
/// passes the rest over.
async fn block(owner: &Owner) {
    let read = owner.whole().await;
    let mut parked: Vec<&str> = Vec::new();
    let (mut heads, mut finished) = (Vec::new(), Vec::new());
    for (index, event) in read.events.iter().enumerate() {
        match event.key() {
            Some(key) if key.starts_with(KEY) && !parked.contains(&key) => {
                parked.push(key);
                heads.push(parking(&read, index, None));
            }
            Some(key) if key.starts_with(KEY) => {}
            _ => finished.push(event.seq()),
        }
    }
    owner.claimed.park(&heads).await.unwrap();
    owner.claimed.advance(read.end(), &finished).await.unwrap();
    pass_over(owner).await;
}

/// Keeps house until nothing is kept beyond its time; answers how many events were set aside.
/// Other cases on the same server may keep something for a moment.
async fn evacuate(bench: &Bench, owner: &Owner) -> u64 {
    bench.outbox.set_retention(Duration::ZERO).await;
    let mut evacuated = 0;
    for _ in 0..STEPS_MAX {
        pass_over(owner).await;
        evacuated += keep_house(bench).await.evacuated;
        if bench.store.retained().await.unwrap().debt_events == 0 {
            return evacuated;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!(
        "still something is kept: {:?}",
        bench.store.retained().await
    );
}

async fn due(owner: &Owner) -> Vec<ParkedCopy> {
    owner.claimed.due(100).await.unwrap().events
}

fn due_ids(copies: &[ParkedCopy]) -> Vec<Uuid> {
    ids(copies.iter().map(|copy| &copy.event))
}

async fn settle(owner: &Owner, copy: &ParkedCopy, settlement: Settlement) {
    owner.claimed.settle(copy.id, &settlement).await.unwrap();
}

/// Delivers what is due, one look after another, until nothing is.
async fn deliver_due(owner: &Owner) -> Vec<Uuid> {
    let mut delivered = Vec::new();
    loop {
        let copies = due(owner).await;
        assert!(copies.len() <= 1, "one at a time: {copies:?}");
        let Some(copy) = copies.first() else {
            return delivered;
        };
        delivered.push(copy.event.id());
        settle(owner, copy, Settlement::Delivered).await;
    }
}

async fn act(bench: &Bench, filter: ParkedFilter, action: DeadAction) -> u64 {
    bench.store.act(&filter, action).await.unwrap()
}

fn of_key() -> ParkedFilter {
    ParkedFilter {
        key: Some(KEY.to_owned()),
        ..ParkedFilter::default()
    }
}

/// Side-reads the released key up to where the main group stands, and joins it; answers what was
/// read.
async fn side_read_and_join(owner: &Owner) -> Vec<Uuid> {
    let stands: Cursor = pass_over(owner).await;
    assert_eq!(owner.claimed.due(10).await.unwrap().released, [KEY]);
    let mut side = owner.claimed.side_read(&[KEY.into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    if !read.events.is_empty() {
        side.advance(read.end(), &seqs(&read.events)).await.unwrap();
    }
    owner.claimed.join(&[KEY.into()], &stands).await.unwrap();
    assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
    ids(&read.events)
}

async fn followers_of_a_blocked_key_get_out_of_the_way(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::evacuated(&bench).await;
    assert_eq!(left(&bench).await, NOTHING, "all of it went");
    let retained = bench.store.retained().await.unwrap();
    assert_eq!((retained.debt_events, retained.pins), (0, Vec::new()));
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert_eq!(markers.len(), 1);
    assert!(!markers[0].released, "the key stays blocked");
    assert!(due(&owner).await.is_empty());
    let status = bench.store.status().await.unwrap();
    let of = &status.destinations[0];
    assert_eq!((of.parked, of.dead, of.blocked_keys), (4, 1, 1));
    assert_eq!((status.pending, of.pending), (0, 0));
    let filter = ParkedFilter {
        state: Some(ParkedState::Parked),
        ..ParkedFilter::default()
    };
    let listed = bench.store.parked(&filter, 10).await.unwrap();
    assert_eq!(ids(listed.iter().map(|parked| &parked.event)), followers);
    for parked in listed {
        assert_eq!((parked.kind.as_str(), parked.attempts), ("evacuated", 0));
        assert_eq!(parked.due_at, None);
    }
}

async fn followers_within_the_window_stay(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::new(&bench).await;
    assert_eq!(keep_house(&bench).await.evacuated, 0);
    skip_the_dead(&bench).await;
    assert_eq!(side_read_and_join(&owner).await, followers);
}

async fn followers_that_were_set_aside_come_one_by_one_and_in_order(bench: Bench) {
    let Blocked {
        owner,
        head,
        followers,
    } = Blocked::evacuated(&bench).await;
    assert_eq!(act(&bench, of_key(), DeadAction::Retry).await, 1);
    let all = [vec![head], followers].concat();
    assert_eq!(deliver_due(&owner).await, all);
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
    let more = bench.commit_numbered(KEY, 2).await;
    assert_eq!(
        ids(&owner.deliver_all().await),
        more,
        "the main group's again"
    );
}

async fn a_refused_follower_holds_those_behind_it(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::evacuated(&bench).await;
    skip_the_dead(&bench).await;
    let refused = |retry_in| Settlement::Failed {
        kind: "invalid",
        reason: "refused once more".to_owned(),
        next: next_of(retry_in),
    };
    let first = due(&owner).await;
    assert_eq!(due_ids(&first), followers[..1]);
    assert_eq!(first[0].attempts, 0);
    settle(&owner, &first[0], refused(Some(HOUR))).await;
    let waiting = owner.claimed.due(10).await.unwrap();
    assert!(waiting.events.is_empty() && waiting.released.is_empty());
    assert!(waiting.next_in.unwrap() <= HOUR);
    assert_eq!(act(&bench, of_key(), DeadAction::Retry).await, 1);
    let first = due(&owner).await;
    assert_eq!(due_ids(&first), followers[..1], "it alone is tried again");
    settle(&owner, &first[0], refused(None)).await;
    assert!(due(&owner).await.is_empty(), "it is dead");
    skip_the_dead(&bench).await;
    assert_eq!(deliver_due(&owner).await, followers[1..]);
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
}

async fn deciding_on_a_blocked_key_decides_on_its_head_alone(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::evacuated(&bench).await;
    assert_eq!(act(&bench, of_key(), DeadAction::Discard).await, 1);
    for action in [DeadAction::Retry, DeadAction::Skip, DeadAction::Discard] {
        assert_eq!(act(&bench, of_key(), action).await, 0);
    }
    assert_eq!(deliver_due(&owner).await, followers);
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
}

async fn a_follower_is_decided_on_by_its_id(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::evacuated(&bench).await;
    let by_id = |id| ParkedFilter {
        id: Some(id),
        ..ParkedFilter::default()
    };
    let retried = act(&bench, by_id(followers[1]), DeadAction::Retry).await;
    assert_eq!(retried, 0, "its turn does not come sooner");
    assert!(due(&owner).await.is_empty());
    assert_eq!(act(&bench, by_id(followers[1]), DeadAction::Skip).await, 1);
    assert_eq!(act(&bench, of_key(), DeadAction::Skip).await, 1);
    let others = [followers[0], followers[2], followers[3]];
    assert_eq!(deliver_due(&owner).await, others);
}

async fn what_comes_later_is_side_read_behind_the_copies(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::evacuated(&bench).await;
    bench.outbox.set_retention(HOUR).await;
    let later = bench.commit_numbered(KEY, 3).await;
    pass_over(&owner).await;
    assert_eq!(keep_house(&bench).await.evacuated, 0);
    skip_the_dead(&bench).await;
    assert_eq!(deliver_due(&owner).await, followers);
    assert_eq!(side_read_and_join(&owner).await, later);
}

async fn followers_are_set_aside_again_and_again(bench: Bench) {
    let Blocked {
        owner,
        mut followers,
        ..
    } = Blocked::evacuated(&bench).await;
    for _ in 0..3 {
        followers.extend(bench.commit_numbered(KEY, 2).await);
        assert_eq!(evacuate(&bench, &owner).await, 2);
    }
    assert_eq!(left(&bench).await, NOTHING);
    skip_the_dead(&bench).await;
    assert_eq!(deliver_due(&owner).await, followers);
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
}

async fn a_new_owner_goes_on_with_the_next_follower(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::evacuated(&bench).await;
    skip_the_dead(&bench).await;
    let first = due(&owner).await;
    settle(&owner, &first[0], Settlement::Delivered).await;
    // The next one is sent, and the answer is lost.
    assert_eq!(due_ids(&due(&owner).await), followers[1..2]);
    let again = owner.again(&bench).await;
    assert_eq!(deliver_due(&again).await, followers[1..]);
    assert_eq!(side_read_and_join(&again).await, NOTHING);
}

async fn keys_are_set_aside_side_by_side(bench: Bench) {
    let owner = bench.own().await;
    // Theirs come by turns, the heads first.
    let events: Vec<_> = (0..40)
        .map(|number| NewEvent::keyed(&format!("{KEY} {}", number % 4), number.to_string()))
        .collect();
    let written = bench.commit(&events).await;
    block(&owner).await;
    assert_eq!(evacuate(&bench, &owner).await, 36);
    assert_eq!(left(&bench).await, NOTHING);
    assert_eq!(
        act(&bench, ParkedFilter::default(), DeadAction::Skip).await,
        4
    );
    for followers in written[4..].chunks(4) {
        let mut copies = due(&owner).await;
        copies.sort_by_key(|copy| copy.event.seq());
        assert_eq!(due_ids(&copies), followers, "the next one of each key");
        for copy in &copies {
            settle(&owner, copy, Settlement::Delivered).await;
        }
    }
    let mut released = owner.claimed.due(10).await.unwrap().released;
    released.sort();
    let keys: Vec<_> = (0..4).map(|number| format!("{KEY} {number}")).collect();
    assert_eq!(released, keys);
}

async fn a_released_key_is_left_to_its_side_read(bench: Bench) {
    let Blocked {
        owner, followers, ..
    } = Blocked::new(&bench).await;
    skip_the_dead(&bench).await;
    let stands = pass_over(&owner).await;
    let mut side = owner.claimed.side_read(&[KEY.into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(let_go(&bench).await.evacuated, 0);
    let retained = bench.store.retained().await.unwrap();
    assert!(retained.pins.iter().any(|pin| pin.kind == PinKind::Key));
    // Its third event is refused: the key is held again, and what lies behind it may be set aside.
    let accepted = seqs(&read.events[..2]);
    side.advance(&read.cursor_at(1), &accepted).await.unwrap();
    let refused = parking(&read, 2, None);
    owner.claimed.park(&[refused]).await.unwrap();
    drop(side);
    assert_eq!(evacuate(&bench, &owner).await, 1);
    skip_the_dead(&bench).await;
    assert_eq!(deliver_due(&owner).await, followers[3..]);
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
}

/// The first event of `one` is decided on at once, that of `other` after its followers were copied.
/// Their rows stay, since `one` still needs its own.
async fn keys_with_and_without_copies_are_side_read_together(bench: Bench) {
    let (one, other) = (format!("{KEY} 1"), format!("{KEY} 2"));
    let owner = bench.own().await;
    // Theirs come by turns, the heads first.
    let keys = [&one, &other].into_iter().cycle().take(10);
    let events: Vec<_> = keys.map(|key| NewEvent::keyed(key, "")).collect();
    let written = bench.commit(&events).await;
    let of_one: Vec<Uuid> = written.iter().copied().step_by(2).collect();
    let of_other: Vec<Uuid> = written.iter().copied().skip(1).step_by(2).collect();
    block(&owner).await;
    let head = ParkedFilter {
        key: Some(one.clone()),
        ..ParkedFilter::default()
    };
    assert_eq!(act(&bench, head, DeadAction::Skip).await, 1);
    bench.outbox.set_retention(Duration::ZERO).await;
    let mut evacuated = 0;
    for _ in 0..STEPS_MAX {
        pass_over(&owner).await;
        evacuated += keep_house(&bench).await.evacuated;
        if evacuated == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(evacuated, 4);
    skip_the_dead(&bench).await;
    assert_eq!(deliver_due(&owner).await, of_other[1..]);
    let stands = pass_over(&owner).await;
    let both = [one, other];
    let mut side = owner.claimed.side_read(&both).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&read.events), of_one[1..]);
    side.advance(read.end(), &seqs(&read.events)).await.unwrap();
    owner.claimed.join(&both, &stands).await.unwrap();
}

/// An event of [`KEY`] was skipped, its key has gone on, and it was tried again and is dead. Then
/// its key is blocked by a later one.
async fn blocked_behind_a_skipped_one(bench: &Bench) -> Blocked {
    let owner = bench.own().await;
    bench.commit_numbered(KEY, 1).await;
    let read = owner.whole().await;
    let mut skipped = parking(&read, 0, None);
    skipped.next = AfterFailure::Skip;
    owner.claimed.park(&[skipped]).await.unwrap();
    owner.claimed.advance(read.end(), &[]).await.unwrap();
    let filter = ParkedFilter {
        state: Some(ParkedState::Skipped),
        ..of_key()
    };
    assert_eq!(act(bench, filter, DeadAction::Retry).await, 1);
    settle(&owner, &due(&owner).await[0], refused(None)).await;
    let written = bench.commit_numbered(KEY, 5).await;
    block(&owner).await;
    Blocked {
        owner,
        head: written[0],
        followers: written[1..].to_vec(),
    }
}

async fn skip_by_id(bench: &Bench, id: Uuid) {
    let filter = ParkedFilter {
        id: Some(id),
        ..ParkedFilter::default()
    };
    assert_eq!(act(bench, filter, DeadAction::Skip).await, 1);
}

async fn a_skipped_event_that_dies_again_hides_no_follower(bench: Bench) {
    let Blocked {
        owner,
        head,
        followers,
    } = blocked_behind_a_skipped_one(&bench).await;
    assert_eq!(evacuate(&bench, &owner).await, 4);
    assert!(due(&owner).await.is_empty(), "they wait for the head");
    skip_by_id(&bench, head).await;
    assert_eq!(deliver_due(&owner).await, followers);
    assert_eq!(side_read_and_join(&owner).await, NOTHING);
    let status = bench.store.status().await.unwrap();
    let of = &status.destinations[0];
    assert_eq!((of.parked, of.dead, of.blocked_keys), (0, 1, 0));
}

async fn a_skipped_event_that_dies_again_lets_nothing_be_set_aside(bench: Bench) {
    let Blocked {
        owner,
        head,
        followers,
    } = blocked_behind_a_skipped_one(&bench).await;
    skip_by_id(&bench, head).await;
    assert_eq!(let_go(&bench).await.evacuated, 0, "a side read takes them");
    assert_eq!(side_read_and_join(&owner).await, followers);
}
