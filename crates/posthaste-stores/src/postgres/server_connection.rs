//! The connections of one claim: one that reads, one that changes, and one for side reads.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{Budget, StoreError, with_audit_words};
use tokio::sync::OnceCell;
use tokio_postgres::{Row, types::Type};

use super::{
    Grant,
    claim_connection::PageStatements,
    client::{Client, Prepared, Typed},
    connection::Connector,
    error::classify,
    hints::Heard,
    position::{Floors, Position},
    prepared::PreparedAdvance,
    read::{Read, Reader, Scope},
    session_settings::Work,
    slots::Slots,
    sweep::Request,
    types::Snapshot,
};

const GUARD: &str = include_str!("sql/guard.sql");
const REFUSED: &str = include_str!("sql/refused.sql");

/// A statement whose text has its `{guard}` filled in.
pub(super) fn guarded(sql: &str) -> String {
    with_audit_words(sql).replace("{guard}", GUARD)
}

/// Everything that the main group and its side reads share.
#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) grant: Grant,
    pub(super) leaf_bits: u8,
    /// Of all that the claim owns.
    pub(super) slots: Option<Slots>,
    pub(super) reader: Arc<Reader>,
    pub(super) writer: Client,
    pub(super) advance: PreparedAdvance,
    pub(super) due: Prepared,
    pub(super) connector: Arc<Connector>,
    /// A side read may look through whole segments; the main group is not to wait for that.
    pub(super) side_reader: OnceCell<Arc<Reader>>,
    /// None: nobody hints.
    pub(super) hints: Option<Heard>,
}

/// Reads `low, high, seq, floor, floor_min`.
pub(super) fn position(row: &tokio_postgres::Row) -> Result<Position, tokio_postgres::Error> {
    let high: Option<Snapshot> = row.try_get("high")?;
    let seq: Option<i64> = row.try_get("seq")?;
    Ok(Position {
        low: Arc::new(row.try_get("low")?),
        within: high.map(Arc::new).zip(seq),
        floors: Floors {
            floor: row.try_get("floor")?,
            floor_min: row.try_get("floor_min")?,
        },
    })
}

impl Grant {
    /// The parameters of a guarded statement: the guard's own come first.
    pub(super) fn guard<'a>(&'a self, params: &[Typed<'a>]) -> Vec<Typed<'a>> {
        let guard: [Typed<'_>; 5] = [
            (&self.destination_id, Type::INT8),
            (&self.cursor_id, Type::INT8),
            (&self.epoch, Type::INT8),
            (&self.registration, Type::UUID),
            (&self.token, Type::UUID),
        ];
        guard.into_iter().chain(params.iter().cloned()).collect()
    }
}

impl ServerConnection {
    async fn side_reader(&self) -> Result<Arc<Reader>, StoreError> {
        let connect = || async {
            let client = self.connector.connect(Work::Read).await?;
            Ok(Arc::new(Reader::new(client, &self.grant)))
        };
        self.side_reader.get_or_try_init(connect).await.cloned()
    }

    /// Runs a guarded statement: the guard's parameters are its first five.
    pub(super) async fn change(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Typed<'_>],
    ) -> Result<Row, StoreError> {
        let row = self
            .writer
            .query_typed_one(&guarded(sql), &self.grant.guard(params))
            .await
            .map_err(|error| classify(operation, error))?;
        if row.get::<_, bool>("guarded") {
            Ok(row)
        } else {
            Err(self.refused(operation).await)
        }
    }

    /// Why a guarded statement changed nothing.
    pub(super) async fn refused(&self, operation: &'static str) -> StoreError {
        let same = self
            .writer
            .query_typed_one(REFUSED, &[(&self.grant.token, Type::UUID)])
            .await
            .map(|row| row.get::<_, bool>(0));
        match same {
            Ok(true) => StoreError::Fenced { operation },
            Ok(false) => StoreError::IncarnationChanged { operation },
            Err(error) => classify(operation, error),
        }
    }

    /// The slots of the claim, as statements take them; none: all.
    pub(super) fn slots(&self) -> (Option<&[u8]>, i32) {
        let slots = self.slots.as_ref();
        (
            slots.map(|slots| &slots.mask[..]),
            slots.map_or(0, |slots| slots.shift),
        )
    }
}

#[async_trait]
impl PageStatements for ServerConnection {
    fn leaf_bits(&self) -> u8 {
        self.leaf_bits
    }

    async fn read(
        &self,
        operation: &'static str,
        request: &Request,
        scope: Scope<'_>,
        budget: Budget,
    ) -> Result<Read, StoreError> {
        match scope {
            Scope::Main(_) => {
                let read = self.reader.read(operation, request, scope, budget).await?;
                if let Some(heard) = &self.hints {
                    heard.read(!read.events.is_empty());
                }
                Ok(read)
            }
            Scope::Keys { .. } => {
                let reader = self.side_reader().await?;
                reader.read(operation, request, scope, budget).await
            }
        }
    }

    async fn hinted(&self) {
        match &self.hints {
            Some(heard) => heard.hint().await,
            None => std::future::pending().await,
        }
    }
}
