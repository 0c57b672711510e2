//! How a destination is shared out, as one statement saw it.

use std::collections::BTreeSet;

use posthaste_engine::{DestinationState, HostIdentity, Member, Shares, StoreError, Wanted};
use tokio_postgres::{Client as Driver, Row, types::Type};

use super::{client::Client, error::classify, micros::from_micros};

const SHARES: &str = include_str!("sql/shares.sql");
const SHARES_OF: &str = include_str!("sql/shares_of.sql");

/// A statement whose text has its `{shares}` filled in.
pub(super) fn with_shares(sql: &str) -> String {
    sql.replace("{shares}", SHARES)
}

/// The shares of one destination; none: there is none of this name.
pub(super) async fn shares_of(
    client: &Client,
    operation: &'static str,
    destination: &str,
) -> Result<Option<Shares>, StoreError> {
    let sql = with_shares(SHARES_OF);
    let destination = [(&destination as _, Type::TEXT)];
    of_one(operation, client.query_typed(&sql, &destination).await)
}

/// The same, inside a transaction of this connection.
pub(super) async fn shares_within(
    client: &Driver,
    operation: &'static str,
    destination: &str,
) -> Result<Option<Shares>, StoreError> {
    let sql = with_shares(SHARES_OF);
    let destination = [(&destination as _, Type::TEXT)];
    of_one(operation, client.query_typed(&sql, &destination).await)
}

fn of_one(
    operation: &'static str,
    rows: Result<Vec<Row>, tokio_postgres::Error>,
) -> Result<Option<Shares>, StoreError> {
    let rows = rows.map_err(|error| classify(operation, error))?;
    Ok(by_destination(&rows).pop().map(|(_, _, shares)| shares))
}

/// The destinations that the rows tell of, each a row a member.
pub(super) fn by_destination(rows: &[Row]) -> Vec<(String, Wanted, Shares)> {
    let mut destinations: Vec<(String, Wanted, Shares)> = Vec::new();
    for row in rows {
        let Some(name) = row.get::<_, Option<&str>>("name") else {
            continue;
        };
        if destinations.last().is_none_or(|(last, ..)| last != name) {
            destinations.push((name.to_owned(), wanted(row), shares(row)));
        }
        if let (Some((.., shares)), Some(member)) = (destinations.last_mut(), member(row)) {
            shares.members.push(member);
        }
    }
    destinations
}

fn shares(row: &Row) -> Shares {
    let settled_in: Option<i64> = row.get("settled_in");
    Shares {
        version: row.get("shares_version"),
        partitions: small(row.get::<_, i32>("partitions").into()),
        members: Vec::new(),
        free: small(row.get("free")),
        settling: small(row.get("settling")),
        settled_in: settled_in.map(from_micros),
        dead: small(row.get("dead")),
        recut: row.get("recut"),
    }
}

fn member(row: &Row) -> Option<Member> {
    Some(Member {
        registration: row.get::<_, Option<_>>("registration")?,
        name: row.get("relay"),
        host: host(row),
        lease_left: from_micros(row.get("lease_left")),
        owned: small(row.get("owned")),
        partitions_max: small(row.get::<_, i32>("partitions_max").into()),
        leaving: row.get("leaving"),
        reaches: row.get("reaches"),
    })
}

/// Where the relay of this row runs.
pub(super) fn host(row: &Row) -> HostIdentity {
    HostIdentity {
        boot_id: row.get("boot_id"),
        pid_namespace: row.get("pid_namespace"),
        pid: u32::try_from(row.get::<_, i64>("pid")).unwrap_or(0),
        process_started: u64::try_from(row.get::<_, i64>("process_started")).unwrap_or(0),
    }
}

fn small(number: i64) -> u16 {
    u16::try_from(number.max(0)).unwrap_or(u16::MAX)
}

/// The operators' wishes for the destination of this row.
pub(super) fn wanted(row: &Row) -> Wanted {
    Wanted {
        state: destination_state(row.get("state")),
        paused_places: paused_places(row),
    }
}

pub(super) fn paused_places(row: &Row) -> BTreeSet<String> {
    row.get::<_, Vec<String>>("paused_places")
        .into_iter()
        .collect()
}

/// The table's CHECK knows the same names; a name from a newer schema counts as not to be touched.
pub(super) fn destination_state(name: &str) -> DestinationState {
    match name {
        "active" => DestinationState::Active,
        "removed" => DestinationState::Removed,
        _ => DestinationState::Paused,
    }
}
