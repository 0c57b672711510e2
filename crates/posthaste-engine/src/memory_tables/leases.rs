//! Relays and their leases.

use std::{fmt::Display, time::Duration};

use uuid::Uuid;

use super::{Tables, micros};
use crate::{
    AuditWords, HostIdentity, Registration, RelayReport, Renewal, Shares, StoreError, Wanted, audit,
};

/// Rows of relays that are long gone go.
const PRUNED_AFTER: i64 = 7 * 24 * 3_600 * 1_000_000;

/// A relay that has registered.
#[derive(Debug, Clone)]
pub struct RelayRow {
    pub name: String,
    pub version: String,
    pub host: HostIdentity,
    pub lease_until: i64,
    pub report: RelayReport,
    pub fenced: bool,
    pub started_at: i64,
}

impl RelayRow {
    pub fn is_live(&self, now: i64) -> bool {
        !self.fenced && self.lease_until > now
    }
}

impl<P> Tables<P> {
    /// The relay, if its lease is not over.
    pub fn live(&self, relay: Uuid, now: i64) -> Option<&RelayRow> {
        let row = self.relays.get(&relay);
        row.filter(|row| row.is_live(now))
    }

    /// # Errors
    /// [`StoreError::Fenced`].
    pub fn unless_fenced(
        &self,
        relay: Uuid,
        operation: &'static str,
    ) -> Result<&RelayRow, StoreError> {
        let row = self.relays.get(&relay).filter(|row| !row.fenced);
        row.ok_or(StoreError::Fenced { operation })
    }

    pub fn register(&mut self, id: Uuid, registration: &Registration, now: i64) {
        let owners: Vec<Uuid> = self.cursors.values().filter_map(|row| row.relay).collect();
        let is_gone = |id: &Uuid, row: &RelayRow| {
            row.lease_until < now - PRUNED_AFTER && !owners.contains(id)
        };
        self.relays.retain(|id, row| !is_gone(id, row));
        let (relays, members) = (&self.relays, &mut self.members);
        members.retain(|(_, relay), _| relays.contains_key(relay));
        let row = RelayRow {
            name: registration.name.clone(),
            version: registration.version.clone(),
            host: registration.host.clone(),
            lease_until: now + micros(registration.lease),
            report: RelayReport::new(),
            fenced: false,
            started_at: now,
        };
        self.relays.insert(id, row);
    }

    /// # Errors
    /// [`StoreError::Fenced`].
    pub fn renew(
        &mut self,
        relay: Uuid,
        (lease, report): (Duration, RelayReport),
        now: i64,
        operation: &'static str,
    ) -> Result<Renewal, StoreError> {
        let row = self.relays.get_mut(&relay).filter(|row| !row.fenced);
        let row = row.ok_or(StoreError::Fenced { operation })?;
        row.lease_until = now + micros(lease);
        row.report = report;
        let served = self.destinations.iter().filter_map(|(id, row)| {
            self.members.get(&(*id, relay))?;
            Some((row.name.clone(), row.wanted.clone(), self.shares(*id, now)?))
        });
        let mut destinations: Vec<(String, Wanted, Shares)> = served.collect();
        destinations.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Renewal { destinations })
    }

    /// `fence.sql`. A fenced relay fences no other.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    pub fn fence(
        &mut self,
        by: Uuid,
        dead: Uuid,
        why: &str,
        now: i64,
        operation: &'static str,
    ) -> Result<(), StoreError> {
        self.unless_fenced(by, operation)?;
        if self.set_fenced(by, dead, why, now) {
            self.notice(dead);
        }
        Ok(())
    }

    /// False: it is fenced already, or gone.
    pub(super) fn set_fenced(&mut self, by: Uuid, dead: Uuid, why: &str, now: i64) -> bool {
        let Some(row) = self.relays.get_mut(&dead).filter(|row| !row.fenced) else {
            return false;
        };
        row.fenced = true;
        let values: [&dyn Display; 3] = [&row.name.clone(), &dead, &why];
        self.note(now, Some(by), audit::FENCE, None, &values);
        true
    }

    /// Another look at whatever this relay serves is worth its while.
    fn notice(&mut self, relay: Uuid) {
        for (id, row) in &mut self.destinations {
            row.shares_version += i64::from(self.members.contains_key(&(*id, relay)));
        }
    }

    /// # Errors
    /// [`StoreError::Fenced`].
    pub fn announce_leaving(
        &mut self,
        relay: Uuid,
        operation: &'static str,
    ) -> Result<(), StoreError> {
        self.unless_fenced(relay, operation)?;
        for ((id, registration), row) in &mut self.members {
            if *registration == relay
                && !std::mem::replace(&mut row.leaving, true)
                && let Some(destination) = self.destinations.get_mut(id)
            {
                destination.shares_version += 1;
            }
        }
        Ok(())
    }

    /// `leave_look.sql`, then `leave.sql`: gives up one destination, or all of them and the
    /// registration. `words` name the act.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    pub fn leave(
        &mut self,
        relay: Uuid,
        destination: Option<&str>,
        words: AuditWords,
        unsettled: Duration,
        now: i64,
    ) -> Result<(), StoreError> {
        self.unless_fenced(relay, words.action)?;
        let is_meant = |id: &i64| {
            let name = self.destinations.get(id).map(|row| row.name.as_str());
            destination.is_none_or(|destination| name == Some(destination))
        };
        let served = self.members.keys().filter(|(_, member)| *member == relay);
        let served: Vec<i64> = served.map(|(id, _)| *id).filter(is_meant).collect();
        for id in served {
            self.members.remove(&(id, relay));
            let ours = self.owned_by(id, relay).map(|(cursor, _)| cursor);
            let ours: Vec<i64> = ours.collect();
            let given = ours
                .iter()
                .map(|cursor| self.partitions_of(id, *cursor).len());
            let given: usize = given.sum();
            if given > 0 {
                self.note(now, Some(relay), words, Some(id), &[&given]);
            }
            self.release(relay, &ours, unsettled, now);
            if let Some(row) = self.destinations.get_mut(&id) {
                row.shares_version += 1;
            }
        }
        if destination.is_none() {
            self.relays.remove(&relay);
        }
        Ok(())
    }
}
