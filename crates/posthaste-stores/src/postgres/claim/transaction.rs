//! The statements of a claim, inside its transaction and before it.

use async_trait::async_trait;
use posthaste_engine::{
    ClaimOutcome, ClaimRequest, DestinationFound, GroupFound, Registered, ShareChange, Shares,
    Start, StoreError, with_audit_words,
};
use tokio_postgres::{Client as Driver, Row, types::Type};
use uuid::Uuid;

use super::{Apply, ClaimTransaction, Claiming, Cut, OPERATION, RACES_MAX, comes_and_goes, number};
use crate::postgres::{
    check,
    client::Client,
    error::classify,
    locks::{Lock, RETENTION, name_holder},
    micros::{from_micros, micros},
    parking::PARKED_AT_ONCE,
    shares::{shares_within, wanted},
};

const INCARNATION_REFILL: &str = include_str!("../sql/incarnation_refill.sql");
const CLAIM_BEFORE: &str = include_str!("../sql/claim_before.sql");
const SHARES_LOCK: &str = include_str!("../sql/shares_lock.sql");
const CURSORS_LOCK: &str = include_str!("../sql/cursors_lock.sql");
const FENCE_EXPIRED: &str = include_str!("../sql/fence_expired.sql");
const REVOKE: &str = include_str!("../sql/revoke.sql");
const CLAIM_LOOK: &str = include_str!("../sql/claim_look.sql");
const CLAIM_SPLIT: &str = include_str!("../sql/claim_split.sql");
const CLAIM_APPLY: &str = include_str!("../sql/claim_apply.sql");
const RELEASE: &str = include_str!("../sql/release.sql");
const BREAKER: &str = include_str!("../sql/breaker.sql");
const RECUT_FINER: &str = include_str!("../sql/recut_finer.sql");
const RECUT_COARSER: &str = include_str!("../sql/recut_coarser.sql");
const RECUT_DONE: &str = include_str!("../sql/recut_done.sql");
const COPIES_READ_AGAIN: &str = include_str!("../sql/copies_read_again.sql");
const PASSED_NOTHING: &str = include_str!("../sql/passed_nothing.sql");
const OLDER_RELAY: &str = include_str!("../sql/older_relay.sql");
const DESTINATION_CREATE: &str = include_str!("../sql/destination_create.sql");

/// A statement whose text has its fragments filled in.
pub(in crate::postgres) fn with_fragments(sql: &str) -> String {
    with_audit_words(sql)
        .replace("{release}", RELEASE)
        .replace("{breaker}", BREAKER)
        .replace("{passed_nothing}", PASSED_NOTHING)
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    classify(OPERATION, error)
}

/// Gives the database's counters a token where a crash took it away.
pub(in crate::postgres) async fn refill_incarnation(
    client: &Client,
    by: Uuid,
) -> Result<(), StoreError> {
    client
        .execute_typed(&with_audit_words(INCARNATION_REFILL), &[(&by, Type::UUID)])
        .await
        .map(drop)
        .map_err(failed)
}

pub(in crate::postgres) async fn claim(
    client: &mut Client,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<ClaimOutcome, StoreError> {
    check::refuse_copy(client, OPERATION).await?;
    refill_incarnation(client, relay.registration).await?;
    for _ in 0..RACES_MAX {
        // Received before the claim's own transaction is sent: see `Grant::proven`.
        let before = client
            .query_typed_one(
                &with_fragments(CLAIM_BEFORE),
                &[
                    (&request.destination, Type::TEXT),
                    (&relay.registration, Type::UUID),
                ],
            )
            .await
            .map_err(failed)?;
        let Some(destination_id) = before.get::<_, Option<i64>>("destination_id") else {
            if !before.get::<_, bool>("may_create") {
                return Err(StoreError::Fenced {
                    operation: OPERATION,
                });
            }
            create(client, relay, request).await?;
            continue;
        };
        if before.get("reads_again") {
            discard_read_again(client, relay, destination_id).await?;
        }
        let token: Option<Uuid> = before.get("token");
        let transaction = client.transaction().await.map_err(failed)?;
        let statements = Transaction {
            client: transaction.client(),
            destination_id,
        };
        let claim = Claiming {
            relay,
            request,
            destination_id,
            token: token.ok_or(StoreError::IncarnationChanged {
                operation: OPERATION,
            })?,
            proven: before.get("sequence"),
        };
        match claim.run(&statements).await {
            Ok(Some(outcome)) => {
                transaction.commit().await.map_err(failed)?;
                return Ok(outcome);
            }
            Ok(None) => {}
            Err(error) => {
                drop(transaction);
                let lock = Lock::Destination(Some(request.destination));
                return Err(name_holder(client, lock, error).await);
            }
        }
    }
    Err(comes_and_goes(request.destination))
}

/// Creates the destination where it starts; somebody else's creation counts as well.
async fn create(
    client: &mut Client,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<(), StoreError> {
    let failed = |error| classify("create the destination", error);
    let transaction = client.transaction().await.map_err(failed)?;
    if let Err(error) = transaction.batch_execute(RETENTION).await {
        drop(transaction);
        return Err(name_holder(client, Lock::Retention, failed(error)).await);
    }
    transaction
        .execute_typed(
            &with_audit_words(DESTINATION_CREATE),
            &[
                (&request.destination, Type::TEXT),
                (&(request.start == Start::Now), Type::BOOL),
                (&relay.registration, Type::UUID),
            ],
        )
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Discards copies of events that the destination reads itself, in as many transactions as it
/// takes: a claim that is given up meanwhile goes on where it was. They are discarded after its
/// creation, since from then on it keeps the events in the outbox, and before the first of its
/// claims is granted, since it passes them then.
async fn discard_read_again(
    client: &Client,
    relay: Registered,
    destination_id: i64,
) -> Result<(), StoreError> {
    let mut behind = Some(0_i64);
    while let Some(after) = behind {
        let row = client
            .query_typed_one(
                &with_fragments(COPIES_READ_AGAIN),
                &[
                    (&destination_id, Type::INT8),
                    (&PARKED_AT_ONCE, Type::INT8),
                    (&relay.registration, Type::UUID),
                    (&after, Type::INT8),
                ],
            )
            .await
            .map_err(failed)?;
        behind = row.get("behind");
    }
    Ok(())
}

/// Waits for the destination's lock, then frees what dead relays own of it; answers our name.
/// Without a destination there is nothing to free, and a fenced relay is still told so.
pub(in crate::postgres) async fn lock_and_revoke(
    client: &Driver,
    relay: Registered,
    destination_id: Option<i64>,
    settle: i64,
    operation: &'static str,
) -> Result<String, StoreError> {
    let failed = |error| classify(operation, error);
    let destination = (&destination_id as _, Type::INT8);
    let us = (&relay.registration as _, Type::UUID);
    let locked = client
        .query_typed(SHARES_LOCK, std::slice::from_ref(&destination))
        .await
        .map_err(failed)?;
    if let (Some(id), true) = (destination_id, locked.is_empty()) {
        return Err(StoreError::Bug {
            operation,
            reason: format!("destination {id} has no row in posthaste.destination_locks"),
        });
    }
    let myself = client
        .query_typed_opt(
            &with_audit_words(FENCE_EXPIRED),
            &[us.clone(), destination.clone()],
        )
        .await
        .map_err(failed)?;
    let Some(myself) = myself else {
        return Err(StoreError::Fenced { operation });
    };
    client
        .query_typed(CURSORS_LOCK, std::slice::from_ref(&destination))
        .await
        .map_err(failed)?;
    client
        .execute_typed(REVOKE, &[destination, us, (&settle, Type::INT8)])
        .await
        .map_err(failed)?;
    Ok(myself.get("name"))
}

/// One claim's transaction.
struct Transaction<'a> {
    client: &'a Driver,
    destination_id: i64,
}

#[async_trait]
impl ClaimTransaction for Transaction<'_> {
    async fn lock_and_revoke(&self, relay: Registered, settle: i64) -> Result<String, StoreError> {
        lock_and_revoke(
            self.client,
            relay,
            Some(self.destination_id),
            settle,
            OPERATION,
        )
        .await
    }

    async fn look(&self) -> Result<Option<(String, DestinationFound)>, StoreError> {
        let sql = with_fragments(CLAIM_LOOK);
        let destination = (&self.destination_id as _, Type::INT8);
        let rows = self.client.query_typed(&sql, &[destination]).await;
        let rows = rows.map_err(failed)?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let found = DestinationFound {
            count: number(first.get("count"))?,
            wanted_count: number(first.get("wanted_count"))?,
            epoch: first.get("epoch"),
            wanted: wanted(first),
            breaker_open: first.get("breaker_open"),
            store_id: first.get("store_id"),
            groups: rows.iter().map(found_group).collect::<Result<_, _>>()?,
        };
        Ok(Some((first.get("address"), found)))
    }

    async fn recut(
        &self,
        cut: Cut,
        count: u16,
        name: &str,
        relay: Registered,
    ) -> Result<(), StoreError> {
        let (sql, factor) = match cut {
            Cut::Finer(factor) => (RECUT_FINER, factor),
            Cut::Coarser(factor) => (RECUT_COARSER, factor),
        };
        let destination = (&self.destination_id as _, Type::INT8);
        self.client
            .execute_typed(
                sql,
                &[destination.clone(), (&i32::from(factor), Type::INT4)],
            )
            .await
            .map_err(failed)?;
        self.client
            .execute_typed(
                &with_audit_words(RECUT_DONE),
                &[
                    destination,
                    (&i32::from(count), Type::INT4),
                    (&name, Type::TEXT),
                    (&relay.registration, Type::UUID),
                ],
            )
            .await
            .map(drop)
            .map_err(failed)
    }

    async fn split(&self, change: &ShareChange) -> Result<i64, StoreError> {
        let free: Vec<i32> = change.free.iter().copied().map(i32::from).collect();
        let row = self
            .client
            .query_typed_one(
                CLAIM_SPLIT,
                &[(&change.id, Type::INT8), (&free, Type::INT4_ARRAY)],
            )
            .await
            .map_err(failed)?;
        Ok(row.get("id"))
    }

    async fn apply(&self, apply: &Apply<'_>) -> Result<(), StoreError> {
        let decision = apply.decision;
        let (actions, details): (Vec<&str>, Vec<&str>) = decision
            .notes
            .iter()
            .map(|(action, detail)| (*action, detail.as_str()))
            .unzip();
        self.client
            .execute_typed(
                &with_fragments(CLAIM_APPLY),
                &[
                    (&self.destination_id, Type::INT8),
                    (&apply.relay.registration, Type::UUID),
                    (&apply.name, Type::TEXT),
                    (&decision.epoch, Type::INT8),
                    (&decision.owned, Type::INT8_ARRAY),
                    (&decision.given_up, Type::INT8_ARRAY),
                    (&micros(apply.request.unsettled), Type::INT8),
                    (&i32::from(apply.request.partitions_max), Type::INT4),
                    (&apply.request.address, Type::TEXT),
                    (&decision.moves, Type::BOOL),
                    (&actions, Type::TEXT_ARRAY),
                    (&details, Type::TEXT_ARRAY),
                ],
            )
            .await
            .map(drop)
            .map_err(failed)
    }

    async fn older_relay(&self) -> Result<Option<String>, StoreError> {
        /// The first one that knows the order of a key and a topic.
        const LEVEL: i32 = 9;
        let rows = self
            .client
            .query_typed(OLDER_RELAY, &[(&LEVEL, Type::INT4)]);
        let rows = rows.await.map_err(failed)?;
        Ok(rows.first().map(|row| row.get("name")))
    }

    async fn shares(&self, destination: &str) -> Result<Option<Shares>, StoreError> {
        shares_within(self.client, OPERATION, destination).await
    }
}

fn found_group(row: &Row) -> Result<GroupFound, StoreError> {
    let partitions: Vec<i32> = row.get("partitions");
    Ok(GroupFound {
        id: row.get("id"),
        owner: row.get("relay"),
        partitions: partitions
            .into_iter()
            .map(number)
            .collect::<Result<_, _>>()?,
        settling: from_micros(row.get("settling")),
        former: row.get("former"),
        left_by: row.get("left_by"),
        left_name: row.get("left_name"),
        left_dead: row.get("left_dead"),
    })
}
