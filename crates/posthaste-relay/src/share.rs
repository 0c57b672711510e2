//! This relay's share of a destination: what was seen of it last, and what had better be done.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Member, Moment, Ownership, Registered, ShareStep, Shares, Sharing, Store, StoreError,
};
use tracing::info;
use uuid::Uuid;

use crate::{call::StoreCall, host};

/// A relay whose process on this machine is gone.
pub(crate) struct DeadProcess {
    registration: Uuid,
    name: String,
}

/// Frees what expired relays own of a destination.
pub(crate) struct Revocation {
    pub(crate) by: Registered,
    pub(crate) destination: String,
    /// How long their bytes may still arrive.
    pub(crate) settle: Duration,
}

impl Revocation {
    /// Fences those whose processes are dead, then revokes what any expired relay owns.
    pub(crate) async fn make(
        &self,
        store: &dyn Store,
        gone: Vec<DeadProcess>,
    ) -> Result<(), StoreError> {
        let why = "its process on this machine is gone";
        for DeadProcess { registration, name } in gone {
            store.fence(self.by, registration, why).await?;
            info!(relay = %name, "fenced: {why}");
        }
        store.revoke(self.by, &self.destination, self.settle).await
    }
}

/// The latest view of the other relays, by a renewal, a claim or a look: the one that was asked for
/// last counts.
pub(crate) struct Share {
    sharing: Sharing,
    shares: Shares,
    seen: Moment,
    step: ShareStep,
    /// Live members whose processes on this machine are gone: their leases need not be waited for.
    gone: Vec<DeadProcess>,
    look_at: Option<Moment>,
    call: StoreCall<(Moment, Shares)>,
}

impl Share {
    pub(crate) fn new(me: Registered, heartbeat: Duration, together: bool) -> Self {
        Self {
            sharing: Sharing::new(me.registration, heartbeat, together),
            shares: Shares::default(),
            seen: Moment::default(),
            step: ShareStep::Stay,
            gone: Vec::new(),
            look_at: None,
            call: StoreCall::none(),
        }
    }

    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Whether other live relays serve the destination.
    pub(crate) fn is_shared(&self) -> bool {
        self.shares.members.len() > 1
    }

    /// Whether what was asked then is newer than what is known.
    pub(crate) fn is_news(&self, asked: Moment) -> bool {
        asked > self.seen
    }

    /// Takes in the answer to a question that was asked at `asked`. An answer to an earlier
    /// question than the last one is older, and is dropped.
    pub(crate) fn saw(&mut self, shares: Shares, asked: Moment, now: Moment) {
        if asked < self.seen {
            return;
        }
        self.seen = asked;
        let gone = |member: &&Member| host::is_gone(&member.host);
        let gone = shares
            .members
            .iter()
            .filter(gone)
            .map(|member| DeadProcess {
                registration: member.registration,
                name: member.name.clone(),
            });
        self.gone = gone.collect();
        self.step = match self.sharing.next(&shares, now) {
            _ if !self.gone.is_empty() => ShareStep::Revoke,
            step => step,
        };
        self.look_at = self.sharing.look_at(&shares, now);
        self.shares = shares;
    }

    /// The broker accepted something of ours.
    pub(crate) fn reached(&mut self) {
        self.sharing.reached();
    }

    /// A read saw this version.
    pub(crate) fn saw_version(&mut self, version: i64, now: Moment) {
        if version > self.shares.version {
            self.look_at = Some(now);
        }
    }

    /// The step to take now; each is given once.
    pub(crate) fn take_step(&mut self) -> ShareStep {
        std::mem::replace(&mut self.step, ShareStep::Stay)
    }

    /// Begins to look, if it is time.
    pub(crate) fn look(&mut self, store: Arc<dyn Ownership>, destination: &str, now: Moment) {
        if !self.call.is_under_way() && self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            let destination = destination.to_owned();
            self.call
                .start(async move { Ok((now, store.shares(&destination).await?)) });
        }
    }

    /// Begins to revoke what expired relays own, and looks what became of it.
    pub(crate) fn revoke(&mut self, store: &Arc<dyn Store>, revocation: Revocation, now: Moment) {
        let (store, gone) = (Arc::clone(store), std::mem::take(&mut self.gone));
        self.call.start(async move {
            revocation.make(&*store, gone).await?;
            Ok((now, store.shares(&revocation.destination).await?))
        });
    }

    /// Those who are to be fenced before anything is revoked.
    pub(crate) fn take_gone(&mut self) -> Vec<DeadProcess> {
        std::mem::take(&mut self.gone)
    }

    /// The answer of the call under way: when it was asked, and what was seen. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Result<(Moment, Shares), StoreError> {
        self.call.answer().await?
    }

    /// When to look again, unless something is heard before.
    pub(crate) fn look_at(&self) -> Option<Moment> {
        self.look_at.filter(|_| !self.call.is_under_way())
    }
}
