//! What a sequence has come to: the two stores, who writes, who relays, and what each relay holds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
    sync::Arc,
};

use posthaste_engine::{Progress, Registered, Store, StoreError, StoreInfo};
use uuid::Uuid;

use super::{
    Plan,
    holding::Holding,
    observe::{self, Observation},
    operation::Operation,
    writing::OpenTransaction,
};
use crate::store_suite::{Capability, Fixture, NewEvent, Outbox};

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
pub(super) struct Relay {
    pub(super) name: String,
    pub(super) registered: Both<Registered>,
    pub(super) state: String,
    /// It said that it is about to leave.
    pub(super) leaves: bool,
}

/// What has become of a destination's events.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// Those that the stored cursor has passed, or that were there before the destination.
    pub(super) passed: BTreeSet<Label>,
    /// Those set aside that the stored cursor has not passed.
    pub(super) aside: BTreeSet<Label>,
    /// Those, and those of blocked keys that were accepted before them: a log may still count them.
    pub(super) ahead: BTreeSet<Label>,
    /// The last event of each marked key that is done with.
    pub(super) markers: BTreeMap<String, Label>,
    /// Those accepted, in their order.
    pub(super) delivered: Vec<Label>,
    /// Those that somebody decided to leave behind.
    pub(super) left_behind: BTreeSet<Label>,
    /// Those that were there before the destination.
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
    pub(super) relays: [Option<Relay>; 3],
    pub(super) lives: u32,
    pub(super) shadows: BTreeMap<String, Shadow>,
    pub(super) holdings: Vec<Holding>,
    /// Those that were lost, and whose relay has not noticed.
    pub(super) lost: Vec<Holding>,
    /// The newest epoch of each destination's name.
    pub(super) epochs: HashMap<String, Both<u64>>,
    pub(super) keeps_nothing: bool,
    /// Operations that did something since the two were compared.
    changes: usize,
    early: bool,
    kinds: BTreeMap<&'static str, u64>,
}

/// What a sequence did.
pub(super) struct Ended {
    pub(super) early: bool,
    pub(super) kinds: BTreeMap<&'static str, u64>,
}

impl World {
    async fn new(fixture: &Arc<dyn Fixture>, plan: &Plan) -> Self {
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
    pub(super) async fn new(
        subject: &Arc<dyn Fixture>,
        reference: &Arc<dyn Fixture>,
        plan: &Plan,
    ) -> Self {
        let worlds = Both {
            subject: World::new(subject, plan).await,
            reference: World::new(reference, plan).await,
        };
        assert_eq!(
            worlds.reference.store.info().progress,
            Progress::Mark,
            "the reference follows whatever pages the subject reads"
        );
        Self {
            info: worlds.subject.store.info(),
            worlds,
            writers: Default::default(),
            events: Vec::new(),
            labels: HashMap::new(),
            committed: BTreeSet::new(),
            order: BTreeMap::new(),
            relays: Default::default(),
            lives: 0,
            shadows: BTreeMap::new(),
            holdings: Vec::new(),
            lost: Vec::new(),
            epochs: HashMap::new(),
            keeps_nothing: false,
            changes: 0,
            early: false,
            kinds: BTreeMap::new(),
        }
    }

    /// Does it, where there is something to do it to.
    pub(super) async fn apply(&mut self, operation: &Operation) {
        use Operation::{
            Act, Advance, AnnounceLeaving, Claim, Commit, Crash, Due, Expire, Fence, FencesTaken,
            Housekeep, KeepNothing, Leave, Park, Read, Register, Renew, Report, Revoke, Rollback,
            RollbackTo, Savepoint, SetDestination, Settle, SideRead, Transaction, Withdraw, Write,
            Zombie,
        };
        let done = match *operation {
            Write { .. }
            | Transaction { .. }
            | Savepoint { .. }
            | RollbackTo { .. }
            | Commit { .. }
            | Rollback { .. } => self.write(operation).await,
            Register { .. }
            | Renew { .. }
            | Expire { .. }
            | Fence { .. }
            | AnnounceLeaving { .. }
            | Leave { .. }
            | Withdraw { .. }
            | Claim { .. }
            | Revoke { .. } => self.own(operation).await,
            Read { .. } | Advance { .. } => self.read_or_advance(operation).await,
            Park { .. } | Due { .. } | Settle { .. } => self.park_or_settle(operation).await,
            SideRead { .. } => self.side_read(operation).await,
            Report { holding, breaker } => self.report(holding, breaker).await,
            FencesTaken { holding } => self.fences_taken(holding).await,
            Zombie { which, call } => self.zombie(which, call).await,
            Act { .. } | SetDestination { .. } => self.administer(operation).await,
            Housekeep => self.housekeep().await,
            KeepNothing => self.keep_nothing().await,
            Crash => self.crash().await,
        };
        *self.kinds.entry(operation.kind()).or_default() += u64::from(done);
        self.changes += usize::from(done);
    }

    pub(super) fn due_to_compare(&self, every: usize) -> bool {
        self.changes >= every
    }

    /// Holds what the two tell operators against each other.
    pub(super) async fn compare(&mut self) {
        self.changes = 0;
        let seen = Both {
            subject: observe::observe(self, &self.worlds.subject).await,
            reference: observe::observe(self, &self.worlds.reference).await,
        };
        if !seen.subject.assert_agrees(&seen.reference) {
            self.end_early();
        }
        self.notice_fences(&seen.subject);
    }

    /// Whoever was fenced holds nothing any more.
    fn notice_fences(&mut self, seen: &Observation) {
        for slot in 0..self.relays.len() {
            let Some(relay) = &mut self.relays[slot] else {
                continue;
            };
            let state = seen.relays.get(&relay.name);
            relay.state = state.expect("a registered relay is shown").state.clone();
            if relay.state == "fenced" {
                self.lose(|holding| holding.slot == slot);
            }
        }
    }

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

    pub(super) fn end(self) -> Ended {
        Ended {
            early: self.early,
            kinds: self.kinds,
        }
    }

    pub(super) fn label_of(&self, id: Uuid) -> Label {
        let label = self.labels.get(&id).copied();
        label.unwrap_or_else(|| panic!("event {id} was never emitted"))
    }

    /// The key that orders the event, if its writers lock it.
    pub(super) fn locked_key(&self, label: Label) -> Option<&str> {
        let key = self.events[label].event.key.as_deref();
        key.filter(|key| *key != super::writing::LOOSE)
    }

    pub(super) fn key(&self, label: Label) -> Option<&str> {
        self.events[label].event.key.as_deref()
    }
}

/// One of these, by a number that may be any.
pub(super) fn pick(count: usize, number: u8) -> Option<usize> {
    (count > 0).then(|| usize::from(number) % count)
}

/// What both answered; none: the same refusal.
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
