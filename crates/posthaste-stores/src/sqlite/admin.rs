//! The operators' side: status, parked events, the audit.

use std::sync::LazyLock;

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, HAND_OVERS, OrderBy, ParkedEvent, ParkedFilter,
    ParkedState, Status, StoreError, audit as words,
};
use rusqlite::{Row, Transaction, named_params};
use serde_json::json;

use super::{
    SqliteStore, audit,
    connection::{all, clock, execute, limit_of},
    destination::{COPIES_A_TRANSACTION, Found, close_parked, end_progress, find},
    error::{classify, unexpected},
    holds_key::with_holds_key,
    ordering::with_order,
    row,
    status::status,
};
use crate::about::About;

static PARKED_LIST: LazyLock<String> =
    LazyLock::new(|| with_order(&with_holds_key(include_str!("sql/parked_list.sql"))));
static ACT_ADOPT: LazyLock<String> =
    LazyLock::new(|| with_order(include_str!("sql/act_adopt.sql")));
static ACT_CANDIDATES: LazyLock<String> =
    LazyLock::new(|| with_order(include_str!("sql/act_candidates.sql")));

/// Parked events that one transaction acts upon, so that writers are never kept waiting.
const ACTS_A_TRANSACTION: usize = 200;

#[async_trait]
impl Admin for SqliteStore {
    async fn status(&self) -> Result<Status, StoreError> {
        const OPERATION: &str = "read the status";
        self.admin(OPERATION)
            .await?
            .read(OPERATION, |tx| status(tx, OPERATION))
            .await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        const OPERATION: &str = "read the audit";
        self.admin(OPERATION)
            .await?
            .read(OPERATION, move |tx| hand_overs(tx, OPERATION, limit))
            .await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        const OPERATION: &str = "list parked events";
        let filter = filter.clone();
        self.admin(OPERATION)
            .await?
            .read(OPERATION, move |tx| {
                let fail = |error| classify(OPERATION, error);
                let mut statement = tx.prepare_cached(&PARKED_LIST).map_err(fail)?;
                let mut rows = statement
                    .query(named_params! {
                        ":destination": filter.destination,
                        ":event_id": filter.id.map(|id| id.to_string()),
                        ":key": filter.key,
                        ":state": filter.state.map(ParkedState::as_str),
                        ":limit": limit_of(limit),
                    })
                    .map_err(fail)?;
                let mut parked = Vec::new();
                while let Some(row) = rows.next().map_err(fail)? {
                    parked.push(parked_event(OPERATION, row)?);
                }
                Ok(parked)
            })
            .await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        const OPERATION: &str = "act on parked events";
        let admin = self.admin(OPERATION).await?;
        if filter.undoes_skipping(action) {
            let mut after = Some(0);
            while let Some(behind) = after {
                let filter = filter.clone();
                let write = move |tx: &Transaction<'_>| adopt(tx, OPERATION, &filter, behind);
                after = admin.write(OPERATION, write).await?;
            }
        }
        let mut acted = 0;
        let mut after = 0;
        loop {
            let filter = filter.clone();
            let ids = admin
                .write(OPERATION, move |tx| {
                    act(tx, OPERATION, &filter, action, after)
                })
                .await?;
            acted += u64::try_from(ids.len()).unwrap_or(u64::MAX);
            match ids.last() {
                Some(&last) => after = last,
                None => return Ok(acted),
            }
        }
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "change a destination";
        let admin = self.admin(OPERATION).await?;
        let mut closed = 0;
        loop {
            let name = name.to_owned();
            let set = admin.write(OPERATION, move |tx| {
                set_destination(tx, OPERATION, &name, state, closed)
            });
            match set.await? {
                Set::Emptied(more) => closed += more,
                Set::Done => return Ok(true),
                Set::Unknown => return Ok(false),
            }
        }
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        const OPERATION: &str = "pause a place";
        let (name, place) = (name.to_owned(), place.to_owned());
        self.admin(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                set_place(tx, OPERATION, &name, (&place, paused))
            })
            .await
    }
}

fn set_place(
    tx: &Transaction<'_>,
    operation: &'static str,
    name: &str,
    (place, paused): (&str, bool),
) -> Result<bool, StoreError> {
    let Some(Found { id, mut wanted, .. }) = find(tx, operation, name)? else {
        return Ok(false);
    };
    if !wanted.set_place(place, paused, operation)? {
        return Ok(true);
    }
    execute(
        tx,
        operation,
        include_str!("sql/place_set.sql"),
        named_params! { ":id": id, ":places": json!(wanted.paused_places).to_string() },
    )?;
    let about = About {
        destination: Some(name),
        ..About::default()
    };
    audit::write(tx, operation, words::place_set(paused), about, &[&place])?;
    Ok(true)
}

/// How far a change of a destination's state has come.
enum Set {
    /// It is not removed yet: so many of its parked events were closed first.
    Emptied(usize),
    Done,
    /// There is no destination of this name.
    Unknown,
}

/// Changes the state, or goes on to: `closed` parked events are closed already.
fn set_destination(
    tx: &Transaction<'_>,
    operation: &'static str,
    name: &str,
    state: DestinationState,
    mut closed: usize,
) -> Result<Set, StoreError> {
    let Some(Found { id, .. }) = find(tx, operation, name)? else {
        return Ok(Set::Unknown);
    };
    let about = About {
        destination: Some(name),
        ..About::default()
    };
    if state == DestinationState::Removed {
        let more = close_parked(tx, operation, (id, name), closed)?;
        if more == COPIES_A_TRANSACTION {
            let words = words::DESTINATION_EMPTIED;
            audit::write(tx, operation, words, about, &[&more])?;
            return Ok(Set::Emptied(more));
        }
        closed += more;
        end_progress(tx, operation, id)?;
    }
    execute(
        tx,
        operation,
        include_str!("sql/destination_state.sql"),
        named_params! { ":id": id, ":state": state.as_str() },
    )?;
    let words = words::destination_set(state);
    audit::write(tx, operation, words, about, &[&closed])?;
    Ok(Set::Done)
}

fn hand_overs(
    tx: &Transaction<'_>,
    operation: &'static str,
    limit: usize,
) -> Result<Vec<AuditLine>, StoreError> {
    let line = |row: &Row<'_>| {
        Ok(AuditLine {
            at: row.get(0)?,
            action: row.get(1)?,
            relay: row.get(2)?,
            destination: row.get(3)?,
            detail: row.get(4)?,
        })
    };
    // Plain words: Rust quotes them as JSON does.
    let actions = format!("{HAND_OVERS:?}");
    tx.prepare_cached(include_str!("sql/hand_overs.sql"))
        .and_then(|mut statement| {
            let of = named_params! { ":actions": actions, ":limit": limit_of(limit) };
            statement.query_map(of, line)?.collect()
        })
        .map_err(|error| classify(operation, error))
}

fn parked_event(operation: &'static str, row: &Row<'_>) -> Result<ParkedEvent, StoreError> {
    let fail = |error| classify(operation, error);
    let state: String = row.get(row::BEHIND + 1).map_err(fail)?;
    let target: String = row.get(row::BEHIND + 8).map_err(fail)?;
    let (order_by, _) = OrderBy::of_target(&target);
    Ok(ParkedEvent {
        destination: row.get(row::BEHIND).map_err(fail)?,
        state: ParkedState::from_name(&state)
            .ok_or_else(|| unexpected(operation, format!("a parked event in state `{state}`")))?,
        attempts: row.get(row::BEHIND + 2).map_err(fail)?,
        kind: row.get(row::BEHIND + 3).map_err(fail)?,
        reason: row.get(row::BEHIND + 4).map_err(fail)?,
        parked_at: row.get(row::BEHIND + 5).map_err(fail)?,
        due_at: row.get(row::BEHIND + 6).map_err(fail)?,
        holds_key: row.get(row::BEHIND + 7).map_err(fail)?,
        event: row::copy(operation, order_by, row)?,
    })
}

/// Adopts the next skipped copies behind `after`; answers the last one's id.
fn adopt(
    tx: &Transaction<'_>,
    operation: &'static str,
    filter: &ParkedFilter,
    after: i64,
) -> Result<Option<i64>, StoreError> {
    let of = named_params! {
        ":after": after,
        ":destination": filter.destination,
        ":event_id": filter.id.map(|id| id.to_string()),
        ":key": filter.key,
        ":limit": limit_of(ACTS_A_TRANSACTION),
    };
    let adopted: Vec<i64> = all(tx, operation, &ACT_ADOPT, of, |row| row.get(0))?;
    // Their order is not that of the update.
    Ok(adopted.into_iter().max())
}

/// Acts on the next parked events behind `after`; answers their ids.
fn act(
    tx: &Transaction<'_>,
    operation: &'static str,
    filter: &ParkedFilter,
    action: DeadAction,
    after: i64,
) -> Result<Vec<i64>, StoreError> {
    let fail = |error| classify(operation, error);
    let now = clock(tx, operation)?;
    let candidates: Vec<(i64, String, i64, String)> = tx
        .prepare_cached(&ACT_CANDIDATES)
        .and_then(|mut statement| {
            statement
                .query_map(
                    named_params! {
                        ":after": after,
                        ":destination": filter.destination,
                        ":event_id": filter.id.map(|id| id.to_string()),
                        ":key": filter.key,
                        ":state": filter.state.map(ParkedState::as_str),
                        ":retry": action == DeadAction::Retry,
                        ":discard": action == DeadAction::Discard,
                        ":limit": limit_of(ACTS_A_TRANSACTION),
                    },
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
                )?
                .collect()
        })
        .map_err(fail)?;
    let sql = match action {
        DeadAction::Retry => include_str!("sql/act_retry.sql"),
        DeadAction::Skip => include_str!("sql/act_skip.sql"),
        DeadAction::Discard => include_str!("sql/act_discard.sql"),
    };
    for (id, event_id, seq, destination) in &candidates {
        execute(tx, operation, sql, named_params! { ":id": id, ":now": now })?;
        let about = About {
            relay: None,
            destination: Some(destination),
            event_id: Some(event_id),
        };
        audit::write(tx, operation, words::acted(action), about, &[event_id, seq])?;
    }
    Ok(candidates.into_iter().map(|(id, ..)| id).collect())
}
