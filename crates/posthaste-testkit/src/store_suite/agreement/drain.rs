//! Bringing everything to its end.

use std::collections::BTreeSet;

use posthaste_engine::{ClaimRequest, Cursor, DeadAction, ParkedFilter};

use super::{
    destinations::order_by,
    holding::markers,
    state::{Driver, Holding, Label},
};
use crate::store_suite::bench::{ADDRESS, PLENTY};

/// Reads after which a store has told all there is.
const READS_MAX: usize = 200;

impl Driver {
    /// Ends what is under way: nobody has a transaction open, one relay owns everything, nothing
    /// waits. Then every event has come to its end, once, and each key's in order.
    pub(super) async fn drain(&mut self) {
        for at in 0..self.writers.len() {
            if let Some(open) = self.writers[at].take() {
                self.end_transaction(open, true).await;
            }
        }
        self.compare_unless_ended_early().await;
        if self.ended_early() {
            return;
        }
        let names: Vec<String> = self.shadows.keys().cloned().collect();
        let slot = self.own_everything(&names).await;
        for name in &names {
            let holding = self
                .holdings
                .iter()
                .position(|holding| holding.slot == slot && holding.destination == *name);
            let at = holding.unwrap_or_else(|| panic!("nobody owns {name}"));
            let mut holding = self.holdings.swap_remove(at);
            self.finish_all(&mut holding).await;
            self.skip_what_waits(name).await;
            self.join_all(&mut holding).await;
            self.holdings.push(holding);
            self.compare().await;
            self.assert_finished(name).await;
        }
    }

    async fn compare_unless_ended_early(&mut self) {
        if !self.ended_early() {
            self.compare().await;
        }
    }

    /// A fresh relay fences all others and takes what they had.
    async fn own_everything(&mut self, names: &[String]) -> usize {
        for slot in 1..self.relays.len() {
            if self.relays[slot]
                .as_ref()
                .is_none_or(|relay| relay.state != "live")
            {
                self.relays[slot] = None;
            }
        }
        self.relays[0] = None;
        self.holdings.retain(|holding| holding.slot != 0);
        self.register(0).await;
        self.compare().await;
        self.fence_everybody_else().await;
        for name in names {
            let target = order_by(name).target(ADDRESS);
            self.claim(0, ClaimRequest::all(name, &target)).await;
            self.compare().await;
        }
        0
    }

    async fn fence_everybody_else(&mut self) {
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let us = self.relays[0].as_ref().expect("registered");
        for (store, us) in [
            (ours, us.registered.subject),
            (theirs, us.registered.reference),
        ] {
            let status = store.status().await.expect("a status");
            for relay in status.relays {
                if relay.registration != us.registration {
                    let fenced = store.fence(us, relay.registration, "the end").await;
                    fenced.expect("whoever lives may fence");
                }
            }
        }
    }

    /// Everything that the main group has. Answers where it stands then; a side read can join
    /// there.
    pub(super) async fn finish_all(&mut self, holding: &mut Holding) -> Cursor {
        for _ in 0..READS_MAX {
            let caught_up = self.read(holding, PLENTY).await;
            let count = holding.given.len();
            self.advance(holding, count, true).await;
            if let Some((end, true)) = &holding.end
                && caught_up
            {
                return end.clone();
            }
        }
        panic!("not at the end after {READS_MAX} reads");
    }

    async fn skip_what_waits(&mut self, name: &str) {
        let filter = ParkedFilter {
            destination: Some(name.to_owned()),
            ..ParkedFilter::default()
        };
        // Copies that wait for their turn are skipped one by one, by their ids.
        let waiting = self.waiting().await.remove(name).unwrap_or_default();
        for label in &waiting {
            let filter = ParkedFilter {
                id: Some(self.events[*label].id),
                ..filter.clone()
            };
            let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
            let acted = ours.act(&filter, DeadAction::Skip).await;
            let same = theirs.act(&filter, DeadAction::Skip).await;
            assert_eq!(acted.expect("a skip"), same.expect("a skip"), "{filter:?}");
        }
        self.shadow(name).left_behind.extend(waiting);
    }

    async fn join_all(&mut self, holding: &mut Holding) {
        for _ in 0..READS_MAX {
            let marked = markers(&*holding.claimed.subject).await;
            if marked.is_empty() {
                return;
            }
            assert!(
                marked.values().all(|released| *released),
                "nothing waits, and these are held: {marked:?}"
            );
            self.side_step(holding, 0, PLENTY, u8::MAX, None).await;
        }
        panic!("keys that are never joined");
    }

    /// All cursors stand at the end, where one relay can bring them there.
    pub(super) async fn settle_cursors(&mut self) -> bool {
        let names: Vec<String> = self.shadows.keys().cloned().collect();
        for name in &names {
            let mut of = self
                .holdings
                .iter()
                .filter(|holding| holding.destination == *name);
            let whole = of.any(|holding| holding.claim.subject.partitions.is_all());
            if !whole {
                return false;
            }
        }
        for name in &names {
            let at = self.holdings.iter().position(|h| h.destination == *name);
            let mut holding = self.holdings.swap_remove(at.expect("it is held"));
            self.finish_all(&mut holding).await;
            self.holdings.push(holding);
        }
        true
    }

    async fn assert_finished(&self, name: &str) {
        let shadow = &self.shadows[name];
        let first: BTreeSet<Label> = shadow.delivered.iter().copied().collect();
        for label in &self.committed {
            let ended = first.contains(label)
                || shadow.left_behind.contains(label)
                || shadow.before.contains(label);
            assert!(ended, "event {label} was lost on its way to {name}");
        }
        for (key, order) in &self.orders(name) {
            let delivered: Vec<Label> = shadow
                .delivered
                .iter()
                .filter(|label| self.locked_order_key(name, **label).as_ref() == Some(key))
                .filter(|label| !shadow.left_behind.contains(label))
                .copied()
                .collect();
            let wanted: Vec<Label> = order
                .iter()
                .filter(|label| first.contains(label) && !shadow.left_behind.contains(label))
                .copied()
                .collect();
            assert_eq!(
                delivered, wanted,
                "{key} as {name} got it, once and in order"
            );
        }
        let status = self.worlds.subject.store.status().await.expect("a status");
        let destination = status.destinations.iter().find(|row| row.name == name);
        assert_eq!(
            destination.map(|row| row.pending),
            Some(0),
            "pending of {name}"
        );
    }
}
