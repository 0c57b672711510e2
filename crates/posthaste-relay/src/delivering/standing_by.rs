//! A relay that owns nothing of its destination: for what it waits, and until when.

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::{Moment, ShareStep, Want};
use uuid::Uuid;

use crate::{across_claims::AcrossClaims, task::DestinationTask};

impl DestinationTask {
    /// We own nothing: waits until there is something to claim, and answers what.
    pub(super) async fn stand_by(&self, across: &mut AcrossClaims) -> Want {
        loop {
            let now = self.clock.now();
            match across.share.take_step() {
                ShareStep::Claim(want) => return want,
                ShareStep::Revoke => self.revoke(across).await,
                ShareStep::Stay | ShareStep::Withdraw => {
                    let wait = self.wait_for_a_share(across, now);
                    tokio::time::sleep(wait).await;
                }
            }
            let asked = self.clock.now();
            match self.store.shares(&self.destination.name).await {
                Ok(shares) => across.share.saw(shares, asked, self.clock.now()),
                Err(error) => self.failed(&error, across).await,
            }
            let us = across.share.shares().member(self.registered.registration);
            // Somebody removed the destination, or us from it; or we are said to own what we do not
            // hold: a fail-over brought back what had been given up. The claim enlists again.
            if us.is_none_or(|us| us.owned > 0) {
                return self.enlist();
            }
        }
    }

    /// Others deliver to another address: waits until other relays serve the destination than now,
    /// or none.
    pub(super) async fn stand_by_for_address(&self, address: &str, across: &mut AcrossClaims) {
        let (name, ours) = (&self.destination.name, self.destination.target());
        let members = |across: &AcrossClaims| -> BTreeSet<Uuid> {
            let members = across.share.shares().members.iter();
            members.map(|member| member.registration).collect()
        };
        let serving = members(across);
        while members(across) == serving {
            let now = self.clock.now();
            if matches!(across.share.take_step(), ShareStep::Revoke) {
                self.revoke(across).await;
            } else {
                across.stands_by.warn(now, || {
                    let members = across.share.shares().members.iter();
                    let relays: Vec<&str> = members.map(|member| member.name.as_str()).collect();
                    format!(
                        "destination `{name}` is delivered to `{address}` by `{}`, and this relay \
                         is told to deliver to `{ours}`; standing by until no live relay delivers \
                         to the other address; to move the destination now, stop those relays; to \
                         share their work, give this one their address",
                        relays.join("`, `")
                    )
                });
                let wait = self.settings.limits.poll_idle;
                self.stands_by(now.after(wait));
                tokio::time::sleep(wait).await;
            }
            let asked = self.clock.now();
            match self.store.shares(name).await {
                Ok(shares) => across.share.saw(shares, asked, self.clock.now()),
                Err(error) => self.failed(&error, across).await,
            }
        }
    }

    /// Nothing is due here before then, and that is no trouble.
    fn stands_by(&self, until: Moment) {
        let counters = &self.destination.counters;
        counters.let_go(None);
        counters.progressed(until);
    }

    async fn revoke(&self, across: &mut AcrossClaims) {
        let gone = across.share.take_gone();
        if let Err(error) = self.revocation().make(&*self.store, gone).await {
            self.failed(&error, across).await;
        }
    }

    /// Says for whom we wait, and answers how long before another look.
    fn wait_for_a_share(&self, across: &mut AcrossClaims, now: Moment) -> Duration {
        let name = &self.destination.name;
        let shares = across.share.shares();
        let me = self.registered.registration;
        let holders = shares
            .members
            .iter()
            .filter(|m| m.owned > 0 && m.registration != me);
        if let Some(holder) = holders.max_by_key(|member| member.owned) {
            across.stands_by.warn(now, || {
                format!(
                    "destination `{name}` is held by relay `{}` (process {}), whose lease lasts \
                     {:.1} s unless it is renewed; standing by",
                    holder.name,
                    holder.host.pid,
                    holder.lease_left.as_secs_f64()
                )
            });
        }
        let look = across.share.look_at().map(|at| now.until(at));
        let wait = look
            .unwrap_or(Duration::MAX)
            .min(self.settings.limits.poll_idle);
        self.stands_by(now.after(wait));
        wait.max(Duration::from_millis(1))
    }

    /// Others reach the broker and we do not: theirs is our share, until we reach it too. None when
    /// the relay stops.
    pub(super) async fn stay_away(&self, across: &mut AcrossClaims) -> Option<()> {
        let name = &self.destination.name;
        self.withdraw(across.unsettled(self.clock.now())).await;
        across.share = self.before_any_claim().share;
        self.destination.counters.let_go(None);
        let sink = &self.destination.sink;
        loop {
            let wait = across.wait_while_away();
            let now = self.clock.now();
            across.stands_by.warn(now, || {
                format!(
                    "destination `{name}` is reached by other relays and not by this one: it is \
                     theirs for {wait:?}"
                )
            });
            self.destination.counters.progressed(now.after(wait));
            self.unless_over(tokio::time::sleep(wait)).await?;
            let limit = self.settings.publish_timeout;
            let check = self.unless_over(tokio::time::timeout(limit, sink.check()));
            if let Ok(Ok(_)) = check.await? {
                return Some(());
            }
        }
    }
}
