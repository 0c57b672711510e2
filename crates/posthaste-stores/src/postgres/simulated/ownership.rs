//! Leases, and who serves which destination.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_engine::{
    AuditWords, ClaimOutcome, ClaimRequest, Leases, Ownership, Registered, Registration,
    RelayReport, Renewal, Shares, StoreError, audit,
};
use uuid::Uuid;

use super::{SimulatedPostgres, claim, server::Connection};

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
        Ok(tables.leave(relay.registration, destination, words, unsettled, now))
    });
    left.await??;
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
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        const OPERATION: &str = "renew";
        let connection = self.connect();
        let asked = (lease, report.clone());
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
            claim::lock_and_revoke(tables, (relay, found), settle, now, OPERATION)
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
            tables.shares(id, now)
        });
        shares
            .await?
            .ok_or_else(|| StoreError::no_destination(OPERATION, destination))
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
