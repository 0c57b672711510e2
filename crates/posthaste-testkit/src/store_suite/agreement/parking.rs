//! Events that are set aside, and what becomes of them.

use std::{collections::BTreeSet, fmt, time::Duration};

use posthaste_engine::{
    AfterFailure, Cursor, Due, ParkedCopy, Parking, PutOff, Settlement, StoredEvent,
};

use super::{
    operation::{Fate, Operation},
    state::{Both, Driver, Holding, Label, pick},
};
use crate::store_suite::bench::PLENTY;

/// Longer than any sequence.
const LATER: Duration = Duration::from_secs(3_600);
/// More than any sequence has.
const ALL: usize = 1_000;
const KIND: &str = "invalid";
const REASON: &str = "refused by the schema";

impl Fate {
    fn next(self) -> AfterFailure {
        match self {
            Self::RetryNow => AfterFailure::RetryIn(Duration::ZERO),
            Self::RetryLater => AfterFailure::RetryIn(LATER),
            Self::Dead => AfterFailure::Dead,
            Self::Skip => AfterFailure::Skip,
        }
    }
}

pub(super) fn parking(event: &StoredEvent, at: &Cursor, fate: Fate) -> Parking {
    Parking {
        event: event.clone(),
        at: at.clone(),
        attempts: 1,
        kind: match fate {
            Fate::RetryLater => "not_now",
            _ => KIND,
        },
        reason: REASON.to_owned(),
        next: fate.next(),
    }
}

impl Driver {
    pub(super) async fn park_or_settle(&mut self, operation: &Operation) -> bool {
        let (Operation::Park { holding, .. }
        | Operation::Due { holding, .. }
        | Operation::Settle { holding, .. }) = *operation
        else {
            unreachable!("nothing of what is set aside")
        };
        let Some(mut holding) = self.take_holding(holding) else {
            return false;
        };
        let done = match *operation {
            Operation::Park {
                which, count, fate, ..
            } => self.park(&mut holding, which, count, fate).await,
            Operation::Due { limit, .. } => {
                self.due(&mut holding, usize::from(limit)).await;
                true
            }
            Operation::Settle {
                which,
                delivered,
                fate,
                ..
            } => self.settle(&mut holding, which, delivered, fate).await,
            _ => unreachable!("nothing of what is set aside"),
        };
        self.holdings.push(holding);
        done
    }

    /// Sets aside events of different keys that were read. All that comes before them of their keys
    /// was accepted.
    async fn park(&mut self, holding: &mut Holding, which: u8, count: u8, fate: Fate) -> bool {
        if holding.given.is_empty() {
            self.read(holding, PLENTY).await;
        }
        let given = holding.given.iter().enumerate();
        let candidates: Vec<usize> = given
            .filter(|(_, given)| !given.accepted && !given.finished)
            .filter(|(_, given)| self.may_be_parked(holding, given.label))
            .map(|(at, _)| at)
            .collect();
        let (mut chosen, mut keys) = (Vec::new(), BTreeSet::new());
        for more in 0..count {
            let Some(at) = pick(candidates.len(), which.wrapping_add(more)) else {
                return false;
            };
            let label = holding.given[candidates[at]].label;
            let key = self.order_key(&holding.destination, label);
            if keys.insert(key.unwrap_or_else(|| label.to_string())) {
                chosen.push(candidates[at]);
            }
        }
        if chosen.iter().any(|&at| self.is_late(holding, at)) {
            self.end_early();
            return true;
        }
        for &at in &chosen {
            self.accept_before(holding, at, fate).await;
        }
        let (mut parkings, mut labels) = (Both::<Vec<Parking>>::default(), Vec::new());
        for at in chosen {
            let given = &mut holding.given[at];
            given.finished = true;
            let (event, place) = &holding.references[&given.label];
            parkings
                .subject
                .push(parking(&given.event, &given.at, fate));
            parkings.reference.push(parking(event, place, fate));
            labels.push(given.label);
        }
        self.park_both(holding, &parkings, &labels, fate).await;
        let shadow = self.shadow(&holding.destination);
        shadow.ahead.extend(&labels);
        shadow.aside.extend(labels);
        true
    }

    /// A later event of its key was set aside by a former owner, to whom this one was accepted:
    /// whether it is tried again behind this one is the store's choice.
    fn is_late(&self, holding: &Holding, at: usize) -> bool {
        let label = holding.given[at].label;
        let key = self.locked_order_key(&holding.destination, label);
        let orders = self.orders(&holding.destination);
        let order = key.and_then(|key| orders.get(&key));
        let mut later = order.into_iter().flatten().skip_while(|of| **of != label);
        later.any(|of| holding.aside.contains(of))
    }

    /// Where a key's events stand in another order than they were committed, its marker has no
    /// place.
    fn may_be_parked(&self, holding: &Holding, label: Label) -> bool {
        let ordered = self.key(label).is_none() || self.locked_key(label).is_some();
        ordered && !self.is_anothers(holding, label)
    }

    /// All before it of its key was accepted. A marker tells it at once, a cursor when it comes by.
    async fn accept_before(&mut self, holding: &mut Holding, at: usize, fate: Fate) {
        let key_of = |label| self.locked_order_key(&holding.destination, label);
        let key = key_of(holding.given[at].label);
        let before: Vec<usize> = (0..at)
            .filter(|&earlier| {
                let given = &holding.given[earlier];
                let of_key = key.is_some() && key_of(given.label) == key;
                of_key && !given.finished && self.may_be_parked(holding, given.label)
            })
            .collect();
        let labels: Vec<Label> = before.iter().map(|&at| holding.given[at].label).collect();
        for at in before {
            holding.given[at].accepted = true;
            holding.given[at].finished = fate != Fate::Skip;
        }
        if fate != Fate::Skip {
            self.finish(holding, &labels).await;
            self.shadow(&holding.destination).ahead.extend(labels);
        }
    }

    /// Sets them aside in both stores.
    pub(super) async fn park_both(
        &mut self,
        holding: &mut Holding,
        parkings: &Both<Vec<Parking>>,
        labels: &[Label],
        fate: Fate,
    ) {
        let parked = holding.claimed.subject.park(&parkings.subject).await;
        parked.expect("the owner parks");
        let parked = holding.claimed.reference.park(&parkings.reference).await;
        parked.expect("the reference parks");
        for &label in labels {
            let key = self.order_key(&holding.destination, label);
            match key {
                _ if fate == Fate::Skip => {
                    self.shadow(&holding.destination).left_behind.insert(label);
                }
                Some(key) => {
                    let shadow = self.shadow(&holding.destination);
                    shadow.markers.insert(key.clone(), label);
                    // The rest of the key is the side read's.
                    let Holding {
                        seen,
                        read,
                        destination,
                        ..
                    } = holding;
                    let is_of =
                        |label: &Label| self.order_key(destination, *label).as_ref() == Some(&key);
                    seen.retain(|label| !is_of(label) || read.contains(label));
                    holding.marked.insert(key);
                }
                None => {}
            }
        }
    }

    pub(super) async fn due(&mut self, holding: &mut Holding, limit: usize) {
        let claimed = &holding.claimed;
        let all = Both {
            subject: claimed.subject.due(ALL).await.expect("due"),
            reference: claimed.reference.due(ALL).await.expect("due"),
        };
        let told = Both {
            subject: self.told(&holding.destination, &all.subject),
            reference: self.told(&holding.destination, &all.reference),
        };
        assert_eq!(told.subject, told.reference, "what is due");
        let put_off = Both {
            subject: claimed.subject.put_off(None, ALL).await.expect("put off"),
            reference: claimed.reference.put_off(None, ALL).await.expect("put off"),
        };
        let labels = |found: &[PutOff]| -> BTreeSet<Label> {
            let ids = found.iter().map(|of| of.copy.event.id());
            ids.map(|id| self.label_of(id)).collect()
        };
        assert_eq!(
            labels(&put_off.subject),
            labels(&put_off.reference),
            "what was put off"
        );
        let few = claimed.subject.due(limit).await.expect("due");
        let (few, few_released) = (few.events, few.released);
        assert!(few.len() <= limit, "{} due events of {limit}", few.len());
        let first: Vec<i64> = all.subject.events.iter().map(|copy| copy.id).collect();
        let few: Vec<i64> = few.iter().map(|copy| copy.id).collect();
        assert!(first.starts_with(&few), "the first {limit} that are due");
        assert!(few.len() == limit.min(first.len()), "as many as are due");
        let released = |key: &String| all.subject.released.contains(key);
        assert!(few_released.iter().all(released), "released");
        for copy in &all.subject.events {
            let label = self.label_of(copy.event.id());
            let emitted = &self.events[label];
            emitted.event.assert_stored_as(emitted.id, &copy.event);
            let same = |other: &&ParkedCopy| other.event.id() == copy.event.id();
            let reference = all.reference.events.iter().find(same);
            let ids = Both {
                subject: copy.id,
                reference: reference.expect("both told the same events").id,
            };
            holding.copies.insert(label, ids);
        }
    }

    /// The due events, in an order that both must keep: each key's. Events that fall due at one
    /// moment of different keys has none.
    fn told(&self, destination: &str, due: &Due) -> impl PartialEq + fmt::Debug {
        let mut events: Vec<_> = due
            .events
            .iter()
            .map(|copy| {
                let label = self.label_of(copy.event.id());
                let key = self.locked_order_key(destination, label);
                (key, label, copy.attempts)
            })
            .collect();
        events.sort_by_key(|(key, label, _)| (key.clone(), key.as_ref().map_or(*label, |_| 0)));
        let released: BTreeSet<String> = due.released.iter().cloned().collect();
        (events, released, due.next_in.is_some())
    }

    /// An attempt with a due copy ended, whatever operators have decided meanwhile.
    async fn settle(
        &mut self,
        holding: &mut Holding,
        which: u8,
        delivered: bool,
        fate: Fate,
    ) -> bool {
        if holding.copies.is_empty() {
            self.due(holding, ALL).await;
        }
        let Some(at) = pick(holding.copies.len(), which) else {
            return false;
        };
        let label = holding.copies.keys().nth(at).copied().unwrap_or_default();
        let settlement = match delivered {
            true => Settlement::Delivered,
            false => Settlement::Failed {
                kind: "too_large",
                reason: "refused again".to_owned(),
                next: fate.next(),
            },
        };
        self.settle_both(holding, label, &settlement).await;
        let shadow = self.shadow(&holding.destination);
        match (delivered, fate) {
            (true, _) => shadow.delivered.push(label),
            (false, Fate::Skip) => {
                shadow.left_behind.insert(label);
            }
            (false, _) => {}
        }
        true
    }

    async fn settle_both(&self, holding: &mut Holding, label: Label, settlement: &Settlement) {
        let Some(ids) = holding.copies.remove(&label) else {
            return;
        };
        let claimed = &holding.claimed;
        let settled = claimed.subject.settle(ids.subject, settlement).await;
        settled.expect("the owner settles");
        let settled = claimed.reference.settle(ids.reference, settlement).await;
        settled.expect("the reference settles");
    }
}
