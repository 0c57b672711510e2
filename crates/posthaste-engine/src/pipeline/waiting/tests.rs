//! The map beside plain sets that do the same, through random histories.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use proptest::prelude::*;
use uuid::Uuid;

use super::{
    super::{place::Place, ticket::Group},
    *,
};
use crate::{
    Backoff, DeliveryPolicy, Field, Moment, OnDead, PageBuilder, Postponement, Record, Routes,
    StoredFields,
};

fn event(id: u8, key: Option<&str>) -> StoredEvent {
    let mut texts = [None; 9];
    texts[Field::Topic as usize] = Some("t");
    texts[Field::Key as usize] = key;
    let fields = StoredFields {
        seq: 1,
        id: Uuid::from_u128(id.into()),
        occurred_at: 0,
        inserted_at: 0,
        slot: 0,
        texts,
        payload: None,
    };
    let mut page = PageBuilder::default();
    page.push(&fields, std::iter::empty()).unwrap();
    page.finish().remove(0)
}

fn router() -> Router {
    let policy = DeliveryPolicy {
        attempts: None,
        on_dead: OnDead::Block,
    };
    Router {
        routes: Routes::default().for_destination("d", policy),
        topic: None,
        key: None,
    }
}

/// Eight keys and four events without one.
fn events() -> Vec<StoredEvent> {
    let keyed = (0..8).map(|n| event(n, Some(&format!("k{n}"))));
    keyed.chain((8..12).map(|n| event(n, None))).collect()
}

/// Events with a key go to one of three parts of their topic, those without one to any.
#[derive(Debug)]
struct Thirds;

impl TopicParts for Thirds {
    fn part(&self, record: &Record) -> Option<u32> {
        let id = record.event().id().as_u128();
        record.order_key().and(u32::try_from(id % 3).ok())
    }

    fn knows(&self, _: &str) -> bool {
        true
    }
}

#[derive(Default)]
struct Sets {
    parked: BTreeSet<usize>,
    suspects: Vec<usize>,
    refused: BTreeSet<usize>,
    probed: BTreeSet<usize>,
    tried: BTreeSet<usize>,
    held: BTreeSet<Place>,
    open: BTreeSet<Place>,
    unused: BTreeSet<Place>,
}

impl Waiting {
    /// The counts and the queue say the same as the map, and none is kept without a reason.
    fn check(&self) {
        let count = |is: fn(&Reasons) -> usize| self.waiters.values().map(is).sum::<usize>();
        assert_eq!(self.parked, count(|of| of.parked.len()));
        assert_eq!(self.refused, count(|of| of.refused.into()));
        assert_eq!(self.probed, count(|of| of.probed.into()));
        assert_eq!(self.tried, count(|of| of.tried.into()));
        assert_eq!(self.unanswered, count(|of| (of.silences > 0).into()));
        assert_eq!(self.suspects.len(), count(|of| of.suspect.iter().count()));
        let mut suspects = self.suspects.iter();
        assert!(suspects.all(|(rank, of)| self.waiters[of].suspect == Some(*rank)));
        assert!(!self.waiters.values().any(|of| *of == Reasons::default()));
    }
}

proptest! {
    #[test]
    fn the_map_says_what_plain_sets_say(
        steps in prop::collection::vec((0..11_u8, 0..12_usize), 0..200),
    ) {
        let (events, router, mut now) = (events(), router(), Moment::default());
        let (mut waiting, mut sets) = (Waiting::new(Some(Arc::new(Thirds)), &[]), Sets::default());
        let (why, probe) = (Postponement::new("full"), Backoff::default());
        for (step, n) in steps {
            let event = &events[n];
            now = now.after(Duration::from_secs(60));
            match (step, event.key()) {
                (0, Some(key)) => {
                    waiting.park(key, false);
                    sets.parked.insert(n);
                }
                (1, Some(key)) if sets.parked.remove(&n) => waiting.joined(key),
                (2, _) => {
                    waiting.suspect(event, Failed::AmongOthers);
                    if !sets.suspects.contains(&n) {
                        sets.suspects.push(n);
                    }
                }
                (3, _) => {
                    waiting.clear(event);
                    sets.suspects.retain(|&of| of != n);
                }
                (4, _) => {
                    waiting.refuse(event);
                    sets.refused.insert(n);
                    sets.probed.insert(n);
                }
                (5, _) if n == 0 => {
                    waiting.forget_probes();
                    sets.probed.clear();
                }
                (9, _) => {
                    waiting.forget_refusal(event);
                    sets.refused.remove(&n);
                    sets.probed.remove(&n);
                }
                (10, _) if n == 0 => {
                    waiting.forget_refusals();
                    sets.refused.clear();
                    sets.probed.clear();
                }
                (6, _) => {
                    let ticket = Group::Main.ticket(n as u64);
                    waiting.put_off((event, ticket), &why, &router, probe, now, 0.5);
                    sets.tried.insert(n);
                    let place = waiting.place_of(event, &router);
                    if !sets.open.contains(&place) {
                        sets.held.insert(place);
                    }
                }
                (7, _) if n < 4 => {
                    waiting.places_turn(now);
                    if !sets.open.is_empty() {
                        sets.tried.clear();
                    }
                    // Of those that are unused a second time nothing is left.
                    let Sets { open, unused, .. } = &mut sets;
                    open.retain(|place| unused.insert(*place));
                    unused.retain(|place| open.contains(place));
                    sets.open.append(&mut sets.held);
                }
                (8, _) if n == 0 => {
                    for place in std::mem::take(&mut sets.open) {
                        waiting.places.sends(place, Group::Side.ticket(place.0));
                        waiting.place_took(Group::Side.ticket(place.0), 2, now);
                        sets.unused.remove(&place);
                    }
                    if !waiting.holds_back() {
                        sets.tried.clear();
                    }
                }
                _ => {}
            }
            waiting.check();
            prop_assert_eq!(waiting.parked_keys(), sets.parked.len());
            let first = waiting.next_suspects(Err(0), 2, false);
            for (n, event) in events.iter().enumerate() {
                prop_assert_eq!(waiting.is_parked(event), sets.parked.contains(&n));
                let has_turn = |of| waiting.has_turn(of, event, &router);
                let place = waiting.place_of(event, &router);
                let takes = match sets.open.contains(&place) {
                    true => !sets.tried.contains(&n),
                    false => !sets.held.contains(&place),
                };
                let suspect = sets.suspects.iter().position(|&of| of == n);
                let may = takes && suspect.is_none();
                let is_first = first.is_some_and(|(a, b)| has_turn(Of::Suspects(a, b)));
                let among_first = suspect.is_some_and(|place| place < 2);
                prop_assert_eq!(is_first, among_first && takes);
                let (refused, probed) = (sets.refused.contains(&n), sets.probed.contains(&n));
                prop_assert_eq!(has_turn(Of::Others), may && !refused);
                prop_assert_eq!(has_turn(Of::Refused), may && refused);
                prop_assert_eq!(has_turn(Of::Probes), may && refused && !probed);
            }
        }
    }
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    let mut waiting = Waiting::new(None, &[]);
    let parked = event(0, Some("parked"));
    waiting.park("parked", false);
    let waiter = Waiter::of(&parked);
    waiting.waiters.get_mut(&waiter).unwrap().parked[0] = "of the same hash".into();
    assert!(!waiting.is_parked(&parked));
    waiting.park("parked", false);
    assert!(waiting.is_parked(&parked));
    waiting.joined("parked");
    assert!(!waiting.is_parked(&parked));
    assert_eq!(waiting.waiters[&waiter].parked.len(), 1);
}

#[test]
fn parked_keys_beyond_a_bound_are_left_to_the_store() {
    let mut waiting = Waiting::new(None, &[]);
    for n in 0..20 {
        waiting.park(&format!("k{n}"), false);
    }
    assert!(!waiting.has_too_many_keys(10) && !waiting.asks_for_markers());
    waiting.park("another", false);
    assert!(waiting.has_too_many_keys(10));
    waiting.forget_keys(10);
    waiting.check();
    assert_eq!((waiting.parked, waiting.parked_keys()), (10, 21));
    assert!(waiting.asks_for_markers());
    // Its side read sends an event of a key that only the store knows, and it is refused.
    let forgotten = (0..20).map(|n| format!("k{n}"));
    let mut forgotten = forgotten.filter(|key| !waiting.is_parked(&event(0, Some(key))));
    let key = forgotten.next().unwrap();
    waiting.park(&key, true);
    assert_eq!((waiting.parked, waiting.parked_keys()), (11, 21));
    waiting.joined(&key);
    assert_eq!(waiting.parked_keys(), 20);
}

#[test]
fn suspects_that_failed_alone_are_tried_behind_all_others() {
    let mut waiting = Waiting::new(None, &[]);
    let events: Vec<_> = (0..4).map(|n| event(n, None)).collect();
    for n in [0, 1, 2, 3, 0] {
        waiting.suspect(&events[n], Failed::AmongOthers);
    }
    waiting.suspect(&events[1], Failed::Alone);
    waiting.suspect(&events[1], Failed::AmongOthers);
    let (mut order, router) = (Vec::new(), router());
    while let Some(next) = waiting.next_suspects(Err(0), 1, false) {
        let of = Of::Suspects(next.0, next.1);
        let is_next = |event: &&StoredEvent| waiting.has_turn(of, event, &router);
        order.push(events.iter().position(|event| is_next(&event)).unwrap());
        waiting.clear_suspects(next);
        waiting.check();
    }
    assert_eq!(order, [0, 2, 3, 1]);
}
