//! Leases, and who serves which destination.

use std::{fmt::Display, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    AuditWords, ClaimOutcome, ClaimRequest, Leases, Ownership, Rates, Registered, Registration,
    Renewal, Shares, StoreError, audit,
};
use uuid::Uuid;

use super::{
    SimulatedPostgres, claim,
    server::Connection,
    tables::{Relay, Tables},
};
use crate::postgres::micros::micros;

/// Rows of relays that are long gone go.
const PRUNED_AFTER: i64 = 7 * 24 * 3_600 * 1_000_000;

impl Tables {
    fn register(&mut self, id: Uuid, registration: &Registration, now: i64) {
        let owners: Vec<Uuid> = self.cursors.values().filter_map(|row| row.relay).collect();
        let is_gone =
            |id: &Uuid, row: &Relay| row.lease_until < now - PRUNED_AFTER && !owners.contains(id);
        self.relays.retain(|id, row| !is_gone(id, row));
        let (relays, members) = (&self.relays, &mut self.members);
        members.retain(|(_, relay), _| relays.contains_key(relay));
        let row = Relay {
            name: registration.name.clone(),
            version: registration.version.clone(),
            host: registration.host.clone(),
            lease_until: now + micros(registration.lease),
            rates: Rates::new(),
            fenced: false,
            started_at: now,
        };
        self.relays.insert(id, row);
    }

    fn renew(
        &mut self,
        relay: Uuid,
        (lease, rates): (i64, Rates),
        now: i64,
        operation: &'static str,
    ) -> Result<Renewal, StoreError> {
        let row = self.relays.get_mut(&relay).filter(|row| !row.fenced);
        let row = row.ok_or(StoreError::Fenced { operation })?;
        row.lease_until = now + lease;
        row.rates = rates;
        let mut renewal = Renewal::default();
        for (id, destination) in &self.destinations {
            if self.members.contains_key(&(*id, relay))
                && let Some(shares) = self.shares(*id, now, Some((relay, lease)))
            {
                let name = destination.name.clone();
                renewal.destinations.push((name, destination.state, shares));
            }
        }
        renewal.destinations.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(renewal)
    }

    /// `sql/fence.sql`.
    fn fence(
        &mut self,
        by: Uuid,
        dead: Uuid,
        why: &str,
        now: i64,
        operation: &'static str,
    ) -> Result<(), StoreError> {
        let us = self.unless_fenced(by, operation)?;
        let Some(row) = self.relays.get_mut(&dead).filter(|row| !row.fenced) else {
            return Ok(());
        };
        row.fenced = true;
        let name = row.name.clone();
        self.notice(dead);
        let values: [&dyn Display; 3] = [&name, &dead, &why];
        self.note(now, (Some(by), Some(&us)), audit::FENCE, None, &values);
        Ok(())
    }

    fn unless_fenced(&self, relay: Uuid, operation: &'static str) -> Result<String, StoreError> {
        let row = self.relays.get(&relay).filter(|row| !row.fenced);
        row.map(|row| row.name.clone())
            .ok_or(StoreError::Fenced { operation })
    }

    /// Another look at whatever this relay serves is worth its while.
    fn notice(&mut self, relay: Uuid) {
        for (id, row) in &mut self.destinations {
            row.shares_version += i64::from(self.members.contains_key(&(*id, relay)));
        }
    }

    fn announce_leaving(&mut self, relay: Uuid, operation: &'static str) -> Result<(), StoreError> {
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

    /// `sql/leave_look.sql`, then `sql/leave.sql`. False: it is fenced.
    fn leave(
        &mut self,
        relay: Uuid,
        destination: Option<&str>,
        words: AuditWords,
        unsettled: i64,
        now: i64,
    ) -> bool {
        let Ok(name) = self.unless_fenced(relay, words.action) else {
            return false;
        };
        let is_meant = |tables: &Self, id: i64| {
            let of = tables.destinations.get(&id);
            of.is_some_and(|row| destination.is_none_or(|name| row.name == name))
        };
        let owned: Vec<(i64, i64)> = self
            .cursors
            .iter()
            .filter(|(_, row)| row.relay == Some(relay) && is_meant(self, row.destination_id))
            .map(|(id, row)| (*id, row.destination_id))
            .collect();
        let served: Vec<i64> = self
            .members
            .keys()
            .filter(|(id, registration)| *registration == relay && is_meant(self, *id))
            .map(|(id, _)| *id)
            .collect();
        for id in served {
            self.members.remove(&(id, relay));
            let of = owned.iter().filter(|(_, of)| *of == id);
            let given: usize = of
                .map(|(cursor, _)| self.partitions_of(id, *cursor).len())
                .sum();
            let Some(row) = self.destinations.get_mut(&id) else {
                continue;
            };
            row.shares_version += 1;
            let of = row.name.clone();
            if given > 0 {
                let by = (Some(relay), Some(name.as_str()));
                self.note(now, by, words, Some(&of), &[&given]);
            }
        }
        let cursors: Vec<i64> = owned.iter().map(|(cursor, _)| *cursor).collect();
        claim::release(self, (relay, &name), &cursors, unsettled, now);
        if destination.is_none() {
            self.relays.remove(&relay);
            self.members
                .retain(|(_, registration), _| *registration != relay);
        }
        true
    }
}

/// Gives up all of one destination, or of all of them and the registration.
async fn leave(
    connection: &Connection,
    words: AuditWords,
    relay: Registered,
    destination: Option<&str>,
    unsettled: Duration,
) -> Result<(), StoreError> {
    let operation = words.action;
    let transaction = connection.transaction(operation).await?;
    let left = transaction.statement(|tables, now| {
        let unsettled = micros(unsettled);
        Ok(tables.leave(relay.registration, destination, words, unsettled, now))
    });
    if !left.await? {
        return Err(StoreError::Fenced { operation });
    }
    transaction.commit().await
}

#[async_trait]
impl Leases for SimulatedPostgres {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let connection = self.connect();
        let id = self.server.lock().new_id();
        claim::refill_incarnation(&connection, id).await?;
        let registration = registration.clone();
        let register = connection.change("register", move |database| {
            let now = database.clock();
            database.now.tables.register(id, &registration, now);
            Ok(Registered { registration: id })
        });
        register.await
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        rates: &Rates,
    ) -> Result<Renewal, StoreError> {
        const OPERATION: &str = "renew";
        let connection = self.connect();
        let asked = (micros(lease), rates.clone());
        let renew = connection.change(OPERATION, move |database| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            tables.renew(relay.registration, asked, now, OPERATION)
        });
        renew.await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        const OPERATION: &str = "fence";
        let why = why.to_owned();
        let connection = self.connect();
        let fence = connection.change(OPERATION, move |database| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            tables.fence(by.registration, dead, &why, now, OPERATION)
        });
        fence.await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        const OPERATION: &str = "announce to leave";
        let connection = self.connect();
        let announce = connection.change(OPERATION, move |database| {
            let tables = &mut database.now.tables;
            tables.announce_leaving(relay.registration, OPERATION)
        });
        announce.await
    }

    /// A fenced relay has nothing to release: whoever takes over from it has to settle.
    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let connection = self.connect();
        leave(&connection, audit::RELEASE, relay, None, unsettled).await
    }
}

#[async_trait]
impl Ownership for SimulatedPostgres {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        claim::claim(&self.connect(), relay, request).await
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "revoke";
        let connection = self.connect();
        let found = connection.look(OPERATION, |database| {
            database.now.tables.destination_id(destination)
        });
        let found = found.await?;
        let transaction = connection.transaction(OPERATION).await?;
        let revoke = transaction.statement(|tables, now| {
            tables.lock_and_revoke(relay, found, micros(settle), now, OPERATION)
        });
        revoke.await?;
        transaction.commit().await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        const OPERATION: &str = "look at the shares";
        let connection = self.connect();
        let shares = connection.look(OPERATION, |database| {
            let (tables, now) = (&database.now.tables, database.clock());
            let id = tables.destination_id(destination)?;
            tables.shares(id, now, None)
        });
        shares.await?.ok_or_else(|| StoreError::Misconfigured {
            operation: OPERATION,
            reason: format!("there is no destination `{destination}`"),
        })
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let connection = self.connect();
        leave(
            &connection,
            audit::WITHDRAW,
            relay,
            Some(destination),
            unsettled,
        )
        .await
    }
}
