//! Reads one key from its marker on: first the rest of the difference in which the marker stands,
//! then, up to whatever joinable place the main group has come to, the rows between.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError};

use super::{
    claimed::{page_of, place_of},
    converge::floors_of,
    read::{Read, Scope},
    statements::Statements,
    sweep::{Answer, Floors, Place, Position, Request, segment_end},
    types::Snapshot,
};

/// Segments without a row of the key that one call walks through before it lets its caller look up.
const EMPTY_PAGES_MAX: u32 = 16;
const OPERATION: &str = "side read";

/// Where a side read stands, and what it asks for. Pure state, no I/O.
#[derive(Debug, Clone)]
pub(super) struct SideCourse {
    leaf_bits: u8,
    at: Position,
    /// Floors of the difference's `high`, where they are known: not when it is a stored marker's.
    high_floors: Option<Floors>,
    /// The greatest `seq` that the difference can hold, once F was read.
    end: Option<i64>,
}

impl SideCourse {
    pub(super) fn from_marker(leaf_bits: u8, marker: Position) -> Self {
        Self {
            leaf_bits,
            high_floors: None,
            end: marker.end_of_era(),
            at: marker,
        }
    }

    /// Where it stands.
    pub(super) fn position(&self) -> &Position {
        &self.at
    }

    /// The next read; none: it has reached the target.
    pub(super) fn request(&mut self, target: &Position) -> Option<Request> {
        if self.at.within.is_none() && !self.begin(target) {
            return None;
        }
        let (high, last) = self.at.within.as_ref()?;
        Some(Request::Page {
            low: Arc::clone(&self.at.low),
            high: Arc::clone(high),
            last: *last,
            until: self.until(*last),
        })
    }

    fn until(&self, last: i64) -> i64 {
        let segment_end = segment_end(last, self.leaf_bits);
        self.end.map_or(segment_end, |end| end.min(segment_end))
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

    /// Takes the answer to the request; answers the page's place.
    pub(super) fn answer(&mut self, answer: &Answer) -> Place {
        let (low, floors) = (Arc::clone(&self.at.low), self.at.floors);
        let Some((high, last)) = self.at.within.clone() else {
            return Place::at(&self.at);
        };
        let last = match answer.last_row {
            Some(row) if answer.more => row,
            _ => self.until(last),
        };
        let end = *self.end.get_or_insert(answer.sequence);
        if last < end {
            self.at.within = Some((Arc::clone(&high), last));
            return Place::of_side_read(&low, floors, &high, last, None);
        }
        let own_floors = self.high_floors.take();
        let at_end = own_floors.unwrap_or_else(|| floors_of(&high, &self.at));
        self.at = Position {
            low: Snapshot::behind(&high),
            within: None,
            floors: at_end,
        };
        Place::of_side_read(&low, floors, &high, last, Some(at_end))
    }
}

#[cfg(feature = "model")]
impl SideCourse {
    /// Tells it from others.
    pub(super) fn describe(&self, out: super::model::Out<'_>) {
        use super::model::Number;
        self.at.describe(out);
        out(Number::Plain(self.high_floors.is_some().into()));
        if let Some(floors) = self.high_floors {
            floors.describe(out);
        }
        out(Number::Plain(self.end.is_some().into()));
        self.end.into_iter().for_each(|end| out(Number::Seq(end)));
    }
}

#[derive(Debug)]
pub(super) struct PostgresSideRead {
    statements: Arc<dyn Statements>,
    key: String,
    course: SideCourse,
}

impl PostgresSideRead {
    pub(super) async fn open(
        statements: Arc<dyn Statements>,
        key: &str,
    ) -> Result<Self, StoreError> {
        let marker = statements.marker(key).await?;
        let marker = marker.ok_or_else(|| no_marker(OPERATION))?;
        Ok(Self {
            course: SideCourse::from_marker(statements.leaf_bits(), marker),
            statements,
            key: key.to_owned(),
        })
    }
}

/// A side read can be read up to here, and join.
pub(super) fn target_of(until: &Cursor) -> Result<Position, StoreError> {
    let target = place_of(OPERATION, until)?.position(until.seq());
    if target.within.is_some() {
        return Err(StoreError::Bug {
            operation: OPERATION,
            reason: "its target is not a joinable place".to_owned(),
        });
    }
    Ok(target)
}

/// The page of a side read that has reached its target.
pub(super) fn reached(course: &SideCourse) -> Page {
    Page {
        caught_up: true,
        ..page_of(Arc::new(Place::at(course.position())), Vec::new())
    }
}

#[async_trait]
impl SideRead for PostgresSideRead {
    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let target = target_of(until)?;
        for _ in 0..EMPTY_PAGES_MAX {
            let Some(request) = self.course.request(&target) else {
                return Ok(reached(&self.course));
            };
            let Read { answer, events, .. } = self
                .statements
                .read(OPERATION, &request, Scope::Key(&self.key), budget)
                .await?;
            let place = self.course.answer(&answer);
            if !events.is_empty() {
                return Ok(page_of(Arc::new(place), events));
            }
        }
        let place = Place::at(self.course.position());
        Ok(page_of(Arc::new(place), Vec::new()))
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
