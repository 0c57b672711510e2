//! The owners of a destination's partitions, and the relays that serve it.

use std::time::Duration;

use mysql_async::params;
use posthaste_engine::{GroupFound, HostIdentity, Member, Shares, StoreError, Wanted};
use uuid::Uuid;

use super::{
    bits,
    connection::{Fields, Work, until},
    error::unexpected,
    settings::{self, uuid},
};
use crate::wanted::wanted;

/// A row of cursors: partitions at one place, with one owner.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: i64,
    pub(super) partitions: Vec<u16>,
    pub(super) owner: Option<Uuid>,
    /// The owner is neither fenced nor gone, and its lease is not over.
    pub(super) live: bool,
    pub(super) settling: Duration,
    pub(super) former: Vec<Uuid>,
    left_by: Option<Uuid>,
    left_name: Option<String>,
    left_dead: bool,
}

impl Group {
    /// As a claim decides about it: dead relays own nothing any more.
    pub(super) fn found(self) -> GroupFound {
        GroupFound {
            id: self.id,
            owner: self.owner,
            partitions: self.partitions,
            settling: self.settling,
            former: self.former,
            left_by: self.left_by,
            left_name: self.left_name,
            left_dead: self.left_dead,
        }
    }
}

pub(super) async fn groups(
    work: &mut Work,
    destination_id: i64,
    now: i64,
) -> Result<Vec<Group>, StoreError> {
    let of = params! { "destination_id" => destination_id, "now" => now };
    let rows = work.rows(include_str!("sql/groups.sql"), of).await?;
    let operation = work.operation();
    let registration = |text: Option<String>| text.map(|text| uuid(operation, &text)).transpose();
    let group = |row: &Fields| {
        Ok(Group {
            id: row.get(0)?,
            partitions: bits::decode(&row.get::<Vec<u8>>(1)?),
            owner: registration(row.text_opt(2)?)?,
            live: row.flag(3)?,
            settling: until(now, row.get(4)?),
            former: former(operation, &row.text(5)?)?,
            left_by: registration(row.text_opt(6)?)?,
            left_name: row.text_opt(7)?,
            left_dead: row.flag(8)?,
        })
    };
    rows.iter().map(group).collect()
}

/// Registrations as a row of cursors has them.
pub(super) fn former(operation: &'static str, json: &str) -> Result<Vec<Uuid>, StoreError> {
    let texts: Vec<String> = serde_json::from_str(json)
        .map_err(|error| unexpected(operation, format!("former owners: {error}")))?;
    texts.iter().map(|text| uuid(operation, text)).collect()
}

/// The text of [`former`].
pub(super) fn former_text(former: &[Uuid]) -> String {
    let texts: Vec<String> = former.iter().map(Uuid::to_string).collect();
    serde_json::json!(texts).to_string()
}

/// How a destination is shared out; none: it is gone.
pub(super) async fn shares(
    work: &mut Work,
    destination_id: i64,
    now: i64,
) -> Result<Option<Shares>, StoreError> {
    let of = params! { "id" => destination_id };
    let sql = "select shares_version, partitions from posthaste_destinations \
               where id = :id and state <> 'removed'";
    let Some(row) = work.at_most_one(sql, of).await? else {
        return Ok(None);
    };
    let partitions: u16 = row.get(1)?;
    let groups = groups(work, destination_id, now).await?;
    let mut shares = Shares {
        version: row.get(0)?,
        partitions,
        members: members(work, destination_id, now, &groups).await?,
        recut: settings::partitions(work).await? != partitions,
        ..Shares::default()
    };
    for group in &groups {
        let count = count_of(&group.partitions);
        match group.owner {
            Some(_) if group.live => {}
            Some(_) => shares.dead += count,
            None if group.settling.is_zero() => shares.free += count,
            None => {
                shares.settling += count;
                let first = shares.settled_in.unwrap_or(group.settling);
                shares.settled_in = Some(first.min(group.settling));
            }
        }
    }
    Ok(Some(shares))
}

pub(super) fn count_of(partitions: &[u16]) -> u16 {
    u16::try_from(partitions.len()).unwrap_or(u16::MAX)
}

async fn members(
    work: &mut Work,
    destination_id: i64,
    now: i64,
    groups: &[Group],
) -> Result<Vec<Member>, StoreError> {
    let of = params! { "destination_id" => destination_id, "now" => now };
    let rows = work.rows(include_str!("sql/members.sql"), of).await?;
    let operation = work.operation();
    let member = |row: &Fields| {
        let registration = uuid(operation, &row.text(0)?)?;
        let owned = groups
            .iter()
            .filter(|group| group.owner == Some(registration));
        Ok(Member {
            registration,
            name: row.text(1)?,
            host: host(row, 2)?,
            lease_left: until(now, row.get(6)?),
            leaving: row.flag(7)?,
            partitions_max: row.get(8)?,
            reaches: row.get::<Option<i64>>(9)?.map(|reaches| reaches != 0),
            owned: owned.map(|group| count_of(&group.partitions)).sum(),
        })
    };
    rows.iter().map(member).collect()
}

/// The destinations that a relay serves: id, name and state.
pub(super) async fn served(
    work: &mut Work,
    relay: Uuid,
) -> Result<Vec<(i64, String, Wanted)>, StoreError> {
    let of = params! { "registration" => relay.to_string() };
    let rows = work.rows(include_str!("sql/served.sql"), of).await?;
    let operation = work.operation();
    rows.iter()
        .map(|row| {
            let wanted = wanted(operation, &row.text(2)?, &row.text(3)?)?;
            Ok((row.get(0)?, row.text(1)?, wanted))
        })
        .collect()
}

/// Where a relay runs, from this column on.
pub(super) fn host(row: &Fields, column: usize) -> Result<HostIdentity, StoreError> {
    Ok(HostIdentity {
        boot_id: row.text(column)?,
        pid_namespace: row.text(column + 1)?,
        pid: row.get(column + 2)?,
        process_started: row.get(column + 3)?,
    })
}
