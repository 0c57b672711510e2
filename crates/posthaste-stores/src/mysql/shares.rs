//! The owners of a destination's partitions, and the relays that serve it.

use std::{collections::BTreeMap, time::Duration};

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

const SHARES: &str = include_str!("sql/shares.sql");

/// A statement whose text has its `{shares}` filled in.
pub(super) fn with_shares(sql: &str) -> String {
    sql.replace("{shares}", SHARES)
}

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
) -> Result<Option<Shares>, StoreError> {
    let found = look(work, Some(destination_id), None).await?;
    Ok(found.into_iter().next().map(|(.., shares)| shares))
}

/// How the destinations that a relay serves are shared out, and what operators want of them.
pub(super) async fn shares_of(
    work: &mut Work,
    relay: Uuid,
) -> Result<Vec<(String, Wanted, Shares)>, StoreError> {
    look(work, None, Some(relay.to_string())).await
}

async fn look(
    work: &mut Work,
    destination_id: Option<i64>,
    registration: Option<String>,
) -> Result<Vec<(String, Wanted, Shares)>, StoreError> {
    let of = params! { "destination_id" => destination_id, "registration" => registration };
    let rows = work.rows(SHARES, of).await?;
    let operation = work.operation();
    let mut all: Vec<(i64, String, Wanted, Shared)> = Vec::new();
    for row in &rows {
        let id = row.get(0)?;
        if all.last().is_none_or(|(last, ..)| *last != id) {
            let wanted = wanted(operation, &row.text(2)?, &row.text(3)?)?;
            all.push((id, row.text(1)?, wanted, Shared::new(operation, row)?));
        }
        if let Some((.., shared)) = all.last_mut() {
            shared.take(operation, row)?;
        }
    }
    let shares = all
        .into_iter()
        .map(|(_, name, wanted, shared)| (name, wanted, shared.counted()));
    Ok(shares.collect())
}

/// A destination's shares, as far as its rows are read.
struct Shared {
    shares: Shares,
    /// Partitions of each relay, dead ones too.
    owned: BTreeMap<Uuid, u16>,
}

impl Shared {
    fn new(operation: &'static str, row: &Fields) -> Result<Self, StoreError> {
        let partitions: u16 = row.get(5)?;
        let wanted = row.text_opt(6)?;
        let wanted: u16 = settings::parsed(operation, settings::PARTITIONS, wanted.as_deref())?;
        Ok(Self {
            shares: Shares {
                version: row.get(4)?,
                partitions,
                recut: wanted != partitions,
                ..Shares::default()
            },
            owned: BTreeMap::new(),
        })
    }

    fn take(&mut self, operation: &'static str, row: &Fields) -> Result<(), StoreError> {
        let now = row.get(7)?;
        let registration = row.text_opt(9)?;
        let registration = registration
            .map(|text| uuid(operation, &text))
            .transpose()?;
        match (row.get::<Option<i64>>(8)?, registration) {
            (Some(_), owner) => {
                let partitions = bits::decode(&row.get::<Vec<u8>>(12)?);
                let settling = until(now, row.get(10)?);
                self.group(count_of(&partitions), owner, row.flag(11)?, settling);
            }
            (None, Some(registration)) => self.shares.members.push(Member {
                registration,
                name: row.text(13)?,
                host: host(row, 14)?,
                lease_left: until(now, row.get(10)?),
                leaving: row.flag(18)?,
                partitions_max: row.get(19)?,
                reaches: row.get::<Option<i64>>(20)?.map(|reaches| reaches != 0),
                owned: 0,
            }),
            // A destination without any row of either kind.
            (None, None) => {}
        }
        Ok(())
    }

    fn group(&mut self, count: u16, owner: Option<Uuid>, live: bool, settling: Duration) {
        let shares = &mut self.shares;
        match owner {
            Some(owner) => {
                *self.owned.entry(owner).or_default() += count;
                shares.dead += if live { 0 } else { count };
            }
            None if settling.is_zero() => shares.free += count,
            None => {
                shares.settling += count;
                let first = shares.settled_in.unwrap_or(settling);
                shares.settled_in = Some(first.min(settling));
            }
        }
    }

    fn counted(mut self) -> Shares {
        for member in &mut self.shares.members {
            member.owned = self.owned.get(&member.registration).copied().unwrap_or(0);
        }
        self.shares
    }
}

pub(super) fn count_of(partitions: &[u16]) -> u16 {
    u16::try_from(partitions.len()).unwrap_or(u16::MAX)
}

/// The destinations that a relay serves, by id and name.
pub(super) async fn served(work: &mut Work, relay: Uuid) -> Result<Vec<(i64, String)>, StoreError> {
    let of = params! { "registration" => relay.to_string() };
    let rows = work.rows(include_str!("sql/served.sql"), of).await?;
    rows.iter()
        .map(|row| Ok((row.get(0)?, row.text(1)?)))
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
