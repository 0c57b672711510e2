//! The markers of blocked keys.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use posthaste_engine::{Cursor, Marker, StoreError};
use tokio_postgres::types::Type;

use super::{
    claim_connection::MarkerStatements,
    client::Typed,
    error::classify,
    holds_key::with_holds_key,
    position::Position,
    server_connection::{ServerConnection, position},
    sweep::Place,
    types::Snapshot,
};

static MARKERS: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/markers.sql")));
const MARKED: &str = include_str!("sql/marked.sql");
const MARKER: &str = include_str!("sql/marker.sql");
static MARKER_MOVE: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/marker_move.sql")));
static JOIN: LazyLock<String> = LazyLock::new(|| with_holds_key(include_str!("sql/join.sql")));

/// Where markers are to stand.
#[derive(Default)]
pub(super) struct Places {
    lows: Vec<Snapshot>,
    highs: Vec<Option<Snapshot>>,
    lasts: Vec<Option<i64>>,
    floors: Vec<i64>,
    floor_mins: Vec<i64>,
}

impl Places {
    pub(super) fn push(&mut self, at: &Position) {
        let within = at.within.as_ref();
        let (high, last) = within.map(|(h, last)| (h.as_ref().clone(), *last)).unzip();
        self.lows.push(at.low.as_ref().clone());
        self.highs.push(high);
        self.lasts.push(last);
        self.floors.push(at.floors.floor);
        self.floor_mins.push(at.floors.floor_min);
    }

    pub(super) fn params(&self) -> [Typed<'_>; 5] {
        [
            (&self.lows, Type::PG_SNAPSHOT_ARRAY),
            (&self.highs, Type::PG_SNAPSHOT_ARRAY),
            (&self.lasts, Type::INT8_ARRAY),
            (&self.floors, Type::INT8_ARRAY),
            (&self.floor_mins, Type::INT8_ARRAY),
        ]
    }
}

#[async_trait]
impl MarkerStatements for ServerConnection {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        const OPERATION: &str = "read the markers";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (mask, shift) = self.slots();
        let rows = self
            .writer
            .query_typed(
                &MARKERS,
                &[
                    (&self.grant.destination_id, Type::INT8),
                    (&mask, Type::BYTEA),
                    (&shift, Type::INT4),
                    (&limit, Type::INT8),
                    (&after, Type::TEXT),
                ],
            )
            .await
            .map_err(|error| classify(OPERATION, error))?;
        rows.iter()
            .map(|row| {
                let at = position(row).map_err(|error| classify(OPERATION, error))?;
                Ok(Marker {
                    key: row.get("key"),
                    at: Cursor::whole(Arc::new(Place::at(&at))),
                    released: row.get("released"),
                })
            })
            .collect()
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let rows = self
            .writer
            .query_typed(
                MARKED,
                &[
                    (&self.grant.destination_id, Type::INT8),
                    (&keys, Type::TEXT_ARRAY),
                ],
            )
            .await
            .map_err(|error| classify("ask for markers", error))?;
        Ok(rows.iter().map(|row| row.get("key")).collect())
    }

    async fn stands(&self, keys: &[String]) -> Result<HashMap<String, Position>, StoreError> {
        let failed = |error| classify("side read", error);
        let (mask, shift) = self.slots();
        let rows = self
            .writer
            .query_typed(
                MARKER,
                &[
                    (&self.grant.destination_id, Type::INT8),
                    (&keys, Type::TEXT_ARRAY),
                    (&mask, Type::BYTEA),
                    (&shift, Type::INT4),
                ],
            )
            .await
            .map_err(failed)?;
        let stands = rows
            .iter()
            .map(|row| position(row).map(|at| (row.get("key"), at)));
        stands.collect::<Result<_, _>>().map_err(failed)
    }

    async fn move_markers(&self, to: &[(String, Position)]) -> Result<bool, StoreError> {
        let mut places = Places::default();
        let mut keys = Vec::new();
        for (key, at) in to {
            keys.push(key);
            places.push(at);
        }
        let mut params: Vec<Typed<'_>> = vec![(&keys, Type::TEXT_ARRAY)];
        params.extend(places.params());
        let row = self
            .change("advance a side read", &MARKER_MOVE, &params)
            .await?;
        Ok(row.get("changed"))
    }

    async fn remove_markers(&self, keys: &[String]) -> Result<bool, StoreError> {
        let row = self
            .change("join", &JOIN, &[(&keys, Type::TEXT_ARRAY)])
            .await?;
        Ok(row.get("changed"))
    }
}
