//! Samples of who may still commit, by the server's instruments ([`super::proof`]).
//!
//! Any error, and any sign that an instrument sees less than everything, is *no proof*. It is never
//! *nobody*.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use posthaste_engine::StoreError;

use super::{
    connection::{Link, Work},
    proof::{Sample, Ticket},
};

/// The instrument that tells of the locks on the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instrument {
    /// `performance_schema.metadata_locks`.
    PerformanceSchema,
    /// MariaDB's plugin `metadata_lock_info`.
    Plugin,
}

/// Why a sample proves nothing, in words.
pub(super) type Doubt = String;

/// The prepared transactions of XA, by their identities.
pub(super) type Prepared = BTreeSet<Vec<u8>>;

/// Locks that only read. All others may be a writer's: which kinds a server has is not for us to
/// list.
const READS: [&str; 6] = [
    "SHARED",
    "SHARED_HIGH_PRIO",
    "SHARED_READ",
    "MDL_SHARED",
    "MDL_SHARED_HIGH_PRIO",
    "MDL_SHARED_READ",
];

/// Whether the instruments can be trusted with what is open now. Once one was blind, transactions
/// of that time stay invisible to it: only a lock ends that which was asked for when it saw again,
/// and was granted while nobody wrote.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// How many looks found an instrument blind.
    blind: AtomicU64,
    /// Up to which of them nobody is left.
    forgiven: AtomicU64,
}

impl Trust {
    pub(super) fn is_lost(&self) -> bool {
        self.blind_looks() > self.forgiven.load(Ordering::Acquire)
    }

    /// How many looks found an instrument blind, for [`regain`](Self::regain).
    pub(super) fn blind_looks(&self) -> u64 {
        self.blind.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
        self.blind.fetch_add(1, Ordering::AcqRel);
    }

    /// A lock was granted that was asked for behind so many blind looks, and one that was not.
    pub(super) fn regain(&self, blind_looks: u64) {
        self.forgiven.fetch_max(blind_looks, Ordering::AcqRel);
    }
}

/// The instrument that this server has; none, with the reason, where it has none that works.
pub(super) async fn instrument(work: &mut Work) -> Result<Result<Instrument, Doubt>, StoreError> {
    let sql = "select lower(version()) like '%mariadb%', @@performance_schema";
    let row = work.one(sql, ()).await?;
    let (mariadb, has_schema) = (row.flag(0)?, row.flag(1)?);
    if mariadb {
        let sql = "select 1 from information_schema.plugins \
                   where plugin_name = 'METADATA_LOCK_INFO' and plugin_status = 'ACTIVE'";
        if work.at_most_one(sql, ()).await?.is_some() {
            return Ok(Ok(Instrument::Plugin));
        }
    }
    if !has_schema {
        return Ok(Err(match mariadb {
            true => "performance_schema is off and the plugin metadata_lock_info is not installed",
            false => "performance_schema is off",
        }
        .to_owned()));
    }
    Ok(Ok(Instrument::PerformanceSchema))
}

/// Takes a sample: the locks, then the prepared transactions.
pub(super) async fn sample(
    work: &mut Work,
    instrument: Instrument,
    trust: &Trust,
) -> Result<Result<Sample, Doubt>, StoreError> {
    let locks = match instrument {
        Instrument::PerformanceSchema => of_performance_schema(work).await,
        Instrument::Plugin => of_plugin(work).await,
    };
    let tickets = match told(locks)? {
        Ok(tickets) => tickets,
        Err(doubt) => {
            trust.lose();
            return Ok(Err(doubt));
        }
    };
    if trust.is_lost() {
        return Ok(Err(
            "the instrument was blind for a time, and what was begun then stays invisible to it"
                .to_owned(),
        ));
    }
    // Not earlier: a session that prepares a transaction and goes is in one of both.
    let prepared = match told(prepared(work).await.map(Ok))? {
        Ok(prepared) => prepared,
        Err(doubt) => {
            return Ok(Err(format!(
                "this user may not list prepared transactions (XA RECOVER): grant \
                 XA_RECOVER_ADMIN; the server says: {doubt}"
            )));
        }
    };
    Ok(Ok(Sample { tickets, prepared }))
}

/// A connection that is lost ends the claim; whatever else the server says is a doubt.
fn told<T>(answer: Result<Result<T, Doubt>, StoreError>) -> Result<Result<T, Doubt>, StoreError> {
    match answer {
        Err(error @ StoreError::Unavailable { .. }) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
        Ok(told) => Ok(told),
    }
}

async fn of_performance_schema(
    work: &mut Work,
) -> Result<Result<BTreeSet<Ticket>, Doubt>, StoreError> {
    // Our own lock for reading, which the statement takes itself, has to come back: a canary.
    let rows = work.rows(include_str!("sql/locks.sql"), ()).await?;
    let lost = work.rows(include_str!("sql/locks_lost.sql"), ()).await?;
    for row in &lost {
        let (name, count) = (row.text(0)?, row.text(1)?);
        if count != "0" {
            return Ok(Err(format!(
                "{name} is {count}: raise the limit that it tells of"
            )));
        }
    }
    if lost.len() < 2 {
        return Ok(Err(
            "the server does not tell how many locks it has lost".to_owned()
        ));
    }
    let (mut tickets, mut canary) = (BTreeSet::new(), false);
    for row in &rows {
        let kind = row.text(3)?;
        if row.flag(4)? {
            canary |= READS.contains(&kind.as_str());
        } else if !READS.contains(&kind.as_str()) {
            tickets.insert((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    Ok(match canary {
        true => Ok(tickets),
        false => Err("the instrument wait/lock/metadata/sql/mdl is off".to_owned()),
    })
}

async fn of_plugin(work: &mut Work) -> Result<Result<BTreeSet<Ticket>, Doubt>, StoreError> {
    let rows = work
        .rows(include_str!("sql/locks_of_plugin.sql"), ())
        .await?;
    let (mut tickets, mut canary) = (BTreeSet::new(), false);
    for row in &rows {
        let kind = row.text(1)?;
        if row.flag(2)? {
            canary |= READS.contains(&kind.as_str());
        } else if !READS.contains(&kind.as_str()) {
            tickets.insert((row.get(0)?, 0, 0));
        }
    }
    Ok(match canary {
        true => Ok(tickets),
        false => Err("the plugin metadata_lock_info does not see our own lock".to_owned()),
    })
}

/// The transactions that XA has prepared, of any session.
async fn prepared(work: &mut Work) -> Result<Prepared, StoreError> {
    // No statement that can be prepared, on every server.
    let rows = work.query("xa recover").await?;
    let operation = work.operation();
    rows.into_iter()
        .map(|row| {
            let row = super::connection::Fields::of(operation, row);
            let (format, global): (i64, i64) = (row.get(0)?, row.get(1)?);
            let mut xid = format.to_be_bytes().to_vec();
            xid.extend(global.to_be_bytes());
            xid.extend(row.get::<Vec<u8>>(3)?);
            Ok(xid)
        })
        .collect()
}

/// A lock for reading on the outbox that lasts an instant. It is granted while nobody writes; a
/// request that waits holds up no writer.
#[derive(Debug)]
pub(super) struct Probe {
    link: Link,
}

impl Probe {
    pub(super) fn new(link: Link) -> Self {
        Self { link }
    }

    /// Tries it, for a second at most. Answers the prepared transactions of the moment after it was
    /// granted, or the reason why it was not.
    pub(super) async fn try_it(
        &self,
        operation: &'static str,
    ) -> Result<Result<Prepared, Doubt>, StoreError> {
        let mut work = self.link.work(operation).await?;
        let result = async {
            // One packet: a relay that stands still in between would hold up all writers.
            let sql = "set session lock_wait_timeout = 1; \
                       lock tables posthaste_outbox read; unlock tables";
            match work.run(sql).await {
                Ok(()) => Ok(Ok(prepared(&mut work).await?)),
                Err(StoreError::Unavailable { reason, .. }) => Ok(Err(reason)),
                Err(error) => Ok(Err(error.to_string())),
            }
        };
        let result = result.await;
        work.end(result).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_forgives_no_blindness_that_came_after_it_was_asked_for() {
        let trust = Trust::default();
        assert!(!trust.is_lost());
        trust.lose();
        let asked_behind = trust.blind_looks();
        trust.lose();
        trust.regain(asked_behind);
        assert!(trust.is_lost());
        trust.regain(trust.blind_looks());
        assert!(!trust.is_lost());
    }
}
