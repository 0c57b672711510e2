//! This relay's share of a destination: what was seen of it last, and what had better be done.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{Moment, Registered, ShareStep, Shares, Sharing, Store, StoreError};

use crate::call::StoreCall;

/// What is known of the others, from renewals, claims and looks; whichever was asked for last counts.
pub(crate) struct Share {
    sharing: Sharing,
    shares: Shares,
    seen: Moment,
    step: ShareStep,
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

    /// Takes in what a question asked at `asked` answered. What was asked before the last news is older.
    pub(crate) fn saw(&mut self, shares: Shares, asked: Moment, now: Moment) {
        if asked < self.seen {
            return;
        }
        self.seen = asked;
        self.step = self.sharing.next(&shares, now);
        self.look_at = self.sharing.look_at(&shares, now);
        self.shares = shares;
    }

    /// A read saw this version.
    pub(crate) fn saw_version(&mut self, version: i64, now: Moment) {
        if version > self.shares.version {
            self.look_at = Some(now);
        }
    }

    /// What to do now; each piece of advice is given once.
    pub(crate) fn take_step(&mut self) -> ShareStep {
        std::mem::replace(&mut self.step, ShareStep::Stay)
    }

    /// Begins to look, if it is time.
    pub(crate) fn look(&mut self, store: &Arc<dyn Store>, destination: &str, now: Moment) {
        if !self.call.is_under_way() && self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            let (store, destination) = (Arc::clone(store), destination.to_owned());
            self.call
                .start(async move { Ok((now, store.shares(&destination).await?)) });
        }
    }

    /// Begins to revoke what dead relays own, and looks what became of it.
    pub(crate) fn revoke(
        &mut self,
        store: &Arc<dyn Store>,
        (relay, destination): (Registered, &str),
        settle: Duration,
        now: Moment,
    ) {
        let (store, destination) = (Arc::clone(store), destination.to_owned());
        self.call.start(async move {
            store.revoke(relay, &destination, settle).await?;
            Ok((now, store.shares(&destination).await?))
        });
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
