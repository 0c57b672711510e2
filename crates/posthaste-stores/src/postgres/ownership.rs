//! Leases, and who serves which destination. The database's clock decides.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_engine::{
    ClaimOutcome, ClaimRequest, Leases, Ownership, Registered, Registration, RelayReport, Renewal,
    Shares, StoreError, audit, with_audit_words,
};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{
    PostgresStore, check,
    claim::{self, lock_and_revoke, refill_incarnation, with_fragments},
    client::Client,
    error::classify,
    locks::{Lock, name_holder},
    micros::micros,
    schema::LEVEL,
    shares::{by_destination, shares_of, with_shares},
};
use crate::held_places;

const REGISTER: &str = include_str!("sql/register.sql");
const RENEW: &str = include_str!("sql/renew.sql");
const FENCE: &str = include_str!("sql/fence.sql");
const LEAVE_LOCK: &str = include_str!("sql/leave_lock.sql");
const LEAVE_LOOK: &str = include_str!("sql/leave_look.sql");
const LEAVE: &str = include_str!("sql/leave.sql");
const ANNOUNCE_LEAVING: &str = include_str!("sql/announce_leaving.sql");
const DESTINATION_ID: &str =
    "select id from posthaste.destinations where name = $1 and state <> 'removed'";

#[async_trait]
impl Leases for PostgresStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let client = self.ownership.client().await?;
        check::min_relay(&client, "register").await?;
        let id = Uuid::new_v4();
        let host = &registration.host;
        let started = i64::try_from(host.process_started).unwrap_or(i64::MAX);
        refill_incarnation(&client, id).await?;
        client
            .execute_typed(
                REGISTER,
                &[
                    (&id, Type::UUID),
                    (&registration.name, Type::TEXT),
                    (&registration.version, Type::TEXT),
                    (&micros(registration.lease), Type::INT8),
                    (&host.boot_id, Type::TEXT),
                    (&host.pid_namespace, Type::TEXT),
                    (&i64::from(host.pid), Type::INT8),
                    (&started, Type::INT8),
                    (&LEVEL, Type::INT4),
                ],
            )
            .await
            .map_err(|error| classify("register", error))?;
        Ok(Registered { registration: id })
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        const OPERATION: &str = "renew";
        let rates = report.values().map(|of| of.accepted_per_second);
        let rates: Vec<f64> = rates.collect();
        let client = self.ownership.client().await?;
        let rows = client
            .query_typed(
                &with_shares(RENEW),
                &[
                    (&relay.registration, Type::UUID),
                    (&micros(lease), Type::INT8),
                    (&report.keys().collect::<Vec<_>>(), Type::TEXT_ARRAY),
                    (&rates, Type::FLOAT8_ARRAY),
                    (&held_places::written(report), Type::TEXT),
                ],
            )
            .await
            .map_err(|error| classify(OPERATION, error))?;
        let first = rows.first().ok_or(StoreError::Fenced {
            operation: OPERATION,
        })?;
        check::refuse_older_relay(OPERATION, first.get("min_relay"))?;
        Ok(Renewal {
            destinations: by_destination(&rows),
        })
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        const OPERATION: &str = "fence";
        let client = self.ownership.client().await?;
        let myself = client
            .query_typed_opt(
                &with_audit_words(FENCE),
                &[
                    (&by.registration, Type::UUID),
                    (&dead, Type::UUID),
                    (&why, Type::TEXT),
                ],
            )
            .await
            .map_err(|error| classify(OPERATION, error))?;
        unless_fenced(OPERATION, myself.is_some())
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        const OPERATION: &str = "announce to leave";
        let client = self.ownership.client().await?;
        let myself = client
            .query_typed_opt(ANNOUNCE_LEAVING, &[(&relay.registration, Type::UUID)])
            .await
            .map_err(|error| classify(OPERATION, error))?;
        unless_fenced(OPERATION, myself.is_some())
    }

    /// A fenced relay has nothing to release: its successor has to settle.
    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let mut client = self.claims.client().await?;
        let left = leave(&mut client, audit::RELEASE.action, relay, None, unsettled);
        unless_fenced("release", left.await?)
    }
}

#[async_trait]
impl Ownership for PostgresStore {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        claim::claim(&mut *self.claims.client().await?, relay, request).await
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "revoke";
        let failed = |error| classify(OPERATION, error);
        let mut client = self.claims.client().await?;
        let found = client
            .query_typed_opt(DESTINATION_ID, &[(&destination, Type::TEXT)])
            .await
            .map_err(failed)?;
        let transaction = client.transaction().await.map_err(failed)?;
        let revoked = lock_and_revoke(
            transaction.client(),
            relay,
            found.map(|row| row.get(0)),
            micros(settle),
            OPERATION,
        );
        if let Err(error) = revoked.await {
            drop(transaction);
            return Err(name_holder(&client, Lock::Destination(Some(destination)), error).await);
        }
        transaction.commit().await.map_err(failed)
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        const OPERATION: &str = "look at the shares";
        let client = self.ownership.client().await?;
        let shares = shares_of(&client, OPERATION, destination).await?;
        shares.ok_or_else(|| StoreError::no_destination(OPERATION, destination))
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let mut client = self.claims.client().await?;
        let left = leave(
            &mut client,
            audit::WITHDRAW.action,
            relay,
            Some(destination),
            unsettled,
        );
        unless_fenced("withdraw", left.await?)
    }
}

/// Gives up all of one destination, or of all of them and the registration. False: it is fenced.
async fn leave(
    client: &mut Client,
    operation: &'static str,
    relay: Registered,
    destination: Option<&str>,
    unsettled: Duration,
) -> Result<bool, StoreError> {
    let failed = |error| classify(operation, error);
    let transaction = client.transaction().await.map_err(failed)?;
    let who = [
        (&relay.registration as _, Type::UUID),
        (&destination as _, Type::TEXT),
    ];
    if let Err(error) = transaction.query_typed(LEAVE_LOCK, &who).await {
        drop(transaction);
        return Err(name_holder(client, Lock::Destination(destination), failed(error)).await);
    }
    let myself = transaction
        .query_typed_opt(LEAVE_LOOK, &who)
        .await
        .map_err(failed)?;
    let Some(myself) = myself else {
        return Ok(false);
    };
    let (name, owned): (&str, Vec<i64>) = (myself.get("name"), myself.get("owned"));
    transaction
        .execute_typed(
            &with_fragments(LEAVE),
            &[
                (&destination, Type::TEXT),
                (&relay.registration, Type::UUID),
                (&name, Type::TEXT),
                (&operation, Type::TEXT),
                (&destination.is_none(), Type::BOOL),
                (&owned, Type::INT8_ARRAY),
                (&micros(unsettled), Type::INT8),
            ],
        )
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(true)
}

fn unless_fenced(operation: &'static str, live: bool) -> Result<(), StoreError> {
    live.then_some(()).ok_or(StoreError::Fenced { operation })
}
