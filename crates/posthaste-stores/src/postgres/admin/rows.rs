//! The rows of operators' reads.

use posthaste_engine::{
    AuditLine, DestinationStatus, PageBuilder, ParkedEvent, ParkedState, RelayShare, RelayStatus,
    StoreError,
};
use tokio_postgres::Row;

use super::{
    super::{
        micros::unsigned,
        read::push,
        shares::{destination_state, host, paused_places},
        types::UnixMicros,
    },
    Pending,
};
use crate::held_places;

pub(super) fn destination(row: &Row, pending: &Pending) -> DestinationStatus {
    let name: String = row.get("name");
    let (places_held, places) = held_places::read(&name, &row.get::<_, Vec<&str>>("places"));
    DestinationStatus {
        name,
        address: row.get("address"),
        state: destination_state(row.get("state")),
        paused_places: paused_places(row),
        pending: pending.events,
        pending_exact: pending.exact,
        parked: unsigned(row.get("parked")),
        dead: unsigned(row.get("dead")),
        blocked_keys: unsigned(row.get("blocked_keys")),
        oldest_pending_age: pending.oldest_age,
        breaker: row.get("breaker"),
        last_error: row.get("last_error"),
        relay: row.get("relay"),
        accepted_per_second: row.get("accepted_per_second"),
        places_held,
        places,
    }
}

/// The rows tell of a relay's destinations one after another.
pub(super) fn by_relay(rows: &[Row]) -> Vec<RelayStatus> {
    let mut relays: Vec<RelayStatus> = Vec::new();
    for row in rows {
        let registration = row.get("registration");
        if relays
            .last()
            .is_none_or(|relay| relay.registration != registration)
        {
            relays.push(RelayStatus {
                registration,
                name: row.get("name"),
                host: host(row),
                started_at: row.get::<_, UnixMicros>("started_at").0,
                version: row.get("version"),
                state: row.get("state"),
                lease_expires_at: row.get::<_, UnixMicros>("lease_until").0,
                partitions: 0,
                leaving: false,
                shares: Vec::new(),
            });
        }
        let (Some(relay), Some(destination)) = (relays.last_mut(), row.get("destination")) else {
            continue;
        };
        let share = RelayShare {
            destination,
            partitions: u32::try_from(row.get::<_, i64>("partitions")).unwrap_or(0),
            epoch: unsigned(row.get("epoch")),
            reaches: row.get("reaches"),
        };
        relay.partitions += share.partitions;
        relay.leaving |= row.get::<_, bool>("leaving");
        relay.shares.push(share);
    }
    relays
}

pub(super) fn audit_line(row: &Row) -> AuditLine {
    AuditLine {
        at: row.get::<_, UnixMicros>("at").0,
        action: row.get("action"),
        relay: row.get("relay"),
        destination: row.get("destination"),
        detail: row.get("detail"),
    }
}

pub(super) fn parked(row: &Row) -> Result<ParkedEvent, StoreError> {
    const OPERATION: &str = "list parked events";
    let bug = |reason: String| StoreError::Bug {
        operation: OPERATION,
        reason,
    };
    let mut page = PageBuilder::default();
    push(&mut page, row).map_err(|error| bug(format!("a parked event cannot be read: {error}")))?;
    let event = page.finish().pop();
    let state: &str = row.get("state");
    Ok(ParkedEvent {
        destination: row.get("destination"),
        state: ParkedState::from_name(state).ok_or_else(|| bug(format!("state `{state}`")))?,
        attempts: u32::try_from(row.get::<_, i32>("attempts")).unwrap_or(0),
        kind: row.get("kind"),
        reason: row.get("reason"),
        parked_at: row.get::<_, UnixMicros>("parked_at").0,
        due_at: row.get::<_, Option<UnixMicros>>("due_at").map(|at| at.0),
        holds_key: row.get("holds_key"),
        event: event.ok_or_else(|| bug("the page lost its event".to_owned()))?,
    })
}
