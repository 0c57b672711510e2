//! Claims: one transaction, behind the lock of the destination, in which nobody else changes who
//! owns what. The engine decides ([`ClaimDecision`]).

mod transaction;

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use posthaste_engine::{
    ClaimDecision, ClaimOutcome, ClaimRequest, DestinationFound, OrderBy, Partitions, Registered,
    ShareChange, Shares, StoreError,
};
use uuid::Uuid;

use super::{Grant, micros::micros};
pub(super) use transaction::{claim, lock_and_revoke, refill_incarnation, with_fragments};

pub(super) const OPERATION: &str = "claim";

/// Each lost race means that the destination was created or removed meanwhile.
pub(super) const RACES_MAX: u32 = 16;

fn bug(reason: String) -> StoreError {
    StoreError::Bug {
        operation: OPERATION,
        reason,
    }
}

pub(super) fn comes_and_goes(destination: &str) -> StoreError {
    StoreError::Unavailable {
        operation: OPERATION,
        reason: format!("`{destination}` comes and goes all the time"),
        source: None,
    }
}

/// The statements of one claim, all of them in one transaction.
#[async_trait]
pub(super) trait ClaimTransaction: Send + Sync {
    /// Waits for the destination's lock, then frees what dead relays own of it; answers our name.
    async fn lock_and_revoke(&self, relay: Registered, settle: i64) -> Result<String, StoreError>;

    /// The destination's address, which is empty before its first claim, and how it stands; none:
    /// it is gone.
    async fn look(&self) -> Result<Option<(String, DestinationFound)>, StoreError>;

    /// A live relay of a version that does not know the order of a key and a topic.
    async fn older_relay(&self) -> Result<Option<String>, StoreError>;

    /// Cuts the slots into `count` partitions. No slot changes its row.
    async fn recut(
        &self,
        cut: Cut,
        count: u16,
        name: &str,
        relay: Registered,
    ) -> Result<(), StoreError>;

    /// Gives what is free of the row from now on a row of its own, at the same place; answers its
    /// id.
    async fn split(&self, change: &ShareChange) -> Result<i64, StoreError>;

    /// Writes who owns what, and enlists us.
    async fn apply(&self, apply: &Apply<'_>) -> Result<(), StoreError>;

    async fn shares(&self, destination: &str) -> Result<Option<Shares>, StoreError>;
}

/// How partitions are cut anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// So many for each one.
    Finer(u16),
    /// So many become one.
    Coarser(u16),
}

/// A decided claim, ready to be written.
pub(super) struct Apply<'a> {
    pub(super) relay: Registered,
    pub(super) name: &'a str,
    pub(super) request: &'a ClaimRequest<'a>,
    pub(super) decision: &'a ClaimDecision,
}

/// One claim inside its transaction.
pub(super) struct Claiming<'a> {
    pub(super) relay: Registered,
    pub(super) request: &'a ClaimRequest<'a>,
    pub(super) destination_id: i64,
    pub(super) token: Uuid,
    /// As [`Grant::proven`].
    pub(super) proven: i64,
}

impl Claiming<'_> {
    /// None: the destination is gone.
    pub(super) async fn run(
        &self,
        statements: &dyn ClaimTransaction,
    ) -> Result<Option<ClaimOutcome>, StoreError> {
        let (relay, request, us) = (self.relay, self.request, self.relay.registration);
        let settle = micros(request.settle);
        let name = statements.lock_and_revoke(relay, settle).await?;
        let Some((address, mut found)) = statements.look().await? else {
            return Ok(None);
        };
        if request.is_elsewhere(OPERATION, &address)? {
            let shares = self.shares(statements).await?;
            if shares.is_served_beside(us) {
                return Ok(Some(ClaimOutcome::Elsewhere { address, shares }));
            }
        }
        if request.needs_relays_that_know_its_order()
            && let Some(older) = statements.older_relay().await?
        {
            return Err(request.beside_older(OPERATION, &older));
        }
        let (finer, count) = (found.finer(), found.wanted_count);
        if let Some(finer) = finer {
            let cut = Cut::Finer(finer);
            statements.recut(cut, count, &name, relay).await?;
            let anew = statements.look().await?;
            (_, found) = anew.ok_or_else(|| bug("no cursor".into()))?;
        }
        let mut changes = found.share_out(us, request, finer);
        for change in changes.iter_mut().filter(|change| change.splits()) {
            change.free_row = statements.split(change).await?;
        }
        let decision = ClaimDecision::new(found, us, &changes);
        let apply = Apply {
            relay,
            name: &name,
            request,
            decision: &decision,
        };
        statements.apply(&apply).await?;
        if let Some(coarser) = decision.coarser() {
            let cut = Cut::Coarser(coarser);
            statements.recut(cut, count, &name, relay).await?;
        }
        let (shares, epoch) = (self.shares(statements).await?, decision.epoch);
        let grant = |cursor_id, _: &Partitions| -> Arc<dyn Any + Send + Sync> {
            Arc::new(Grant {
                destination_id: self.destination_id,
                cursor_id,
                epoch,
                registration: us,
                token: self.token,
                order_by: OrderBy::of_target(request.address).0,
                proven: self.proven,
            })
        };
        let outcome = decision.outcome(self.destination_id, request, shares, grant);
        outcome.map(Some)
    }

    async fn shares(&self, statements: &dyn ClaimTransaction) -> Result<Shares, StoreError> {
        let destination = self.request.destination;
        let shares = statements.shares(destination).await?;
        shares.ok_or_else(|| bug(format!("`{destination}` has no shares")))
    }
}

pub(super) fn none_of(count: i32) -> Result<Partitions, StoreError> {
    Partitions::none_of(number(count)?).map_err(bug)
}

/// A partition's number, or how many there are.
pub(super) fn number(number: i32) -> Result<u16, StoreError> {
    u16::try_from(number).map_err(|_| bug(format!("there is no partition {number}")))
}
