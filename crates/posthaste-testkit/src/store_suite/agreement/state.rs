//! The state of a sequence: the two stores, the writers, the relays, and what each relay holds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt::Debug,
    sync::Arc,
};

use posthaste_engine::{
    Claim, Claimed, Cursor, Registered, SideRead, Store, StoreError, StoreInfo, StoredEvent,
};
use uuid::Uuid;

use super::{destinations::order_by, operation::Plan};
use crate::store_suite::{Capability, Fixture, NewEvent, Outbox, Writer};

/// The key that nobody locks: its order is nobody's promise.
pub(super) const LOOSE: &str = "loose";

/// An event, by the order in which it was emitted.
pub(super) type Label = usize;

/// The same of both stores.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Both<T> {
    pub(super) subject: T,
    pub(super) reference: T,
}

pub(super) struct World {
    pub(super) outbox: Box<dyn Outbox>,
    pub(super) store: Arc<dyn Store>,
}

/// An event that a writer emitted; whether it was committed shows in [`Driver::committed`].
pub(super) struct Emitted {
    pub(super) event: NewEvent,
    pub(super) id: Uuid,
}

/// A relay that registered.
#[derive(Debug, Clone)]
pub(super) struct RegisteredRelay {
    pub(super) name: String,
    pub(super) registered: Both<Registered>,
    pub(super) state: String,
    /// It said that it is about to leave.
    pub(super) leaves: bool,
}

/// The fate of a destination's events.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// Events that the stored cursor has passed, or that were there before the destination.
    pub(super) passed: BTreeSet<Label>,
    /// Events set aside that the stored cursor has not passed.
    pub(super) aside: BTreeSet<Label>,
    /// Those set aside, and accepted events of their keys before them: a log may still count them.
    pub(super) ahead: BTreeSet<Label>,
    /// The last event of each marked key that is done with.
    pub(super) markers: BTreeMap<String, Label>,
    /// Accepted events, in their order.
    pub(super) delivered: Vec<Label>,
    /// Events that somebody decided to leave behind.
    pub(super) left_behind: BTreeSet<Label>,
    /// Events that were there before the destination.
    pub(super) before: BTreeSet<Label>,
}

pub(super) struct Driver {
    pub(super) worlds: Both<World>,
    pub(super) info: StoreInfo,
    pub(super) writers: [Option<OpenTransaction>; 3],
    pub(super) events: Vec<Emitted>,
    pub(super) labels: HashMap<Uuid, Label>,
    pub(super) committed: BTreeSet<Label>,
    /// The events of each locked key, in the order of their commits.
    pub(super) order: BTreeMap<String, Vec<Label>>,
    pub(super) relays: [Option<RegisteredRelay>; 3],
    pub(super) lives: u32,
    pub(super) shadows: BTreeMap<String, Shadow>,
    pub(super) holdings: Vec<Holding>,
    /// Claims that were lost, and whose relay has not noticed.
    pub(super) lost: Vec<Holding>,
    /// The newest epoch of each destination's name.
    pub(super) epochs: HashMap<String, Both<u64>>,
    pub(super) keeps_nothing: bool,
    /// Operations that did something since the two were compared.
    pub(super) changes: usize,
    pub(super) early: bool,
    pub(super) kinds: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) async fn new(fixture: &Arc<dyn Fixture>, plan: &Plan) -> Self {
        let needs: &[Capability] = match plan.crashes {
            true => &[Capability::Crash],
            false => &[],
        };
        let outbox = fixture.fresh(needs).await;
        let store = outbox.store().await;
        Self { outbox, store }
    }
}

impl Driver {
    /// These claims are not the newest any more.
    pub(super) fn lose(&mut self, which: impl Fn(&Holding) -> bool) {
        let (lost, kept) = std::mem::take(&mut self.holdings)
            .into_iter()
            .partition(|holding| which(holding));
        self.holdings = kept;
        self.lost.extend::<Vec<Holding>>(lost);
    }

    /// The contract leaves the choice to the store from here on.
    pub(super) fn end_early(&mut self) {
        self.early = true;
    }

    pub(super) fn ended_early(&self) -> bool {
        self.early
    }

    pub(super) fn label_of(&self, id: Uuid) -> Label {
        let label = self.labels.get(&id).copied();
        label.unwrap_or_else(|| panic!("event {id} was never emitted"))
    }

    /// The event's key, if its writers lock it.
    pub(super) fn locked_key(&self, label: Label) -> Option<&str> {
        self.key(label).filter(|key| *key != LOOSE)
    }

    pub(super) fn key(&self, label: Label) -> Option<&str> {
        self.events[label].event.key.as_deref()
    }

    /// The event's key of order at the destination.
    pub(super) fn order_key(&self, destination: &str, label: Label) -> Option<String> {
        let event = &self.events[label].event;
        let key = event.key.as_deref()?;
        let key = order_by(destination).order_key(&event.topic, key);
        Some(key.into_owned())
    }

    /// The key that orders the event at the destination, if its writers lock it.
    pub(super) fn locked_order_key(&self, destination: &str, label: Label) -> Option<String> {
        self.locked_key(label)?;
        self.order_key(destination, label)
    }

    /// The events of each locked key of order at the destination, in the order of their commits.
    pub(super) fn orders(&self, destination: &str) -> BTreeMap<String, Vec<Label>> {
        let mut orders: BTreeMap<String, Vec<Label>> = BTreeMap::new();
        for &label in self.order.values().flatten() {
            if let Some(key) = self.order_key(destination, label) {
                orders.entry(key).or_default().push(label);
            }
        }
        orders
    }
}

/// A writer's transaction that is under way.
pub(super) struct OpenTransaction {
    pub(super) writers: Both<Box<dyn Writer>>,
    pub(super) events: Vec<Label>,
    /// How many events there were at the savepoint.
    pub(super) savepoint: Option<usize>,
    /// Locked until it ends, whatever is taken back.
    pub(super) keys: BTreeSet<&'static str>,
}

impl OpenTransaction {
    pub(super) async fn savepoint(&mut self) {
        self.writers.subject.savepoint().await;
        self.writers.reference.savepoint().await;
        self.savepoint = Some(self.events.len());
    }

    /// Takes back what was written behind the savepoint, if there is one.
    pub(super) async fn roll_back_to(&mut self) -> bool {
        let Some(count) = self.savepoint else {
            return false;
        };
        self.writers.subject.rollback_to_savepoint().await;
        self.writers.reference.rollback_to_savepoint().await;
        self.events.truncate(count);
        true
    }
}

/// An event that a read brought and that the stored cursor has not passed.
pub(super) struct Given {
    pub(super) label: Label,
    pub(super) event: StoredEvent,
    /// The cursor that has passed it.
    pub(super) at: Cursor,
    /// The end of its page, when it is its page's last.
    pub(super) end: Option<Cursor>,
    /// Whether it was accepted, so that one behind it may be parked.
    pub(super) accepted: bool,
    /// Whether the reference knows that it was accepted or parked.
    pub(super) finished: bool,
}

pub(super) struct Holding {
    pub(super) slot: usize,
    pub(super) destination: String,
    pub(super) claim: Both<Claim>,
    pub(super) claimed: Both<Arc<dyn Claimed>>,
    /// The reads of the reference, in their order.
    pub(super) seen: Vec<Label>,
    pub(super) references: HashMap<Label, (StoredEvent, Cursor)>,
    pub(super) reference_end: Cursor,
    /// The reads of the subject that it has not passed.
    pub(super) given: VecDeque<Given>,
    /// All that it has read.
    pub(super) read: Vec<Label>,
    /// Where its last page ended, and whether a side read can join there.
    pub(super) end: Option<(Cursor, bool)>,
    /// Set aside before this claim, and perhaps read again.
    pub(super) aside: BTreeSet<Label>,
    /// Keys that had a marker when the claim was made.
    pub(super) marked_before: BTreeSet<String>,
    pub(super) marked: BTreeSet<String>,
    /// Due copies under way.
    pub(super) copies: BTreeMap<Label, Both<i64>>,
    pub(super) sides: BTreeMap<String, Side>,
}

impl Holding {
    /// Whether the events of this key of order are the side read's.
    pub(super) fn is_marked(&self, key: Option<String>) -> bool {
        key.is_some_and(|key| self.marked.contains(&key))
    }

    /// The reference's numbers of these events.
    pub(super) fn reference_seqs(&self, labels: &[Label]) -> Vec<i64> {
        let seq = |label: &Label| self.references.get(label).map(|(event, _)| event.seq());
        labels.iter().filter_map(seq).collect()
    }
}

/// A side read under way in both stores.
pub(super) struct Side {
    pub(super) reads: Both<Box<dyn SideRead>>,
    /// The reads of the reference.
    pub(super) references: VecDeque<(Label, StoredEvent, Cursor)>,
    /// The reads of the subject that it has not passed.
    pub(super) given: VecDeque<(Label, StoredEvent, Cursor)>,
}

/// One of these, by a number that may be any.
pub(super) fn pick(count: usize, number: u8) -> Option<usize> {
    (count > 0).then(|| usize::from(number) % count)
}

/// The answers of both; none: the same refusal.
pub(super) fn agreed<T: Debug>(
    what: &str,
    subject: Result<T, StoreError>,
    reference: Result<T, StoreError>,
) -> Option<Both<T>> {
    match (subject, reference) {
        (Ok(subject), Ok(reference)) => Some(Both { subject, reference }),
        (Err(subject), Err(reference)) if class(&subject) == class(&reference) => None,
        (subject, reference) => {
            panic!("{what}: the store answers {subject:?}, the reference {reference:?}")
        }
    }
}

fn class(error: &StoreError) -> &'static str {
    match error {
        StoreError::Fenced { .. } => "fenced",
        StoreError::IncarnationChanged { .. } => "incarnation",
        StoreError::Misconfigured { .. } => "misconfigured",
        other => panic!("not an answer to any of these calls: {other}"),
    }
}
