//! Applies operations to both stores, and compares what they tell.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use posthaste_engine::Progress;

use super::{
    observe::{self, Observation},
    operation::{Operation, Plan},
    state::{Both, Driver, World},
};
use crate::store_suite::Fixture;

/// The acts of a sequence.
pub(super) struct Ended {
    pub(super) early: bool,
    pub(super) kinds: BTreeMap<&'static str, u64>,
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

    /// A fenced relay holds nothing any more.
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

    pub(super) fn end(self) -> Ended {
        Ended {
            early: self.early,
            kinds: self.kinds,
        }
    }
}
