//! The markers of blocked keys, and the way back into the main group.

use std::sync::LazyLock;

use async_trait::async_trait;
use posthaste_engine::{ClaimMarkers, Cursor, Marker, SideRead, StoreError, audit as words};
use rusqlite::named_params;

use super::{
    audit,
    claimed::SqliteClaimed,
    connection::{execute, limit_of},
    cursor::{self, Position},
    destination,
    error::{classify, unexpected},
    guard::Changed,
    holds_key::with_holds_key,
    parking::marker,
    side_read::SqliteSideRead,
};
use crate::about::About;

static MARKERS: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/markers.sql")));
static MARKER_DELETE: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/marker_delete.sql")));

#[async_trait]
impl ClaimMarkers for SqliteClaimed {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        const OPERATION: &str = "read the markers";
        let destination_id = self.guard().destination_id();
        let after = after.map(str::to_owned);
        let worker = self.parking(OPERATION).await?;
        self.guard()
            .read(&worker, OPERATION, move |tx, _| {
                let fail = |error| classify(OPERATION, error);
                let mut statement = tx.prepare_cached(&MARKERS).map_err(fail)?;
                let mut rows = statement
                    .query(named_params! {
                        ":destination_id": destination_id,
                        ":after": after,
                        ":limit": limit_of(limit)
                    })
                    .map_err(fail)?;
                let mut markers = Vec::new();
                while let Some(row) = rows.next().map_err(fail)? {
                    markers.push(Marker {
                        key: row.get(0).map_err(fail)?,
                        at: Position(row.get(1).map_err(fail)?).cursor(),
                        released: row.get(2).map_err(fail)?,
                    });
                }
                Ok(markers)
            })
            .await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "ask for markers";
        let destination_id = self.guard().destination_id();
        let keys = keys.to_vec();
        let worker = self.parking(OPERATION).await?;
        self.guard()
            .read(&worker, OPERATION, move |tx, _| {
                let mut marked = Vec::new();
                for key in keys {
                    if marker(tx, OPERATION, destination_id, &key)?.is_some() {
                        marked.push(key);
                    }
                }
                Ok(marked)
            })
            .await
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        Ok(Box::new(SqliteSideRead::begin(self, keys).await?))
    }

    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError> {
        const OPERATION: &str = "join released keys";
        let (destination_id, by) = self.guard().of();
        let at = cursor::seq(OPERATION, at)?;
        let keys = keys.to_vec();
        self.guard()
            .write(&self.writer, OPERATION, move |tx, standing| {
                // I1: further on, the main group has passed over events of these keys that only
                // their markers still stand for.
                if standing.seq != at {
                    return Err(unexpected(
                        OPERATION,
                        format!(
                            "the side read ends at {at}, the main group stands at {}",
                            standing.seq
                        ),
                    ));
                }
                for key in &keys {
                    let removed = execute(
                        tx,
                        OPERATION,
                        &MARKER_DELETE,
                        named_params! { ":destination_id": destination_id, ":key": key, ":at": at },
                    )?;
                    if removed == 0 {
                        return Err(unexpected(
                            OPERATION,
                            "a key has no marker, or a parked event still holds it",
                        ));
                    }
                }
                let name = destination::name(tx, OPERATION, destination_id)?;
                let about = About::relay(by, &name);
                audit::write(tx, OPERATION, words::JOIN, about, &[&keys.len()])?;
                Ok(((), Changed::Something))
            })
            .await
    }
}
