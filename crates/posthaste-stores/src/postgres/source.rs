//! What the owner of a claim holds: one connection that reads, one that changes.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use posthaste_engine::{
    Budget, Due, EventRef, Marker, Parking, Settlement, StoreError, with_audit_words,
};
use tokio::sync::OnceCell;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{
    Grant,
    advance::Advance,
    claim::{none_of, number},
    claimed::{Found, PostgresClaimed},
    client::{Client, Prepared, Typed, Work},
    connection::Connector,
    converge::{Group, Row},
    course::Stored,
    error::classify,
    hints::{Heard, Hints},
    parking,
    read::{Read, Reader, Scope},
    slots::Slots,
    statements::Statements,
    sweep::{Floors, Position, Request},
    types::Snapshot,
};

const OPEN: &str = include_str!("sql/open.sql");
const GUARD: &str = include_str!("sql/guard.sql");
const REFUSED: &str = include_str!("sql/refused.sql");
const REPORT: &str = include_str!("sql/report.sql");
const FENCES_TAKEN: &str = include_str!("sql/fences_taken.sql");
const REACHED: &str = include_str!("sql/reached.sql");

/// A statement whose text has its `{guard}` filled in.
pub(super) fn guarded(sql: &str) -> String {
    with_audit_words(sql).replace("{guard}", GUARD)
}

/// What the main group and its side reads share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) grant: Grant,
    leaf_bits: u8,
    /// Of all that the claim owns.
    slots: Option<Slots>,
    reader: Arc<Reader>,
    pub(super) writer: Client,
    pub(super) advance: Advance,
    pub(super) due: Prepared,
    connector: Arc<Connector>,
    /// A side read may look through whole segments; the main group is not to wait for that.
    side_reader: OnceCell<Arc<Reader>>,
    /// None: nobody hints.
    hints: Option<Heard>,
}

/// Reads the cursor under a claim. Only a connection of its own may use what it finds: an error on it
/// ends this value, and the engine claims anew.
pub(super) async fn open(
    connector: &Arc<Connector>,
    hints: &Hints,
    grant: Grant,
) -> Result<PostgresClaimed, StoreError> {
    const OPERATION: &str = "open";
    let failed = |error| classify(OPERATION, error);
    let (reads, writer) = tokio::try_join!(
        connector.connect(Work::Read),
        connector.connect(Work::Change)
    )?;
    let rows = reads
        .query_typed(
            OPEN,
            &[
                (&grant.destination_id, Type::INT8),
                (&grant.epoch, Type::INT8),
                (&grant.registration, Type::UUID),
            ],
        )
        .await
        .map_err(failed)?;
    let row = rows.first().ok_or(StoreError::Fenced {
        operation: OPERATION,
    })?;
    let leaf_bits = row
        .get::<_, Option<i16>>("leaf_bits")
        .and_then(|bits| u8::try_from(bits).ok())
        .filter(|bits| *bits < 63)
        .ok_or_else(|| StoreError::Schema {
            operation: OPERATION,
            reason: "posthaste.settings lacks leaf_bits: run `posthaste init --store URL`".into(),
        })?;
    let found = Found {
        groups: rows.iter().map(group).collect::<Result<Vec<_>, _>>()?,
        none: none_of(row.get("count"))?,
        token: row.get("token"),
        sequence: row.get("sequence"),
        leaf_bits,
    };
    let hints = match row.get::<_, Option<bool>>("notify") {
        Some(true) => Some(hints.listen(connector)),
        _ => None,
    };
    let advance = Advance::prepare(&writer).await;
    let due = writer
        .prepare(parking::DUE.clone(), &parking::DUE_TYPES)
        .await;
    let (advance, due) = (advance.map_err(failed)?, due.map_err(failed)?);
    PostgresClaimed::new(&grant, found, |found| {
        Arc::new(Inner {
            reader: Arc::new(Reader::new(reads, grant.destination_id, grant.token)),
            slots: found.slots(),
            grant: grant.clone(),
            leaf_bits,
            writer,
            advance,
            due,
            connector: Arc::clone(connector),
            side_reader: OnceCell::new(),
            hints,
        })
    })
}

fn group(row: &tokio_postgres::Row) -> Result<Group, StoreError> {
    let mut partitions = none_of(row.get("count"))?;
    for partition in row.get::<_, Vec<i32>>("partitions") {
        partitions.insert(number(partition)?);
    }
    Ok(Group {
        row: Row {
            ids: vec![row.get("id")],
            position: position(row).map_err(|error| classify("open", error))?,
        },
        partitions,
    })
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

impl Inner {
    async fn side_reader(&self) -> Result<Arc<Reader>, StoreError> {
        let connect = || async {
            let client = self.connector.connect(Work::Read).await?;
            Ok(Arc::new(Reader::new(
                client,
                self.grant.destination_id,
                self.grant.token,
            )))
        };
        self.side_reader.get_or_try_init(connect).await.cloned()
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
impl Statements for Inner {
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

    async fn store_one(&self, stored: &Stored) -> Result<(), StoreError> {
        Inner::store_one(self, stored).await
    }

    async fn store_several(&self, stored: &Stored) -> Result<(), StoreError> {
        Inner::store_several(self, stored).await
    }

    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        parking::markers(self, after, limit).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        parking::marked(self, keys).await
    }

    async fn stands(&self, keys: &[String]) -> Result<HashMap<String, Position>, StoreError> {
        parking::stands(self, keys).await
    }

    async fn move_markers(&self, to: &[(String, Position)]) -> Result<bool, StoreError> {
        parking::move_markers(self, to).await
    }

    async fn join(&self, keys: &[String]) -> Result<bool, StoreError> {
        parking::join(self, keys).await
    }

    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError> {
        parking::set_aside(self).await
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        parking::park(self, events).await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        parking::due(self, limit).await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        parking::settle(self, id, settlement).await
    }

    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        self.writer
            .execute_typed(
                &guarded(REPORT),
                &self
                    .grant
                    .guard(&[(&breaker, Type::TEXT), (&last_error, Type::TEXT)]),
            )
            .await
            .map(drop)
            .map_err(|error| classify("report", error))
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let cluster = [(&cluster as _, Type::TEXT)];
        let row = self.change("store the cluster", REACHED, &cluster).await?;
        Ok(row.get("former"))
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        self.change(
            "note taken fences",
            FENCES_TAKEN,
            &[(&former, Type::UUID_ARRAY)],
        )
        .await
        .map(drop)
    }

    async fn hinted(&self) {
        match &self.hints {
            Some(heard) => heard.hint().await,
            None => std::future::pending().await,
        }
    }
}
