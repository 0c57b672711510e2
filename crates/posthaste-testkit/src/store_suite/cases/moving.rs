//! Partitions that move: events, keys, markers and what is due go with them, from where they stood.

use std::{collections::BTreeMap, time::Duration};

use posthaste_engine::{
    Budget, ClaimOutcome, DeadAction, ParkedFilter, Registered, Settlement, StoreError,
    StoredEvent, Want,
};
use uuid::Uuid;

use super::{
    Case, cases,
    sharing::{ask, halves, own_some},
};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, LONG, NOTHING, Owner, PLENTY, ids, parking, seqs, side_read_whole},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        each_relay_reads_its_own_partitions needs SharesOut,
        what_was_delivered_is_not_repeated_elsewhere needs SharesOut,
        what_was_only_read_is_not_lost needs SharesOut,
        partitions_that_are_behind_catch_up needs SharesOut,
        catching_up_goes_on_after_a_new_claim needs SharesOut,
        partitions_at_many_places_become_one_group needs SharesOut,
        a_late_commit_follows_its_partition needs SharesOut needs OpenTogether
            needs LateCommitDelaysOnlyItself,
        parked_events_follow_their_partition needs SharesOut,
        a_released_key_is_joined_by_its_new_owner needs SharesOut,
        no_key_is_joined_while_partitions_catch_up needs SharesOut,
        shares_that_move_at_random_lose_and_repeat_nothing needs SharesOut,
    ]
}

const KEYS: usize = 60;

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// The written and the delivered events, by key, each in its order.
#[derive(Default)]
struct Ledger {
    written: BTreeMap<String, Vec<Uuid>>,
    delivered: BTreeMap<String, Vec<Uuid>>,
}

impl Ledger {
    /// One event of each key, in one transaction.
    async fn round(&mut self, bench: &Bench) {
        let events: Vec<_> = (0..KEYS)
            .map(|number| NewEvent::keyed(&key(number), "x"))
            .collect();
        for (number, id) in bench.commit(&events).await.into_iter().enumerate() {
            self.written.entry(key(number)).or_default().push(id);
        }
    }

    fn deliver(&mut self, owner: &Owner, events: &[StoredEvent]) {
        for event in events {
            assert!(owner.claim.partitions.contains_slot(event.slot()));
            let key = event.key().unwrap_or_default().to_owned();
            self.delivered.entry(key).or_default().push(event.id());
        }
    }

    async fn deliver_all(&mut self, owner: &Owner) {
        let events = owner.deliver_all().await;
        self.deliver(owner, &events);
    }

    /// Everything once, each key in its order.
    fn assert_complete(&self) {
        assert_eq!(self.delivered, self.written);
    }
}

async fn each_relay_reads_its_own_partitions(bench: Bench) {
    let (first, second) = halves(&bench).await;
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        ledger.round(&bench).await;
    }
    ledger.deliver_all(&first).await;
    assert!(!ledger.delivered.is_empty() && ledger.delivered.len() < KEYS);
    ledger.deliver_all(&second).await;
    ledger.assert_complete();
    // Also what comes later, and after a new claim.
    ledger.round(&bench).await;
    ledger.deliver_all(&second.again_some(&bench).await).await;
    ledger.deliver_all(&first).await;
    ledger.assert_complete();
    assert_eq!(bench.store.status().await.unwrap().pending, 0);
}

impl Owner {
    /// The same partitions, claimed anew.
    async fn again_some(&self, bench: &Bench) -> Self {
        own_some(bench, self.relay, self.claim.partitions.len()).await
    }
}

async fn what_was_delivered_is_not_repeated_elsewhere(bench: Bench) {
    let (owner, mut ledger) = (bench.own().await, Ledger::default());
    ledger.round(&bench).await;
    ledger.deliver_all(&owner).await;
    ledger.round(&bench).await;
    let half = owner.claim.partitions.count() / 2;
    let owner = own_some(&bench, owner.relay, half).await;
    let other = bench.register("relay-b", LONG).await;
    let other = own_some(&bench, other, half).await;
    ledger.deliver_all(&other).await;
    ledger.deliver_all(&owner).await;
    ledger.assert_complete();
}

async fn what_was_only_read_is_not_lost(bench: Bench) {
    let (owner, mut ledger) = (bench.own().await, Ledger::default());
    ledger.round(&bench).await;
    // Read, and a part of it stored.
    let read = owner.whole().await;
    let passed = &read.events[..KEYS / 3];
    let at = read.cursor_at(KEYS / 3 - 1);
    owner.claimed.advance(&at, &seqs(passed)).await.unwrap();
    ledger.deliver(&owner, passed);
    let half = owner.claim.partitions.count() / 2;
    let owner = own_some(&bench, owner.relay, half).await;
    let other = bench.register("relay-b", LONG).await;
    let other = own_some(&bench, other, half).await;
    ledger.deliver_all(&owner).await;
    ledger.deliver_all(&other).await;
    ledger.assert_complete();
}

/// Two relays, the second of which stands three rounds behind the first and gives up.
async fn one_behind(bench: &Bench, ledger: &mut Ledger) -> (Registered, Owner) {
    let (first, second) = halves(bench).await;
    ledger.round(bench).await;
    ledger.deliver_all(&first).await;
    ledger.deliver_all(&second).await;
    for _ in 0..3 {
        ledger.round(bench).await;
        ledger.deliver_all(&first).await;
    }
    ask(bench, second.relay, Want::AtMost(0)).await;
    let first = own_some(bench, first.relay, u16::MAX).await;
    assert!(first.claim.partitions.is_all());
    (second.relay, first)
}

async fn partitions_that_are_behind_catch_up(bench: Bench) {
    let mut ledger = Ledger::default();
    let (_, owner) = one_behind(&bench, &mut ledger).await;
    ledger.round(&bench).await;
    let budget = Budget {
        events: 7,
        bytes: 1 << 20,
    };
    for page in owner.pages(budget).await {
        assert!(page.events.len() <= budget.events);
        owner.finish(&page).await;
        ledger.deliver(&owner, &page.events);
    }
    ledger.assert_complete();
    // From now on it is one group.
    ledger.round(&bench).await;
    let (events, end) = owner.up_to_joinable().await;
    owner.claimed.advance(&end, &seqs(&events)).await.unwrap();
    ledger.deliver(&owner, &events);
    ledger.assert_complete();
    assert_eq!(ids(&owner.again_some(&bench).await.events().await), NOTHING);
}

async fn catching_up_goes_on_after_a_new_claim(bench: Bench) {
    let mut ledger = Ledger::default();
    let (other, mut owner) = one_behind(&bench, &mut ledger).await;
    let budget = Budget {
        events: 11,
        bytes: 1 << 20,
    };
    for round in 0..4 {
        let page = owner.page(budget).await;
        // All of it is finished, or only its beginning.
        let passed = match round % 2 {
            0 => page.events.len(),
            _ => page.events.len() / 2,
        };
        let passed = &page.events[..passed];
        if let Some(last) = passed.last() {
            let at = page.cursor_at(last);
            owner.claimed.advance(&at, &seqs(passed)).await.unwrap();
        }
        ledger.deliver(&owner, passed);
        owner = owner.again_some(&bench).await;
    }
    // And elsewhere.
    let quarter = owner.claim.partitions.count() / 4;
    let kept = own_some(&bench, owner.relay, 3 * quarter).await;
    let moved = own_some(&bench, other, quarter).await;
    ledger.deliver_all(&moved).await;
    ledger.deliver_all(&kept).await;
    ledger.assert_complete();
}

async fn partitions_at_many_places_become_one_group(bench: Bench) {
    let mut ledger = Ledger::default();
    let mut relays = Vec::new();
    for number in 0..5 {
        relays.push(bench.register(&format!("relay-{number}"), LONG).await);
    }
    // Each delivers what it finds and gives up: the next one's part is one round further.
    let mut owners = Vec::new();
    for relay in &relays[..4] {
        ledger.round(&bench).await;
        let owner = own_some(&bench, *relay, 16).await;
        ledger.deliver_all(&owner).await;
        owners.push(owner);
    }
    for owner in &owners {
        ask(&bench, owner.relay, Want::AtMost(0)).await;
    }
    let heir = own_some(&bench, relays[4], u16::MAX).await;
    assert!(heir.claim.partitions.is_all());
    ledger.round(&bench).await;
    let (events, end) = heir.up_to_joinable().await;
    heir.claimed.advance(&end, &seqs(&events)).await.unwrap();
    ledger.deliver(&heir, &events);
    ledger.assert_complete();
    ledger.round(&bench).await;
    ledger.deliver_all(&heir.again_some(&bench).await).await;
    ledger.assert_complete();
}

async fn a_late_commit_follows_its_partition(bench: Bench) {
    let (first, second) = halves(&bench).await;
    let mut ledger = Ledger::default();
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let mut late_ids = Vec::new();
    for number in 0..KEYS {
        let event = NewEvent::keyed(&format!("late-{number}"), "late");
        late_ids.push(late.emit(&event).await);
    }
    ledger.round(&bench).await;
    ledger.deliver_all(&first).await;
    ledger.round(&bench).await;
    ledger.deliver_all(&second).await;
    // Both have passed the place of what is still open; one has yet to read the second round.
    ask(&bench, second.relay, Want::AtMost(0)).await;
    let owner = own_some(&bench, first.relay, u16::MAX).await;
    ledger.deliver_all(&owner).await;
    ledger.assert_complete();
    late.commit().await;
    assert_eq!(ids(&owner.deliver_all().await), late_ids);
    ledger.round(&bench).await;
    ledger.deliver_all(&owner.again_some(&bench).await).await;
    ledger.assert_complete();
}

/// The first event of every key is parked, the rest passed over; then half of the partitions move.
async fn all_blocked(bench: &Bench, ledger: &mut Ledger) -> (Owner, Owner) {
    let owner = bench.own().await;
    ledger.round(bench).await;
    ledger.round(bench).await;
    let read = owner.whole().await;
    let now = Some(Duration::ZERO);
    let parked: Vec<_> = (0..KEYS).map(|at| parking(&read, at, now)).collect();
    owner.claimed.park(&parked).await.unwrap();
    let passed = seqs(&read.events[..KEYS]);
    owner.claimed.advance(read.end(), &passed).await.unwrap();
    let half = owner.claim.partitions.count() / 2;
    let owner = own_some(bench, owner.relay, half).await;
    let other = bench.register("relay-b", LONG).await;
    (owner, own_some(bench, other, half).await)
}

async fn parked_events_follow_their_partition(bench: Bench) {
    let mut ledger = Ledger::default();
    let (first, second) = all_blocked(&bench, &mut ledger).await;
    let (mut markers, mut copies) = (0, 0);
    for owner in [&first, &second] {
        let owns = |key: &str| owner.claim.partitions.contains_slot(posthaste::slot(key));
        let marked = owner.claimed.markers(None, 1_000).await.unwrap();
        assert!(!marked.is_empty() && marked.iter().all(|marker| owns(&marker.key)));
        markers += marked.len();
        let due = owner.claimed.due(1_000).await.unwrap();
        assert!(due.released.is_empty());
        for copy in &due.events {
            assert!(owns(copy.event.key().unwrap()));
            let settle = owner.claimed.settle(copy.id, &Settlement::Delivered);
            settle.await.unwrap();
        }
        copies += due.events.len();
        let released = owner.claimed.due(1_000).await.unwrap().released;
        assert_eq!(released.len(), due.events.len());
        assert!(released.iter().all(|key| owns(key)));
    }
    assert_eq!((markers, copies), (KEYS, KEYS));
    // A key of others is not there.
    let theirs = second.claimed.markers(None, 1).await.unwrap().remove(0).key;
    let refused = first
        .claimed
        .side_read(std::slice::from_ref(&theirs))
        .await
        .map(|_| ());
    assert!(
        matches!(refused, Err(StoreError::Bug { .. })),
        "{refused:?}"
    );
}

async fn a_released_key_is_joined_by_its_new_owner(bench: Bench) {
    let mut ledger = Ledger::default();
    let (first, second) = all_blocked(&bench, &mut ledger).await;
    let filter = ParkedFilter::default();
    let acted = bench.store.act(&filter, DeadAction::Skip).await.unwrap();
    assert_eq!(acted, KEYS as u64);
    for owner in [&first, &second] {
        let released = owner.claimed.due(1_000).await.unwrap().released;
        for key in released {
            // The main group passes over what is blocked.
            let (_, stands) = owner.up_to_joinable().await;
            owner.claimed.advance(&stands, &[]).await.unwrap();
            let mut side = owner
                .claimed
                .side_read(std::slice::from_ref(&key))
                .await
                .unwrap();
            let read = side_read_whole(&mut *side, &stands).await;
            assert_eq!(ids(&read.events), ledger.written[&key][1..]);
            side.advance(read.end(), &seqs(&read.events)).await.unwrap();
            owner
                .claimed
                .join(std::slice::from_ref(&key), &stands)
                .await
                .unwrap();
        }
        assert!(owner.claimed.markers(None, 10).await.unwrap().is_empty());
    }
    // All are the main groups' again, wherever they move.
    let before = ledger.written.clone();
    ledger.round(&bench).await;
    ask(&bench, second.relay, Want::AtMost(0)).await;
    let owner = own_some(&bench, first.relay, u16::MAX).await;
    let events = owner.deliver_all().await;
    ledger.deliver(&owner, &events);
    for (key, delivered) in &ledger.delivered {
        assert_eq!(*delivered, ledger.written[key][before[key].len()..]);
    }
    assert_eq!(events.len(), KEYS);
}

/// A key that was passed over far ahead: a place of those that are behind is none where it can
/// join.
async fn no_key_is_joined_while_partitions_catch_up(bench: Bench) {
    let (first, second) = halves(&bench).await;
    let mut ledger = Ledger::default();
    ledger.round(&bench).await;
    ledger.deliver_all(&second).await;
    let read = first.whole().await;
    first
        .claimed
        .park(&[parking(&read, 0, None)])
        .await
        .unwrap();
    let blocked = read.events[0].key().unwrap().to_owned();
    let mut joined = false;
    let others = |joined: bool, events: Vec<StoredEvent>| -> Vec<StoredEvent> {
        let passes = |event: &StoredEvent| joined || event.key() != Some(&blocked);
        events.into_iter().filter(passes).collect()
    };
    let events = others(joined, read.events.clone());
    let finished = seqs(&events);
    first.claimed.advance(read.end(), &finished).await.unwrap();
    ledger.deliver(&first, &events);
    for _ in 0..3 {
        ledger.round(&bench).await;
        let (events, end) = first.up_to_joinable().await;
        let events = others(joined, events);
        first.claimed.advance(&end, &seqs(&events)).await.unwrap();
        ledger.deliver(&first, &events);
    }
    ask(&bench, second.relay, Want::AtMost(0)).await;
    let owner = own_some(&bench, first.relay, u16::MAX).await;
    let filter = ParkedFilter::default();
    assert_eq!(bench.store.act(&filter, DeadAction::Skip).await.unwrap(), 1);
    ledger.round(&bench).await;
    let budget = Budget {
        events: 7,
        ..PLENTY
    };
    loop {
        let page = owner.page(budget).await;
        let events = others(joined, page.events);
        owner
            .claimed
            .advance(&page.end, &seqs(&events))
            .await
            .unwrap();
        ledger.deliver(&owner, &events);
        if page.joinable && !joined {
            let mut side = owner
                .claimed
                .side_read(std::slice::from_ref(&blocked))
                .await
                .unwrap();
            let read = side_read_whole(&mut *side, &page.end).await;
            side.advance(read.end(), &seqs(&read.events)).await.unwrap();
            owner
                .claimed
                .join(std::slice::from_ref(&blocked), &page.end)
                .await
                .unwrap();
            ledger.deliver(&owner, &read.events);
            joined = true;
        }
        if page.caught_up && joined {
            break;
        }
    }
    // Its first event was skipped.
    ledger.written.get_mut(&blocked).unwrap().remove(0);
    ledger.assert_complete();
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Relays that deliver a bit, store it, and claim more or less, in any order.
async fn shares_that_move_at_random_lose_and_repeat_nothing(bench: Bench) {
    let (mut ledger, mut dice) = (Ledger::default(), Dice(42));
    let mut relays = Vec::new();
    for number in 0..3 {
        let relay = bench.register(&format!("relay-{number}"), LONG).await;
        relays.push((relay, None::<Owner>));
    }
    for _ in 0..120 {
        let at = usize::try_from(dice.throw(3)).unwrap();
        let (relay, owner) = &mut relays[at];
        match dice.throw(6) {
            0 => ledger.round(&bench).await,
            1 | 2 => {
                let wanted = u16::try_from(dice.throw(65)).unwrap();
                *owner = match ask(&bench, *relay, Want::AtMost(wanted)).await {
                    ClaimOutcome::Owned(claim) => Some(bench.open(*relay, claim).await),
                    _ => None,
                };
            }
            _ => {
                let Some(owner) = owner else { continue };
                let budget = Budget {
                    events: usize::try_from(1 + dice.throw(90)).unwrap(),
                    ..PLENTY
                };
                let page = owner.page(budget).await;
                owner.finish(&page).await;
                ledger.deliver(owner, &page.events);
            }
        }
    }
    for (relay, _) in &relays[1..] {
        ask(&bench, *relay, Want::AtMost(0)).await;
    }
    let last = own_some(&bench, relays[0].0, u16::MAX).await;
    assert!(last.claim.partitions.is_all());
    ledger.deliver_all(&last).await;
    ledger.assert_complete();
}
