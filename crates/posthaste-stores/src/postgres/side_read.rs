//! Reads released keys, each from its marker on: first the rest of the differences in which their
//! markers stand, then, up to whatever joinable place the main group has come to, the rows between.
//! One pass over the outbox serves all keys.
//!
//! A stored marker is the whole truth about its key. A page brings no row that the marker has
//! passed (`sql/side_page.sql`), and the marker of each key that had rows in a page moves before
//! the next page is read. The markers of the other keys stay where they are: between there and here
//! are no rows of theirs.

#[cfg(feature = "model")]
mod model;

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError, StoredEvent};

use super::{
    claim_connection::{MarkerStatements, PageStatements},
    converge::floors_of,
    position::Position,
    read::{Read, Scope},
    sweep::{Answer, Place, Request, segment_end},
    types::Snapshot,
};

/// Segments without a row of the keys that one call walks through before it lets its caller look
/// up.
const EMPTY_PAGES_MAX: u32 = 16;
const OPERATION: &str = "side read";

/// Where the marker of each key stood.
type Starts = Arc<HashMap<String, Position>>;

/// The part of the outbox that one pass reads.
#[derive(Debug, Clone)]
enum Stretch {
    /// Of each key, the rest of the difference in which its marker stands.
    Rests(Starts),
    /// From behind the rests, or from the whole place that all keys have reached, to another whole
    /// place, which is the main group's.
    Whole {
        starts: Starts,
        from: Option<Position>,
        to: Position,
    },
}

impl Stretch {
    /// Where a key stands behind `seq`; none: behind all of it.
    fn position(&self, key: &str, seq: Option<i64>) -> Option<Position> {
        match self {
            Self::Rests(starts) => {
                let start = starts.get(key)?;
                let Some((high, last)) = &start.within else {
                    return Some(start.clone());
                };
                // Behind the end of an ended era nothing is part of its rest.
                let end = start.end_of_era().unwrap_or(i64::MAX);
                let seq = seq?.min(end).max(*last);
                Some(Position {
                    within: Some((Arc::clone(high), seq)),
                    ..start.clone()
                })
            }
            Self::Whole { starts, from, to } => {
                let mut at = rested(starts.get(key)?);
                if let Some(from) = from {
                    at = later(at, from);
                }
                let Some(seq) = seq else {
                    return Some(later(at, to));
                };
                Some(Position {
                    within: Some((Arc::clone(&to.low), seq)),
                    ..at
                })
            }
        }
    }
}

/// Where a key stands that has read the rest of its difference.
fn rested(start: &Position) -> Position {
    let Some((high, _)) = &start.within else {
        return start.clone();
    };
    Position {
        low: Snapshot::behind(high),
        within: None,
        floors: floors_of(high, start),
    }
}

/// The later one of two whole places.
fn later(a: Position, b: &Position) -> Position {
    if b.low.covers(&a.low) { b.clone() } else { a }
}

/// Whether a key at this whole place has something to read up to there. After a restart the main
/// group may stand before a marker that was moved under the former claim. Then nothing is left to
/// read, and what follows is a repeat.
fn is_before(at: &Position, target: &Position) -> bool {
    at.low != target.low && target.low.covers(&at.low)
}

/// The content of a cursor of a side read's page: each key has a place of its own.
#[derive(Debug, Clone)]
pub(super) struct SidePlace {
    stretch: Stretch,
    /// How far of it; none: all.
    last: Option<i64>,
}

/// Where the marker of a key is to stand.
pub(super) fn marker_at(
    operation: &'static str,
    at: &Cursor,
    key: Option<&str>,
) -> Result<Position, StoreError> {
    let Some(place) = at.base::<SidePlace>() else {
        return Ok(Place::of(operation, at)?.position(at.seq()));
    };
    let position = key.and_then(|key| place.stretch.position(key, at.seq().or(place.last)));
    position.ok_or_else(|| StoreError::Bug {
        operation,
        reason: "an event is of a key that is not read here".to_owned(),
    })
}

/// Whether a page brings a row of a key whose marker stands there: `sql/side_page.sql` in words.
/// `to`: where the pass ends; none: it reads the rests.
#[cfg(any(feature = "simulation", feature = "model"))]
pub(super) fn brings(marker: &Position, to: Option<&Snapshot>, xid: u64, seq: i64) -> bool {
    let Position {
        low,
        within,
        floors,
    } = marker;
    if seq <= floors.floor_min || low.sees(xid) {
        return false;
    }
    let of_rest =
        |high: &Snapshot| high.sees(xid) && (seq <= floors.floor || !high.sees_everything());
    match (within, to) {
        (Some((high, last)), None) => of_rest(high) && seq > *last,
        (Some((high, last)), Some(to)) if of_rest(high) => seq > *last && **high == *to,
        (_, Some(to)) => to.sees(xid),
        (None, None) => false,
    }
}

/// How far all keys were read.
#[derive(Debug, Clone)]
enum Reached {
    Starts,
    Rests,
    Whole(Position),
}

/// A pass under way.
#[derive(Debug, Clone)]
struct Pass {
    stretch: Stretch,
    last: i64,
    /// The greatest `seq` that it can hold, once F was read.
    end: Option<i64>,
}

impl Pass {
    fn until(&self, leaf_bits: u8) -> i64 {
        let segment_end = segment_end(self.last, leaf_bits);
        self.end.map_or(segment_end, |end| end.min(segment_end))
    }

    /// The rests; none: no marker stands within a difference.
    fn over_rests(starts: &Starts) -> Option<Self> {
        let rests = || starts.values().filter(|start| start.within.is_some());
        let lasts = rests().filter_map(|start| start.within.as_ref().map(|(_, last)| *last));
        let ends: Option<Vec<i64>> = rests().map(Position::end_of_era).collect();
        Some(Self {
            stretch: Stretch::Rests(Arc::clone(starts)),
            last: lasts.min()?,
            end: ends.and_then(|ends| ends.into_iter().max()),
        })
    }

    /// From behind the rests to the target; none: there is nothing in between.
    fn behind_rests(starts: &Starts, target: &Position) -> Option<Self> {
        let rested = starts.values().map(rested);
        let before = rested.filter(|at| is_before(at, target));
        Some(Self {
            last: before.map(|at| at.floors.floor_min).min()?,
            stretch: Stretch::Whole {
                starts: Arc::clone(starts),
                from: None,
                to: target.clone(),
            },
            end: None,
        })
    }
}

/// A read to be sent.
#[derive(Debug)]
pub(super) struct SideRequest {
    pub(super) page: Request,
    /// Only what lies in the differences in which the markers stand.
    pub(super) rests: bool,
}

/// Where a side read stands, and what it asks for. Pure state, no I/O.
#[derive(Debug, Clone)]
pub(super) struct SideCourse {
    leaf_bits: u8,
    keys: Vec<String>,
    starts: Starts,
    reached: Reached,
    pass: Option<Pass>,
    stands: SidePlace,
    /// The keys of the pages since the last advance.
    touched: BTreeSet<String>,
    /// Where the last of them ends.
    end: Option<Cursor>,
}

impl SideCourse {
    /// None: one of the keys has no marker.
    pub(super) fn from_markers(
        leaf_bits: u8,
        keys: &[String],
        markers: HashMap<String, Position>,
    ) -> Option<Self> {
        if markers.len() < keys.len() {
            return None;
        }
        let starts = Arc::new(markers);
        Some(Self {
            leaf_bits,
            keys: keys.to_vec(),
            reached: Reached::Starts,
            pass: None,
            stands: SidePlace {
                stretch: Stretch::Rests(Arc::clone(&starts)),
                last: Some(i64::MIN),
            },
            starts,
            touched: BTreeSet::new(),
            end: None,
        })
    }

    /// The keys that it reads.
    pub(super) fn keys(&self) -> &[String] {
        &self.keys
    }

    pub(super) fn leave(&mut self, keys: &[String]) {
        if keys.is_empty() {
            return;
        }
        let left: BTreeSet<&String> = keys.iter().collect();
        self.keys.retain(|key| !left.contains(key));
        self.touched.retain(|key| !left.contains(key));
    }

    /// The next read; none: it has reached the target.
    pub(super) fn request(&mut self, target: &Position) -> Option<SideRequest> {
        if self.pass.is_none() {
            self.pass = self.next_pass(target);
        }
        let pass = self.pass.as_ref()?;
        let nothing = || Arc::new(Snapshot::empty());
        let (low, high, rests) = match &pass.stretch {
            Stretch::Rests(_) => (nothing(), nothing(), true),
            Stretch::Whole { from, to, .. } => {
                let low = from.as_ref().map_or_else(nothing, |at| Arc::clone(&at.low));
                (low, Arc::clone(&to.low), false)
            }
        };
        let page = Request::Page {
            low,
            high,
            last: pass.last,
            until: pass.until(self.leaf_bits),
        };
        Some(SideRequest { page, rests })
    }

    fn next_pass(&mut self, target: &Position) -> Option<Pass> {
        if matches!(self.reached, Reached::Starts) {
            let rests = Pass::over_rests(&self.starts);
            if rests.is_some() {
                return rests;
            }
            self.reached = Reached::Rests;
        }
        match &self.reached {
            Reached::Whole(from) => is_before(from, target).then(|| Pass {
                last: from.floors.floor_min,
                stretch: Stretch::Whole {
                    starts: Arc::clone(&self.starts),
                    from: Some(from.clone()),
                    to: target.clone(),
                },
                end: None,
            }),
            _ => Pass::behind_rests(&self.starts, target),
        }
    }

    /// Takes the answer to the request.
    pub(super) fn answer(&mut self, answer: &Answer) {
        let Some(pass) = self.pass.take() else {
            return;
        };
        let last = match answer.last_row {
            Some(row) if answer.more => row,
            _ => pass.until(self.leaf_bits),
        };
        let end = pass.end.unwrap_or(answer.sequence);
        let stretch = pass.stretch;
        if last < end {
            self.pass = Some(Pass {
                stretch: stretch.clone(),
                last,
                end: Some(end),
            });
            let last = Some(last);
            self.stands = SidePlace { stretch, last };
            return;
        }
        let last = match &stretch {
            Stretch::Rests(_) => {
                self.reached = Reached::Rests;
                // Behind all of its difference a key stands just as well behind its last row.
                Some(last)
            }
            Stretch::Whole { to, .. } => {
                self.reached = Reached::Whole(to.clone());
                None
            }
        };
        self.stands = SidePlace { stretch, last };
    }

    /// The page of what an answer brought.
    pub(super) fn page(&mut self, events: Vec<StoredEvent>) -> Page {
        let keys = events.iter().filter_map(StoredEvent::order_key);
        self.touched.extend(keys.map(str::to_owned));
        let base: Arc<dyn Any + Send + Sync> = Arc::new(self.stands.clone());
        let page = Page {
            joinable: self.stands.last.is_none(),
            ..Page::up_to(base, events)
        };
        if !page.events.is_empty() {
            self.end = Some(page.end.clone());
        }
        page
    }

    /// The page of a side read that has reached its target.
    pub(super) fn reached(&mut self) -> Page {
        Page {
            caught_up: true,
            ..self.page(Vec::new())
        }
    }

    /// Where the markers are to stand that an advance to this cursor moves.
    pub(super) fn moves(&mut self, at: &Cursor) -> Result<Vec<(String, Position)>, StoreError> {
        let touched = self.touched.iter();
        let moved = touched
            .map(|key| marker_at("advance a side read", at, Some(key)).map(|to| (key.clone(), to)));
        let moves = moved.collect::<Result<_, _>>()?;
        if self.end.as_ref().is_some_and(|end| end.is(at)) {
            self.touched.clear();
        }
        Ok(moves)
    }
}

/// A side read can be read up to here, and join.
pub(super) fn target_of(until: &Cursor) -> Result<Position, StoreError> {
    let target = Place::of(OPERATION, until)?.position(until.seq());
    if target.within.is_some() {
        return Err(StoreError::Bug {
            operation: OPERATION,
            reason: "its target is not a joinable place".to_owned(),
        });
    }
    Ok(target)
}

#[derive(Debug)]
pub(super) struct PostgresSideRead<C> {
    connection: Arc<C>,
    course: SideCourse,
}

impl<C: PageStatements + MarkerStatements> PostgresSideRead<C> {
    pub(super) async fn open(connection: Arc<C>, keys: &[String]) -> Result<Self, StoreError> {
        let markers = connection.stands(keys).await?;
        let course = SideCourse::from_markers(connection.leaf_bits(), keys, markers);
        Ok(Self {
            course: course.ok_or_else(|| no_marker(OPERATION))?,
            connection,
        })
    }
}

#[async_trait]
impl<C: PageStatements + MarkerStatements> SideRead for PostgresSideRead<C> {
    fn leave(&mut self, keys: &[String]) {
        self.course.leave(keys);
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let target = target_of(until)?;
        for _ in 0..EMPTY_PAGES_MAX {
            let Some(SideRequest { page, rests }) = self.course.request(&target) else {
                return Ok(self.course.reached());
            };
            let keys = self.course.keys();
            let scope = Scope::Keys { keys, rests };
            let read = self.connection.read(OPERATION, &page, scope, budget);
            let Read { answer, events, .. } = read.await?;
            self.course.answer(&answer);
            if !events.is_empty() {
                return Ok(self.course.page(events));
            }
        }
        Ok(self.course.page(Vec::new()))
    }

    async fn advance(&mut self, at: &Cursor, _finished: &[i64]) -> Result<(), StoreError> {
        let moves = self.course.moves(at)?;
        // Without a move it still tells whether the claim holds.
        match self.connection.move_markers(&moves).await? {
            true => Ok(()),
            false => Err(no_marker("advance a side read")),
        }
    }
}

fn no_marker(operation: &'static str) -> StoreError {
    StoreError::Bug {
        operation,
        reason: "a key has no marker".to_owned(),
    }
}
