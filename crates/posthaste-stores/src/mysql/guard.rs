//! Every change under a claim first locks the claim's row, and tests there that the claim is the
//! newest and that the server still has the history that this relay has seen.
//!
//! All rows of a claim bear its epoch and are revoked together, so that one of them speaks for all.
//! Its lock orders us and a claim or a revocation: a change under an epoch is committed before the
//! epoch rises, or refused.
//!
//! After a crash, or on another server after a fail-over, changes may be missing that this relay
//! was told were made, and numbers of the outbox are drawn again. Each change under a claim raises
//! the row's version. A lower one than was seen means that the history is another one.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use mysql_async::params;
use posthaste_engine::{Claim, OrderBy, StoreError};
use uuid::Uuid;

use super::{
    connection::{Fields, Link, Work},
    error::unexpected,
};

/// The rights that a claim gives, in the database's terms.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) destination_id: i64,
    /// The least row of cursors that is owned.
    pub(super) cursor_id: i64,
    pub(super) registration: Uuid,
    pub(super) order_by: OrderBy,
    pub(super) epoch: i64,
    pub(super) store_id: Uuid,
    /// The version of that row, as the claim left it.
    pub(super) ver: i64,
}

/// The right to change things under one claim. Clones share what they have seen.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    grant: Grant,
    seen: Arc<AtomicI64>,
}

impl Guard {
    pub(super) fn new(operation: &'static str, claim: &Claim) -> Result<Self, StoreError> {
        let grant: &Grant = claim
            .inner
            .downcast_ref()
            .ok_or_else(|| unexpected(operation, "a claim of another store"))?;
        Ok(Self {
            grant: grant.clone(),
            seen: Arc::new(AtomicI64::new(grant.ver)),
        })
    }

    /// The order that the destination keeps.
    pub(super) fn order_by(&self) -> OrderBy {
        self.grant.order_by
    }

    /// The destination, and the order that it keeps.
    pub(super) fn ordered(&self) -> (i64, OrderBy) {
        (self.grant.destination_id, self.grant.order_by)
    }

    pub(super) fn destination_id(&self) -> i64 {
        self.grant.destination_id
    }

    pub(super) fn cursor_id(&self) -> i64 {
        self.grant.cursor_id
    }

    pub(super) fn epoch(&self) -> i64 {
        self.grant.epoch
    }

    pub(super) fn registration(&self) -> Uuid {
        self.grant.registration
    }

    /// The last version that was known to be committed.
    pub(super) fn seen(&self) -> i64 {
        self.seen.load(Ordering::Acquire)
    }

    /// The destination, and the relay that holds it.
    pub(super) fn of(&self) -> (i64, Uuid) {
        (self.grant.destination_id, self.grant.registration)
    }

    /// Reads under this claim, in one snapshot.
    pub(super) async fn read(
        &self,
        link: &Link,
        operation: &'static str,
    ) -> Result<Work, StoreError> {
        let seen = self.seen();
        self.tested(link.snapshot(operation).await?, seen).await
    }

    /// Looks at a value under this claim, by one statement: the third column of the answer.
    pub(super) async fn look(
        &self,
        link: &Link,
        operation: &'static str,
        value: &str,
    ) -> Result<Fields, StoreError> {
        let seen = self.seen();
        let mut work = link.work(operation).await?;
        let sql = format!(
            "select guard.store_id, guard.ver, {value} from ({}) as guard",
            include_str!("sql/guard.sql")
        );
        let row = self.test(&mut work, seen, &sql).await;
        work.end(row).await
    }

    /// `seen`: the version as it was before the view of this work was taken.
    async fn tested(&self, mut work: Work, seen: i64) -> Result<Work, StoreError> {
        match self
            .test(&mut work, seen, include_str!("sql/guard.sql"))
            .await
        {
            Ok(_) => Ok(work),
            Err(error) => work.end(Err(error)).await,
        }
    }

    /// Begins to change something under this claim.
    pub(super) async fn write(
        &self,
        link: &Link,
        operation: &'static str,
    ) -> Result<Guarded, StoreError> {
        // Taken before the lock: all that was committed by now is there.
        let seen = self.seen();
        let mut work = link.begin(operation).await?;
        let tested = self.lock(&mut work, seen).await;
        match tested {
            Ok(()) => Ok(Guarded {
                work,
                seen: Arc::clone(&self.seen),
                cursor_id: self.grant.cursor_id,
            }),
            Err(error) => work.end(Err(error)).await,
        }
    }

    async fn lock(&self, work: &mut Work, seen: i64) -> Result<(), StoreError> {
        let of = params! { "cursor_id" => self.grant.cursor_id };
        let sql = "select id from posthaste_cursors where id = :cursor_id for update";
        if work.at_most_one(sql, of).await?.is_none() {
            return Err(StoreError::Fenced {
                operation: work.operation(),
            });
        }
        self.test(work, seen, include_str!("sql/guard.sql"))
            .await
            .map(drop)
    }

    async fn test(&self, work: &mut Work, seen: i64, sql: &str) -> Result<Fields, StoreError> {
        let of = params! {
            "cursor_id" => self.grant.cursor_id,
            "destination_id" => self.grant.destination_id,
            "epoch" => self.grant.epoch,
            "registration" => self.grant.registration.to_string(),
        };
        let operation = work.operation();
        let row = work.at_most_one(sql, of).await?;
        let row = row.ok_or(StoreError::IncarnationChanged { operation })?;
        if row.text(0)? != self.grant.store_id.to_string() {
            return Err(StoreError::IncarnationChanged { operation });
        }
        let ver: Option<i64> = row.get(1)?;
        match ver {
            None => Err(StoreError::Fenced { operation }),
            Some(ver) if ver < seen => Err(StoreError::IncarnationChanged { operation }),
            Some(_) => Ok(row),
        }
    }
}

/// A transaction under a claim.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) work: Work,
    seen: Arc<AtomicI64>,
    cursor_id: i64,
}

impl Guarded {
    /// Commits what was changed, or takes it back.
    pub(super) async fn end<T>(mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let raised = match result {
            Ok(answer) => self.raise().await.map(|ver| (answer, ver)),
            Err(error) => Err(error),
        };
        let (answer, ver) = self.work.end(raised).await?;
        self.seen.fetch_max(ver, Ordering::AcqRel);
        Ok(answer)
    }

    /// Ends a transaction that has changed nothing.
    pub(super) async fn end_unchanged<T>(self, answer: T) -> Result<T, StoreError> {
        self.work.end(Ok(answer)).await
    }

    async fn raise(&mut self) -> Result<i64, StoreError> {
        let of = params! { "cursor_id" => self.cursor_id };
        let sql = "update posthaste_cursors set ver = ver + 1 where id = :cursor_id";
        self.work.execute(sql, of.clone()).await?;
        let sql = "select ver from posthaste_cursors where id = :cursor_id";
        self.work.one(sql, of).await?.get(0)
    }
}
