//! The statements that a claim prepares.

use std::sync::LazyLock;

use tokio::sync::Mutex;
use tokio_postgres::types::Type;

use super::{
    client::{Client, Prepared},
    holds_key::with_holds_key,
};

const ADVANCE: &str = include_str!("sql/advance.sql");
const TYPES: [Type; 11] = [
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::UUID,
    Type::UUID,
    Type::PG_SNAPSHOT,
    Type::PG_SNAPSHOT,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
];
pub(super) static DUE: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/due.sql")));
pub(super) const DUE_TYPES: [Type; 4] = [Type::INT8, Type::INT8, Type::BYTEA, Type::INT4];
/// Seldom needed: prepared each time.
pub(super) const PUT_OFF: &str = include_str!("sql/put_off.sql");
pub(super) const PUT_OFF_TYPES: [Type; 6] = [
    Type::INT8,
    Type::INT8,
    Type::BYTEA,
    Type::INT4,
    Type::INT8,
    Type::INT8,
];

/// How the place of a claim's row is stored.
#[derive(Debug)]
pub(super) struct PreparedAdvance {
    /// Changes the newest version of the row.
    pub(super) anywhere: Prepared,
    /// Changes the version that our last advance wrote.
    pub(super) there: Prepared,
    /// Where that version is, as PostgreSQL writes it. Another statement may have written a newer
    /// one meanwhile.
    pub(super) place: Mutex<Option<String>>,
}

impl PreparedAdvance {
    pub(super) async fn prepare(writer: &Client) -> Result<Self, tokio_postgres::Error> {
        const ANYWHERE: &[Type] = TYPES.split_at(10).0;
        let sql = |place| ADVANCE.replace("{place}", place);
        Ok(Self {
            anywhere: writer.prepare(sql(""), ANYWHERE).await?,
            there: writer
                .prepare(sql("c.ctid = $11::text::tid and "), &TYPES)
                .await?,
            place: Mutex::default(),
        })
    }
}
