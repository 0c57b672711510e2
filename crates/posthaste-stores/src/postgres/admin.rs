//! The operators' side: status, parked events, the audit.

mod rows;

use std::time::Duration;

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, HAND_OVERS, PAUSED_PLACES_MAX, ParkedEvent,
    ParkedFilter, ParkedState, Status, StoreError, Wanted, audit, with_audit_words,
};
use tokio_postgres::types::Type;

use super::{
    PostgresStore,
    claim::with_fragments,
    client::Client,
    error::classify,
    holds_key::with_holds_key,
    locks::{Lock, name_holder},
    micros::{from_micros, unsigned},
    ordering::with_order,
    parking::PARKED_AT_ONCE,
    retention::retained,
};
use rows::{audit_line, by_relay, destination, parked};

const STATUS_DESTINATIONS: &str = include_str!("sql/status_destinations.sql");
const STATUS_PENDING: &str = include_str!("sql/status_pending.sql");
const STATUS_RELAYS: &str = include_str!("sql/status_relays.sql");
const STATUS_TABLE: &str = include_str!("sql/status_table.sql");
const PARKED: &str = include_str!("sql/parked.sql");
const DEAD_ACT: &str = include_str!("sql/dead_act.sql");
const DEAD_ADOPT: &str = include_str!("sql/dead_adopt.sql");
const SHARES_LOCK_BY_NAME: &str = include_str!("sql/shares_lock_by_name.sql");
const HAND_OVERS_READ: &str = include_str!("sql/hand_overs.sql");
const DESTINATION_SET: &str = include_str!("sql/destination_set.sql");
const PLACE_SET: &str = include_str!("sql/place_set.sql");
const DESTINATION_HELD: &str = include_str!("sql/destination_held.sql");

/// Counting stops here; beyond it an upper bound is told.
const PENDING_EXACT_MAX: i64 = 100_000;
/// Rows that are looked at for that, so that a status never reads the whole outbox.
const CANDIDATES_MAX: i64 = 1_000_000;
/// Each lost race means that a relay came or went.
const RACES_MAX: u32 = 8;

/// A count of pending events.
struct Pending {
    events: u64,
    exact: bool,
    oldest_age: Option<Duration>,
}

/// Counts events that at least one of the destinations has not finished, from `start` on.
async fn pending(
    client: &Client,
    destinations: &[i64],
    start: i64,
    sequence: i64,
) -> Result<Pending, StoreError> {
    let row = client
        .query_typed_one(
            &with_order(STATUS_PENDING),
            &[
                (&destinations, Type::INT8_ARRAY),
                (&start, Type::INT8),
                (&CANDIDATES_MAX, Type::INT8),
                (&(PENDING_EXACT_MAX + 1), Type::INT8),
            ],
        )
        .await
        .map_err(|error| classify("status", error))?;
    let (candidates, counted): (i64, i64) = (row.get("candidates"), row.get("pending"));
    let exact = candidates < CANDIDATES_MAX && counted <= PENDING_EXACT_MAX;
    Ok(Pending {
        // No row that is not finished lies at or below the start, none above the sequence's value.
        events: unsigned(if exact { counted } else { sequence - start }),
        exact,
        oldest_age: row.get::<_, Option<i64>>("oldest_age").map(from_micros),
    })
}

#[async_trait]
impl Admin for PostgresStore {
    async fn status(&self) -> Result<Status, StoreError> {
        let client = self.admin.client().await?;
        let failed = |error| classify("status", error);
        let rows = client
            .query_typed(&with_fragments(STATUS_DESTINATIONS), &[])
            .await
            .map_err(failed)?;
        let relays = client.query_typed(STATUS_RELAYS, &[]).await;
        let relays = relays.map_err(failed)?;
        let table = client.query_typed_one(STATUS_TABLE, &[]).await;
        let table = table.map_err(failed)?;
        // Read after the cursors, so that it is not below anything that they have not passed.
        let sequence: i64 = table.get("sequence");
        let mut counts = Vec::with_capacity(rows.len());
        for row in &rows {
            let (id, start): (i64, i64) = (row.get("id"), row.get("start"));
            counts.push(pending(&client, &[id], start, sequence).await?);
        }
        let destinations = rows.iter().zip(&counts).map(|(r, p)| destination(r, p));
        let destinations: Vec<_> = destinations.collect();
        let all = if counts.len() == 1 {
            counts.remove(0)
        } else {
            let ids: Vec<i64> = rows.iter().map(|row| row.get("id")).collect();
            let start = rows.iter().map(|row| row.get("start")).min();
            pending(&client, &ids, start.unwrap_or(sequence), sequence).await?
        };
        Ok(Status {
            pending: all.events,
            pending_exact: all.exact,
            oldest_pending_age: all.oldest_age,
            destinations,
            relays: by_relay(&relays),
            retained_bytes: unsigned(table.get("bytes")),
            retained: retained(&client, &self.emptied).await?,
        })
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        let client = self.admin.client().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client
            .query_typed(
                HAND_OVERS_READ,
                &[(&&HAND_OVERS[..], Type::TEXT_ARRAY), (&limit, Type::INT8)],
            )
            .await
            .map_err(|error| classify("list hand-overs", error))?;
        Ok(rows.iter().map(audit_line).collect())
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let client = self.admin.client().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client
            .query_typed(
                &with_order(&with_holds_key(PARKED)),
                &[
                    (&filter.destination, Type::TEXT),
                    (&filter.id, Type::UUID),
                    (&filter.key, Type::TEXT),
                    (&states(filter), Type::TEXT_ARRAY),
                    (&limit, Type::INT8),
                ],
            )
            .await
            .map_err(|error| classify("list parked events", error))?;
        rows.iter().map(parked).collect()
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        let client = self.admin.client().await?;
        let state = match action {
            DeadAction::Retry => ParkedState::Parked,
            DeadAction::Skip => ParkedState::Skipped,
            DeadAction::Discard => ParkedState::Discarded,
        };
        if filter.undoes_skipping(action) {
            adopt(&client, filter).await?;
        }
        let (mut all, mut behind) = (0, 0_i64);
        loop {
            let row = client
                .query_typed_one(
                    &with_order(&with_audit_words(DEAD_ACT)),
                    &[
                        (&filter.destination, Type::TEXT),
                        (&filter.id, Type::UUID),
                        (&filter.key, Type::TEXT),
                        (&states(filter), Type::TEXT_ARRAY),
                        (&state.as_str(), Type::TEXT),
                        (&audit::acted(action).action, Type::TEXT),
                        (&behind, Type::INT8),
                        (&PARKED_AT_ONCE, Type::INT8),
                    ],
                )
                .await
                .map_err(|error| classify(action.as_str(), error))?;
            let acted: i64 = row.get("acted");
            all += unsigned(acted);
            if acted < PARKED_AT_ONCE {
                return Ok(all);
            }
            behind = row.get("last");
        }
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "set the destination";
        let mut client = self.admin.client().await?;
        let failed = |error| classify(OPERATION, error);
        let (mut tries, mut closed) = (1, 0_i64);
        loop {
            let transaction = client.transaction().await.map_err(failed)?;
            // Not while somebody claims it.
            let locked = transaction
                .query_typed(SHARES_LOCK_BY_NAME, &[(&name, Type::TEXT)])
                .await;
            if let Err(error) = locked {
                drop(transaction);
                let lock = Lock::Destination(Some(name));
                return Err(name_holder(&client, lock, failed(error)).await);
            }
            let row = transaction
                .query_typed_one(
                    &with_audit_words(DESTINATION_SET),
                    &[
                        (&name, Type::TEXT),
                        (&state.as_str(), Type::TEXT),
                        (&closed, Type::INT8),
                        (&PARKED_AT_ONCE, Type::INT8),
                    ],
                )
                .await
                .map_err(failed)?;
            transaction.commit().await.map_err(failed)?;
            if row.get("changed") {
                return Ok(true);
            }
            let more: i64 = row.get("closed");
            if more > 0 {
                closed += more;
                continue;
            }
            let held = client
                .query_typed_opt(DESTINATION_HELD, &[(&name, Type::TEXT)])
                .await
                .map_err(failed)?;
            let Some(held) = held else { return Ok(false) };
            match (state, held.get::<_, Option<String>>(0)) {
                (DestinationState::Removed, Some(relay)) => {
                    return Err(StoreError::is_held(
                        OPERATION,
                        name,
                        &relay,
                        unsigned(closed),
                    ));
                }
                // A lease ended between the two statements: the first is worth another try.
                (DestinationState::Removed, None) if tries < RACES_MAX => tries += 1,
                (DestinationState::Removed, None) => {
                    return Err(StoreError::Unavailable {
                        operation: OPERATION,
                        reason: format!("relays claim and lose `{name}` at the same time"),
                        source: None,
                    });
                }
                // It is as it should be already.
                _ => return Ok(true),
            }
        }
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        const OPERATION: &str = "pause a place";
        let client = self.admin.client().await?;
        let most = i32::try_from(PAUSED_PLACES_MAX).unwrap_or(i32::MAX);
        let row = client
            .query_typed_opt(
                &with_audit_words(PLACE_SET),
                &[
                    (&name, Type::TEXT),
                    (&place, Type::TEXT),
                    (&paused, Type::BOOL),
                    (&most, Type::INT4),
                ],
            )
            .await;
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                let lock = Lock::Destination(Some(name));
                return Err(name_holder(&client, lock, classify(OPERATION, error)).await);
            }
        };
        let Some(row) = row else { return Ok(false) };
        match row.get("is_full") {
            true => Err(Wanted::too_many_paused(OPERATION)),
            false => Ok(true),
        }
    }
}

/// The states that a filter means; those that still wait, unless it names one.
fn states(filter: &ParkedFilter) -> Vec<&'static str> {
    match filter.state {
        Some(state) => vec![state.as_str()],
        None => vec![ParkedState::Parked.as_str(), ParkedState::Dead.as_str()],
    }
}

/// Skipped copies of removed destinations go to those that have their names.
async fn adopt(client: &Client, filter: &ParkedFilter) -> Result<(), StoreError> {
    let mut behind = Some(0_i64);
    while let Some(after) = behind {
        let row = client
            .query_typed_one(
                &with_order(&with_fragments(DEAD_ADOPT)),
                &[
                    (&filter.destination, Type::TEXT),
                    (&filter.id, Type::UUID),
                    (&filter.key, Type::TEXT),
                    (&PARKED_AT_ONCE, Type::INT8),
                    (&after, Type::INT8),
                ],
            )
            .await
            .map_err(|error| classify(DeadAction::Retry.as_str(), error))?;
        behind = row.get("behind");
    }
    Ok(())
}
