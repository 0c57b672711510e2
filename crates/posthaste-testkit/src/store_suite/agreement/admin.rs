//! Operators, retention and crashes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_engine::{
    DeadAction, DestinationState, Housekeeping, ParkedEvent, ParkedFilter, ParkedState, Store,
};

use super::{
    destinations::destination,
    observe::ALL,
    operation::Operation,
    state::{Both, Driver, Label, agreed, pick},
};

/// Steps after which a housekeeper has come to rest.
const STEPS_MAX: usize = 50;

impl Driver {
    pub(super) async fn administer(&mut self, operation: &Operation) -> bool {
        match *operation {
            Operation::Act {
                destination: of,
                by,
                which,
                action,
            } => self.act(destination(of), by, which, action).await,
            Operation::SetDestination {
                destination: name,
                state,
            } => {
                let state = match state % 7 {
                    0 | 1 => DestinationState::Paused,
                    2 => DestinationState::Removed,
                    3 | 4 => DestinationState::Active,
                    rest => return self.set_place(destination(name), rest == 5).await,
                };
                self.set_destination(destination(name), state).await
            }
            _ => unreachable!("no operator's call"),
        }
    }

    async fn act(&mut self, destination: &str, by: u8, which: u8, action: u8) -> bool {
        let action = match action % 5 {
            0 | 1 => DeadAction::Retry,
            2 => DeadAction::Skip,
            3 => DeadAction::Discard,
            _ => return self.retry_skipped(destination, by, which).await,
        };
        let before = self.waiting().await;
        let waiting: Vec<Label> = before.values().flatten().copied().collect();
        let Some(at) = pick(waiting.len(), which) else {
            return false;
        };
        let label = waiting[at];
        let mut filter = ParkedFilter {
            destination: Some(destination.to_owned()),
            ..ParkedFilter::default()
        };
        match by % 6 {
            0..3 => filter.id = Some(self.events[label].id),
            3 => filter.key = self.key(label).map(str::to_owned),
            4 => filter.state = Some(ParkedState::Dead),
            // Of all destinations.
            _ => filter.destination = None,
        }
        self.act_in_both(&filter, action).await;
        if action != DeadAction::Retry {
            self.leave_behind(&before).await;
        }
        true
    }

    /// Answers how many events were acted on.
    async fn act_in_both(&self, filter: &ParkedFilter, action: DeadAction) -> u64 {
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.act(filter, action).await;
        let reference = theirs.act(filter, action).await;
        let acted = agreed("act", subject, reference).expect("operators may act");
        assert_eq!(acted.subject, acted.reference, "acted on by {filter:?}");
        acted.subject
    }

    /// A skipped event is tried after all, behind the events that followed it.
    async fn retry_skipped(&self, destination: &str, by: u8, which: u8) -> bool {
        let mut filter = ParkedFilter {
            destination: Some(destination.to_owned()),
            state: Some(ParkedState::Skipped),
            ..ParkedFilter::default()
        };
        let skipped = self.worlds.subject.store.parked(&filter, ALL).await;
        let skipped = skipped.expect("events set aside");
        let Some(at) = pick(skipped.len(), which) else {
            return false;
        };
        match by % 3 {
            0 => filter.id = Some(skipped[at].event.id()),
            1 => filter.key = skipped[at].event.key().map(str::to_owned),
            _ => {}
        }
        self.act_in_both(&filter, DeadAction::Retry).await > 0
    }

    /// Events of these that wait no longer were left behind.
    async fn leave_behind(&mut self, before: &BTreeMap<String, BTreeSet<Label>>) {
        let after = self.waiting().await;
        for (name, waited) in before {
            let waits = |label: &&Label| after.get(name).is_some_and(|w| w.contains(*label));
            let left = waited.iter().filter(|label| !waits(label));
            self.shadow(name).left_behind.extend(left);
        }
    }

    /// The events that wait, parked or dead, of each destination.
    pub(super) async fn waiting(&self) -> BTreeMap<String, BTreeSet<Label>> {
        let mut waiting = BTreeMap::<String, BTreeSet<Label>>::new();
        for row in self.rows_that_wait().await {
            let of_destination = waiting.entry(row.destination.clone()).or_default();
            of_destination.insert(self.label_of(row.event.id()));
        }
        waiting
    }

    async fn rows_that_wait(&self) -> Vec<ParkedEvent> {
        let filter = ParkedFilter::default();
        let rows = self.worlds.subject.store.parked(&filter, ALL);
        rows.await.expect("events set aside")
    }

    async fn set_destination(&mut self, name: &str, state: DestinationState) -> bool {
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.set_destination(name, state).await;
        let reference = theirs.set_destination(name, state).await;
        let Some(known) = agreed("set a destination's state", subject, reference) else {
            return true;
        };
        assert_eq!(known.subject, known.reference, "whether there is `{name}`");
        if known.subject && state == DestinationState::Removed {
            self.shadows.remove(name);
            self.lose(|holding| holding.destination == name);
            // It is of no destination any more.
            self.lost.retain(|holding| holding.destination != name);
        }
        true
    }

    async fn set_place(&mut self, name: &str, paused: bool) -> bool {
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.set_place(name, "a place", paused).await;
        let reference = theirs.set_place(name, "a place", paused).await;
        if let Some(known) = agreed("pause a place", subject, reference) {
            assert_eq!(known.subject, known.reference, "whether there is `{name}`");
        }
        true
    }

    pub(super) async fn keep_nothing(&mut self) -> bool {
        self.keeps_nothing = true;
        for world in [&self.worlds.subject, &self.worlds.reference] {
            world.outbox.set_retention(Duration::ZERO).await;
        }
        true
    }

    /// Both keep house until they come to rest, with all cursors at the end: what a store keeps
    /// longer than it must is its own affair, but what it sets aside for that is told.
    pub(super) async fn housekeep(&mut self) -> bool {
        if self.writers.iter().any(Option::is_some) {
            return false;
        }
        // The events to evacuate depend on how far each destination has come; so all come to the
        // end.
        if self.keeps_nothing && !self.settle_cursors().await {
            return false;
        }
        let done = Both {
            subject: rest(&*self.worlds.subject.store).await,
            reference: rest(&*self.worlds.reference.store).await,
        };
        assert_eq!(
            done.subject.evacuated, done.reference.evacuated,
            "followers of blocked keys that are set aside"
        );
        assert_eq!(
            done.subject.parked, done.reference.parked,
            "set aside, gone"
        );
        if done.subject.evacuated > 0 {
            self.note_evacuated().await;
        }
        true
    }

    /// Markers stand behind the copies now.
    async fn note_evacuated(&mut self) {
        for row in self.rows_that_wait().await {
            let label = self.label_of(row.event.id());
            if let Some(key) = self.locked_order_key(&row.destination, label) {
                let shadow = self.shadow(&row.destination);
                // Of a key that has none, only what was skipped waits.
                if let Some(marker) = shadow.markers.get_mut(&key) {
                    *marker = (*marker).max(label);
                }
            }
        }
    }

    pub(super) async fn crash(&mut self) -> bool {
        for writer in &mut self.writers {
            *writer = None;
        }
        for world in [&mut self.worlds.subject, &mut self.worlds.reference] {
            world.outbox.crash().await;
            world.store = world.outbox.store().await;
        }
        self.holdings.clear();
        self.lost.clear();
        // As relays do before they claim again: they find the new incarnation by it.
        for slot in 0..self.relays.len() {
            self.relays[slot] = None;
            self.register(slot).await;
        }
        true
    }
}

async fn rest(store: &dyn Store) -> Housekeeping {
    let mut done = Housekeeping::default();
    for _ in 0..STEPS_MAX {
        let step = store.housekeep(None).await.expect("housekeeping");
        let rests = !step.did_something() && !step.more && step.in_the_way.is_none();
        done.add(step);
        if rests {
            return done;
        }
    }
    panic!("no rest after {STEPS_MAX} steps: {done:?}");
}
