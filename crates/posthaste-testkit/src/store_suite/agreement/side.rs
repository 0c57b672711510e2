//! Side reads of released keys, and the join with the main group.

use std::collections::VecDeque;

use posthaste_engine::{Budget, Cursor, StoredEvent};

use super::{
    holding::markers,
    operation::{Fate, Operation},
    parking::parking,
    state::{Both, Driver, Holding, Label, Side, pick},
};
use crate::store_suite::bench::{PLENTY, side_read_whole};

impl Driver {
    pub(super) async fn side_read(&mut self, operation: &Operation) -> bool {
        let Operation::SideRead {
            holding,
            key,
            events,
            take,
            park,
        } = *operation
        else {
            unreachable!("no side read")
        };
        let Some(mut holding) = self.take_holding(holding) else {
            return false;
        };
        let budget = Budget {
            events: usize::from(events),
            ..PLENTY
        };
        let done = self.side_step(&mut holding, key, budget, take, park).await;
        self.holdings.push(holding);
        done
    }

    /// A page of a released key's side read, if there is one and the main group stands where it can
    /// be joined.
    pub(super) async fn side_step(
        &mut self,
        holding: &mut Holding,
        key: u8,
        budget: Budget,
        take: u8,
        park: Option<Fate>,
    ) -> bool {
        let released = markers(&*holding.claimed.subject).await;
        if !released.values().any(|released| *released) {
            return false;
        }
        let until = match self.standing(holding).await {
            Some(until) => until,
            None => self.finish_all(holding).await,
        };
        let Some(key) = self.released_key(holding, key).await else {
            return false;
        };
        let side = self.side_of(holding, &key).await;
        self.go_on(holding, side, &key, &until, (budget, take, park))
            .await;
        true
    }

    /// Where the main group stands, all before it finished and stored, if a side read can join
    /// there.
    pub(super) async fn standing(&mut self, holding: &mut Holding) -> Option<Cursor> {
        let (end, joinable) = holding.end.clone()?;
        if !joinable || !holding.given.is_empty() {
            return None;
        }
        self.advance(holding, 0, true).await;
        Some(end)
    }

    async fn released_key(&self, holding: &Holding, number: u8) -> Option<String> {
        let released = markers(&*holding.claimed.subject).await;
        let same = markers(&*holding.claimed.reference).await;
        assert_eq!(released, same, "markers of {}", holding.destination);
        let shadow = &self.shadows[&holding.destination];
        // The main group has come by the marker; else it would send again what lies before.
        let has_passed = |key: &String| shadow.passed.contains(&shadow.markers[key]);
        let released: Vec<String> = released
            .into_iter()
            .filter(|(key, released)| *released && has_passed(key))
            .map(|(key, _)| key)
            .collect();
        let at = pick(released.len(), number)?;
        Some(released[at].clone())
    }

    async fn side_of(&self, holding: &mut Holding, key: &str) -> Side {
        if let Some(side) = holding.sides.remove(key) {
            return side;
        }
        let claimed = &holding.claimed;
        let reads = Both {
            subject: claimed.subject.side_read(&[key.into()]).await,
            reference: claimed.reference.side_read(&[key.into()]).await,
        };
        Side {
            reads: Both {
                subject: reads.subject.expect("a marked key is side-read"),
                reference: reads.reference.expect("a marked key is side-read"),
            },
            references: VecDeque::new(),
            given: VecDeque::new(),
        }
    }

    /// Reads a page, delivers some of it, and parks the next one or joins.
    async fn go_on(
        &mut self,
        holding: &mut Holding,
        mut side: Side,
        key: &str,
        until: &Cursor,
        (budget, take, park): (Budget, u8, Option<Fate>),
    ) {
        let caught_up = self.side_page(holding, &mut side, until, budget).await;
        let take = usize::from(take).min(side.given.len());
        self.deliver_side(holding, &mut side, key, take).await;
        match (park, side.given.pop_front()) {
            (Some(fate), Some((label, event, at))) => {
                let (_, same, place) = side.references.pop_front().expect("read by both");
                let parkings = Both {
                    subject: vec![parking(&event, &at, fate)],
                    reference: vec![parking(&same, &place, fate)],
                };
                self.park_both(holding, &parkings, &[label], fate).await;
                if fate == Fate::Skip {
                    side.given.push_front((label, event, at));
                    side.references.push_front((label, same, place));
                    // Its key goes on, and the marker behind it.
                    self.pass_side(holding, &mut side, key, 1).await;
                    holding.sides.insert(key.to_owned(), side);
                }
            }
            (None, Some(next)) => {
                side.given.push_front(next);
                holding.sides.insert(key.to_owned(), side);
            }
            (_, None) if caught_up => self.join(holding, key, until).await,
            (_, None) => {
                holding.sides.insert(key.to_owned(), side);
            }
        }
    }

    async fn side_page(
        &self,
        holding: &Holding,
        side: &mut Side,
        until: &Cursor,
        budget: Budget,
    ) -> bool {
        let whole = side_read_whole(&mut *side.reads.reference, &holding.reference_end).await;
        for (at, event) in whole.events.iter().enumerate() {
            let label = self.label_of(event.id());
            side.references
                .push_back((label, event.clone(), whole.cursor_at(at)));
        }
        let page = side.reads.subject.next(budget, until).await;
        let page = page.expect("the owner side-reads");
        assert!(page.events.len() <= budget.events, "a page's budget");
        for event in &page.events {
            let label = self.label_of(event.id());
            let emitted = &self.events[label];
            emitted.event.assert_stored_as(emitted.id, event);
            side.given
                .push_back((label, event.clone(), page.cursor_at(event)));
        }
        let of = |read: &VecDeque<(Label, StoredEvent, Cursor)>| -> Vec<Label> {
            read.iter().map(|(label, _, _)| *label).collect()
        };
        let (given, references) = (of(&side.given), of(&side.references));
        assert!(
            references.starts_with(&given),
            "a side read brings {given:?}, the reference's {references:?}"
        );
        if page.caught_up {
            // All that the main group has passed over, and nothing beyond.
            let passed = &self.shadows[&holding.destination].passed;
            let over: Vec<Label> = references
                .into_iter()
                .filter(|label| passed.contains(label))
                .collect();
            assert_eq!(given, over, "a side read that has reached the main group");
        }
        page.caught_up
    }

    async fn deliver_side(
        &mut self,
        holding: &mut Holding,
        side: &mut Side,
        key: &str,
        count: usize,
    ) {
        let taken = side.given.iter().take(count);
        let labels: Vec<Label> = taken.map(|(label, _, _)| *label).collect();
        self.shadow(&holding.destination).delivered.extend(&labels);
        self.pass_side(holding, side, key, count).await;
    }

    /// Moves the marker behind the first `count` events of the side read.
    async fn pass_side(&mut self, holding: &Holding, side: &mut Side, key: &str, count: usize) {
        let given: Vec<_> = side.given.drain(..count).collect();
        let references: Vec<_> = side.references.drain(..count).collect();
        let (Some((label, _, at)), Some((_, _, place))) = (given.last(), references.last()) else {
            return;
        };
        let seqs = |read: &[(Label, StoredEvent, Cursor)]| -> Vec<i64> {
            read.iter().map(|(_, event, _)| event.seq()).collect()
        };
        let advanced = side.reads.subject.advance(at, &seqs(&given)).await;
        advanced.expect("a side read's marker moves");
        let advanced = side
            .reads
            .reference
            .advance(place, &seqs(&references))
            .await;
        advanced.expect("a side read's marker moves");
        let shadow = self.shadow(&holding.destination);
        shadow.markers.insert(key.to_owned(), *label);
    }

    async fn join(&mut self, holding: &mut Holding, key: &str, until: &Cursor) {
        let claimed = &holding.claimed;
        claimed
            .subject
            .join(&[key.into()], until)
            .await
            .expect("a join");
        let joined = claimed
            .reference
            .join(&[key.into()], &holding.reference_end)
            .await;
        joined.expect("a join");
        holding.marked.remove(key);
        holding.sides.remove(key);
        self.shadow(&holding.destination).markers.remove(key);
    }
}
