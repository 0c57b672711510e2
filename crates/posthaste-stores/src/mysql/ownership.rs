//! Leases, and who serves which destination. The server's clock decides.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::params;
use posthaste::Dialect;
use posthaste_engine::{
    ClaimOutcome, ClaimRequest, Leases, Ownership, Registered, Registration, RelayReport, Renewal,
    Shares, StoreError, audit,
};
use uuid::Uuid;

use super::{
    MysqlStore,
    connection::{Work, clock, micros},
    destination,
    error::unavailable,
    owning::{self, Claiming, give_up, must_be_valid},
    shares::{self, served},
};
/// A relay whose lease ended this long ago, and that owns nothing, is forgotten.
const RELAYS_KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Each lost race means that the destination was created or removed meanwhile.
const RACES_MAX: u32 = 16;

#[async_trait]
impl Leases for MysqlStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let mut work = self.leases.begin("register the relay").await?;
        let result = register(&mut work, registration).await;
        work.end(result).await
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        let mut work = self.leases.work("renew the lease").await?;
        let result = self.renewed.renew(&mut work, relay, lease, report).await;
        work.end(result).await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        let mut work = self.leases.begin("fence a relay").await?;
        let result = async {
            must_be_valid(&mut work, by).await?;
            owning::fence(&mut work, by, dead, why, false).await
        };
        let result = result.await;
        work.end(result).await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        let mut work = self.leases.begin("announce to leave").await?;
        let result = announce_leaving(&mut work, relay).await;
        work.end(result).await
    }

    /// A fenced relay has nothing to release: its successor has to settle.
    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let mut work = self.claims.begin("leave").await?;
        let result = leave(&mut work, relay, unsettled).await;
        work.end(result).await
    }
}

async fn register(work: &mut Work, registration: &Registration) -> Result<Registered, StoreError> {
    let now = clock(work).await?;
    // Looked for without locks: relays register, renew and leave all the time.
    let before = now.saturating_sub(micros(RELAYS_KEPT));
    let of = params! { "before" => before };
    for row in work.rows(include_str!("sql/relays_past.sql"), of).await? {
        let of = params! { "registration" => row.text(0)? };
        let sql = "delete from posthaste_members where registration = :registration";
        work.execute(sql, of.clone()).await?;
        let sql = "delete from posthaste_relays where registration = :registration";
        work.execute(sql, of).await?;
    }
    let id = Uuid::new_v4();
    let host = &registration.host;
    let of = params! {
        "registration" => id.to_string(),
        "name" => registration.name.as_bytes(),
        "version" => &registration.version,
        "boot_id" => &host.boot_id,
        "pid_namespace" => &host.pid_namespace,
        "pid" => host.pid,
        "process_started" => host.process_started,
        "now" => now,
        "lease_expires_at" => now.saturating_add(micros(registration.lease)),
        "level" => Dialect::Mysql.schema_version(),
    };
    work.execute(include_str!("sql/relay_insert.sql"), of)
        .await?;
    Ok(Registered { registration: id })
}

async fn announce_leaving(work: &mut Work, relay: Registered) -> Result<(), StoreError> {
    let of = params! { "registration" => relay.registration.to_string() };
    let sql = "update posthaste_relays set leaving = 1 \
               where registration = :registration and fenced_at is null";
    unless_fenced(work, sql, of).await?;
    for (id, _) in served(work, relay.registration).await? {
        destination::notice(work, id).await?;
    }
    Ok(())
}

async fn leave(work: &mut Work, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
    let name = must_be_valid(work, relay).await?;
    let mut all = served(work, relay.registration).await?;
    // The order in which locks are taken.
    all.sort_by_key(|(id, _)| *id);
    for (id, destination) in all {
        if destination::lock(work, id).await? {
            let of = (id, destination.as_str());
            give_up(work, relay, &name, of, unsettled, audit::RELEASE).await?;
        }
    }
    let of = params! { "registration" => relay.registration.to_string() };
    let sql = "delete from posthaste_relays where registration = :registration";
    work.execute(sql, of).await.map(drop)
}

/// Changes a relay's own row, unless the relay is fenced or gone.
async fn unless_fenced(
    work: &mut Work,
    sql: &str,
    of: mysql_async::Params,
) -> Result<(), StoreError> {
    match work.execute(sql, of).await? {
        0 => Err(StoreError::Fenced {
            operation: work.operation(),
        }),
        _ => Ok(()),
    }
}

#[async_trait]
impl Ownership for MysqlStore {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        const OPERATION: &str = "claim a destination";
        let (mut after, mut races) = (0, 0);
        loop {
            let mut work = self.claims.begin(OPERATION).await?;
            let result = owning::claim(&mut work, relay, request, after).await;
            match work.end(result).await? {
                Claiming::Done(outcome) => return Ok(*outcome),
                Claiming::After(last) => after = last,
                Claiming::Again if races >= RACES_MAX => {
                    let name = request.destination;
                    let reason = format!("`{name}` comes and goes all the time");
                    return Err(unavailable(OPERATION, reason));
                }
                Claiming::Again => races += 1,
            }
        }
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        let mut work = self.claims.begin("revoke a destination").await?;
        let result = revoke(&mut work, relay, destination, settle).await;
        work.end(result).await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        const OPERATION: &str = "look at a destination's relays";
        let mut work = self.leases.work(OPERATION).await?;
        let result = async {
            let gone = || StoreError::no_destination(OPERATION, destination);
            let found = destination::find(&mut work, destination).await?;
            let found = found.ok_or_else(gone)?;
            let shares = shares::shares(&mut work, found.id).await?;
            shares.ok_or_else(gone)
        };
        let result = result.await;
        work.end(result).await
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let mut work = self.claims.begin("withdraw from a destination").await?;
        let result = withdraw(&mut work, relay, destination, unsettled).await;
        work.end(result).await
    }
}

async fn revoke(
    work: &mut Work,
    relay: Registered,
    destination: &str,
    settle: Duration,
) -> Result<(), StoreError> {
    must_be_valid(work, relay).await?;
    let Some(found) = destination::find(work, destination).await? else {
        return Ok(());
    };
    if !destination::lock(work, found.id).await? {
        return Ok(());
    }
    destination::lock_cursors(work, found.id).await?;
    owning::revoke(work, relay, found.id, settle).await
}

async fn withdraw(
    work: &mut Work,
    relay: Registered,
    destination: &str,
    unsettled: Duration,
) -> Result<(), StoreError> {
    let name = must_be_valid(work, relay).await?;
    let Some(found) = destination::find(work, destination).await? else {
        return Ok(());
    };
    if !destination::lock(work, found.id).await? {
        return Ok(());
    }
    let of = (found.id, destination);
    give_up(work, relay, &name, of, unsettled, audit::WITHDRAW).await
}
