//! The relays that serve a destination: their shares of it, and how it is for them.

use std::{collections::BTreeMap, fmt::Display};

use uuid::Uuid;

use super::{Tables, from_micros, small};
use crate::{Member, Shares, audit};

/// A relay that serves a destination.
#[derive(Debug, Clone, Default)]
pub struct MemberRow {
    pub partitions_max: u16,
    pub leaving: bool,
    pub reaches: Option<bool>,
    pub last_error: Option<String>,
}

impl<P> Tables<P> {
    /// The members of a destination, by registration.
    pub fn members_of(&self, destination_id: i64) -> impl Iterator<Item = (Uuid, &MemberRow)> {
        let all = (destination_id, Uuid::nil())..=(destination_id, Uuid::max());
        let rows = self.members.range(all);
        rows.map(|((_, relay), row)| (*relay, row))
    }

    /// `shares.sql` for one destination; none: there is none.
    pub fn shares(&self, destination_id: i64, now: i64) -> Option<Shares> {
        let destination = self.destinations.get(&destination_id)?;
        let count = small(destination.partitions.len());
        let mut shares = Shares {
            version: destination.shares_version,
            partitions: count,
            recut: self.recuts && self.partitions != count,
            ..Shares::default()
        };
        let mut owned: BTreeMap<Uuid, u16> = BTreeMap::new();
        for (id, row) in self.cursors_of(destination_id) {
            let count = small(self.partitions_of(destination_id, id).len());
            let wait = (row.not_before - now).max(0);
            match row.relay {
                Some(relay) => {
                    *owned.entry(relay).or_default() += count;
                    if self.live(relay, now).is_none() {
                        shares.dead += count;
                    }
                }
                None if wait == 0 => shares.free += count,
                None => {
                    shares.settling += count;
                    let wait = from_micros(wait);
                    let first = shares.settled_in.unwrap_or(wait).min(wait);
                    shares.settled_in = Some(first);
                }
            }
        }
        let member = |(registration, row): (Uuid, &MemberRow)| {
            let relay = self.live(registration, now)?;
            Some(Member {
                registration,
                name: relay.name.clone(),
                host: relay.host.clone(),
                lease_left: from_micros(relay.lease_until - now),
                owned: owned.get(&registration).copied().unwrap_or(0),
                partitions_max: row.partitions_max,
                leaving: row.leaving,
                reaches: row.reaches,
            })
        };
        shares.members = self.members_of(destination_id).filter_map(member).collect();
        Some(shares)
    }

    /// `breaker.sql`. The word of the owners counts, then that of another one that has tried, then
    /// what was said last.
    pub fn breaker(&self, destination_id: i64) -> &str {
        let stored = self.destinations.get(&destination_id);
        let stored = stored.map_or("closed", |row| row.breaker.as_str());
        let owns = |relay| self.owned_by(destination_id, relay).next().is_some();
        let mut members = self.members_of(destination_id);
        let cut_off = |(relay, row): (Uuid, &MemberRow)| row.reaches == Some(false) && owns(relay);
        match (members.any(cut_off), stored) {
            (true, "closed") => "open",
            (false, _) if self.is_reached(destination_id) => "closed",
            _ => stored,
        }
    }

    fn is_reached(&self, destination_id: i64) -> bool {
        let mut members = self.members_of(destination_id);
        members.any(|(_, row)| row.reaches == Some(true))
    }

    /// As [`crate::DestinationStatus::last_error`]: that of a relay that does not reach it, then
    /// that of one that reaches a part of it, then what was said last, unless somebody reaches all.
    pub fn last_error(&self, destination_id: i64) -> Option<String> {
        let told = self.members_of(destination_id);
        let told = told.filter(|(_, row)| row.last_error.is_some());
        if let Some((_, row)) = told.min_by_key(|(_, row)| row.reaches == Some(true)) {
            return row.last_error.clone();
        }
        let row = self.destinations.get(&destination_id)?;
        let holds = self.breaker(destination_id) != "closed" || !self.is_reached(destination_id);
        row.last_error.clone().filter(|_| holds)
    }

    /// `report.sql`. `member`: the destination and the relay.
    pub fn report(&mut self, member: (i64, Uuid), breaker: &str, last_error: Option<&str>) {
        let reaches = Some(breaker == "closed");
        let last_error = last_error.map(str::to_owned);
        let mut changed = false;
        if let Some(row) = self.members.get_mut(&member) {
            changed = std::mem::replace(&mut row.reaches, reaches) != reaches;
            row.last_error.clone_from(&last_error);
        }
        if let Some(row) = self.destinations.get_mut(&member.0) {
            breaker.clone_into(&mut row.breaker);
            row.last_error = last_error;
            row.shares_version += i64::from(changed);
        }
    }

    /// As [`crate::ClaimReports::reached`].
    pub fn reached(&mut self, (id, by): (i64, Uuid), cluster: &str, now: i64) -> Option<String> {
        let row = self.destinations.get_mut(&id)?;
        let former = row.cluster.replace(cluster.to_owned());
        let former = former.filter(|former| former != cluster)?;
        let values: [&dyn Display; 2] = [&former, &cluster];
        self.note(now, Some(by), audit::CLUSTER_CHANGED, Some(id), &values);
        Some(former)
    }
}
