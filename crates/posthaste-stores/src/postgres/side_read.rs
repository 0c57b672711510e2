//! Reads one key from its marker on: first the rest of the difference in which the marker stands,
//! then, up to whatever joinable place the main group has come to, the rows between.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError, StoredEvent};

use tokio_postgres::types::Type;

use super::{
    error::classify,
    read::{Read, Reader, Scope},
    source::{Inner, place_of, position},
    sweep::{Floors, Place, Position, Request, segment_end},
    types::Snapshot,
};

const MARKER: &str = include_str!("sql/marker.sql");
const MARKER_MOVE: &str = include_str!("sql/marker_move.sql");

/// Segments without a row of the key that one call walks through before it lets its caller look up.
const EMPTY_PAGES_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct PostgresSideRead {
    inner: Arc<Inner>,
    reader: Arc<Reader>,
    key: String,
    at: Position,
    /// Floors of the difference's `high`, where they are known: not when it is a stored marker's.
    high_floors: Option<Floors>,
    /// The greatest `seq` that the difference can hold, once F was read.
    end: Option<i64>,
}

impl PostgresSideRead {
    pub(super) async fn open(inner: Arc<Inner>, key: &str) -> Result<Self, StoreError> {
        const OPERATION: &str = "side read";
        let failed = |error| classify(OPERATION, error);
        let (mask, shift) = inner.slots();
        let row = inner
            .writer
            .query_typed_opt(
                MARKER,
                &[
                    (&inner.grant.destination_id, Type::INT8),
                    (&key, Type::TEXT),
                    (&mask, Type::BYTEA),
                    (&shift, Type::INT4),
                ],
            )
            .await
            .map_err(failed)?
            .ok_or_else(|| StoreError::Bug {
                operation: OPERATION,
                reason: "the key has no marker".to_owned(),
            })?;
        let at = position(&row).map_err(failed)?;
        let reader = inner.side_reader().await?;
        Ok(Self {
            inner,
            reader,
            key: key.to_owned(),
            at,
            high_floors: None,
            end: None,
        })
    }

    /// Begins the difference to the target; false: there is none.
    fn begin(&mut self, target: &Position) -> bool {
        // After a restart the main group may stand before a marker that was moved under the former
        // claim. Then nothing is left to read, and what follows is a repeat.
        if target.low == self.at.low || !target.low.covers(&self.at.low) {
            return false;
        }
        let first = self.at.floors.floor_min;
        self.at.within = Some((Arc::clone(&target.low), first));
        self.high_floors = Some(target.floors);
        self.end = None;
        true
    }

    async fn read_once(
        &mut self,
        budget: Budget,
        high: Arc<Snapshot>,
        last: i64,
    ) -> Result<(Place, Vec<StoredEvent>), StoreError> {
        const OPERATION: &str = "side read";
        let segment_end = segment_end(last, self.inner.leaf_bits);
        let until = self.end.map_or(segment_end, |end| end.min(segment_end));
        let (low, floors) = (Arc::clone(&self.at.low), self.at.floors);
        let request = Request::Page {
            low: Arc::clone(&low),
            high: Arc::clone(&high),
            last,
            until,
        };
        let Read { answer, events, .. } = self
            .reader
            .read(OPERATION, &request, Scope::Key(&self.key), budget)
            .await?;
        let last = match answer.last_row {
            Some(row) if answer.more => row,
            _ => until,
        };
        let end = *self.end.get_or_insert(answer.sequence);
        if last < end {
            self.at.within = Some((Arc::clone(&high), last));
            return Ok((Place::of_side_read(&low, floors, &high, last, None), events));
        }
        // Without its own floors `high` takes those of `low`, which hold for all that comes later.
        let at_end = self.high_floors.take().unwrap_or(floors);
        self.at = Position {
            low: Arc::clone(&high),
            within: None,
            floors: at_end,
        };
        let place = Place::of_side_read(&low, floors, &high, last, Some(at_end));
        Ok((place, events))
    }
}

#[async_trait]
impl SideRead for PostgresSideRead {
    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let target = place_of("side read", until)?.position(until.seq());
        if target.within.is_some() {
            return Err(StoreError::Bug {
                operation: "side read",
                reason: "its target is not a joinable place".to_owned(),
            });
        }
        for _ in 0..EMPTY_PAGES_MAX {
            let Some((high, last)) = self.at.within.clone() else {
                if self.begin(&target) {
                    continue;
                }
                return Ok(Page {
                    caught_up: true,
                    ..Inner::page(Arc::new(Place::at(&self.at)), Vec::new())
                });
            };
            let (place, events) = self.read_once(budget, high, last).await?;
            if !events.is_empty() {
                return Ok(Inner::page(Arc::new(place), events));
            }
        }
        Ok(Inner::page(Arc::new(Place::at(&self.at)), Vec::new()))
    }

    async fn advance(&mut self, at: &Cursor, _finished: &[i64]) -> Result<(), StoreError> {
        const OPERATION: &str = "advance a side read";
        let to = place_of(OPERATION, at)?.position(at.seq());
        let (high, seq) = to.within.as_ref().map(|(h, s)| (&**h, *s)).unzip();
        let row = self
            .inner
            .change(
                OPERATION,
                MARKER_MOVE,
                &[
                    (&self.key, Type::TEXT),
                    (&*to.low, Type::PG_SNAPSHOT),
                    (&high, Type::PG_SNAPSHOT),
                    (&seq, Type::INT8),
                    (&to.floors.floor, Type::INT8),
                    (&to.floors.floor_min, Type::INT8),
                ],
            )
            .await?;
        if row.get::<_, bool>("changed") {
            return Ok(());
        }
        Err(StoreError::Bug {
            operation: OPERATION,
            reason: "the key has no marker".to_owned(),
        })
    }
}
