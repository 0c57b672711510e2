//! Reads one key from its marker on: first the rest of the difference in which the marker stands,
//! then, up to whatever joinable place the main group has come to, the rows between.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError, StoredEvent};

use super::{
    claimed::{page_of, place_of},
    read::{Read, Scope},
    statements::Statements,
    sweep::{Floors, Place, Position, Request, segment_end},
    types::Snapshot,
};

/// Segments without a row of the key that one call walks through before it lets its caller look up.
const EMPTY_PAGES_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct PostgresSideRead {
    statements: Arc<dyn Statements>,
    key: String,
    at: Position,
    /// Floors of the difference's `high`, where they are known: not when it is a stored marker's.
    high_floors: Option<Floors>,
    /// The greatest `seq` that the difference can hold, once F was read.
    end: Option<i64>,
}

impl PostgresSideRead {
    pub(super) async fn open(
        statements: Arc<dyn Statements>,
        key: &str,
    ) -> Result<Self, StoreError> {
        let marker = statements.marker(key).await?;
        let at = marker.ok_or_else(|| no_marker("side read"))?;
        Ok(Self {
            statements,
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
        let segment_end = segment_end(last, self.statements.leaf_bits());
        let until = self.end.map_or(segment_end, |end| end.min(segment_end));
        let (low, floors) = (Arc::clone(&self.at.low), self.at.floors);
        let request = Request::Page {
            low: Arc::clone(&low),
            high: Arc::clone(&high),
            last,
            until,
        };
        let Read { answer, events, .. } = self
            .statements
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
                    ..page_of(Arc::new(Place::at(&self.at)), Vec::new())
                });
            };
            let (place, events) = self.read_once(budget, high, last).await?;
            if !events.is_empty() {
                return Ok(page_of(Arc::new(place), events));
            }
        }
        Ok(page_of(Arc::new(Place::at(&self.at)), Vec::new()))
    }

    async fn advance(&mut self, at: &Cursor, _finished: &[i64]) -> Result<(), StoreError> {
        const OPERATION: &str = "advance a side read";
        let to = place_of(OPERATION, at)?.position(at.seq());
        match self.statements.move_marker(&self.key, &to).await? {
            true => Ok(()),
            false => Err(no_marker(OPERATION)),
        }
    }
}

fn no_marker(operation: &'static str) -> StoreError {
    StoreError::Bug {
        operation,
        reason: "the key has no marker".to_owned(),
    }
}
