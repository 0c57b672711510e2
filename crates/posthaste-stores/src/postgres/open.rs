//! Opening a claim: its connections, and the places from which it goes on.

use std::sync::Arc;

use posthaste_engine::StoreError;
use tokio::sync::OnceCell;
use tokio_postgres::types::Type;

use super::{
    Grant,
    claim::{none_of, number},
    claimed::{OpenedRows, PostgresClaimed},
    connection::Connector,
    converge::Group,
    error::classify,
    hints::Hints,
    layout::GroupRow,
    prepared::{DUE, DUE_TYPES, PreparedAdvance},
    read::Reader,
    server_connection::{ServerConnection, position},
    session_settings::Work,
};

const OPEN: &str = include_str!("sql/open.sql");

/// Reads the cursor under a claim. Only a connection of its own may use what it finds: an error on
/// it ends this value, and the engine claims anew.
pub(super) async fn open(
    connector: &Arc<Connector>,
    hints: &Hints,
    grant: Grant,
) -> Result<PostgresClaimed<ServerConnection>, StoreError> {
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
    let found = OpenedRows {
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
    let advance = PreparedAdvance::prepare(&writer).await;
    let due = writer.prepare(DUE.clone(), &DUE_TYPES).await;
    let (advance, due) = (advance.map_err(failed)?, due.map_err(failed)?);
    PostgresClaimed::new(&grant, found, |slots| ServerConnection {
        reader: Arc::new(Reader::new(reads, &grant)),
        slots,
        grant: grant.clone(),
        leaf_bits,
        writer,
        advance,
        due,
        connector: Arc::clone(connector),
        side_reader: OnceCell::new(),
        hints,
    })
}

fn group(row: &tokio_postgres::Row) -> Result<Group, StoreError> {
    let mut partitions = none_of(row.get("count"))?;
    for partition in row.get::<_, Vec<i32>>("partitions") {
        partitions.insert(number(partition)?);
    }
    Ok(Group {
        row: GroupRow {
            ids: vec![row.get("id")],
            position: position(row).map_err(|error| classify("open", error))?,
        },
        partitions,
    })
}
