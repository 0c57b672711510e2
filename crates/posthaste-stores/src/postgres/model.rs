//! The pure state machines of this store for a model checker: the request of a read, the meaning of
//! an answer, the place that an advance stores. Not part of the interface.

use std::{
    any::Any,
    hash::{Hash, Hasher},
    sync::Arc,
};

use posthaste_engine::{Cursor, Page, Partitions, StoredEvent};

use super::{
    claimed::page_of,
    converge::Group,
    layout::GroupRow,
    mvcc::Mvcc,
    position::{self, Floors},
    read_plan::{ReadPlan, Stored},
    side_read::{SideCourse, SidePlace, SideRequest, brings, marker_at, target_of},
    sweep::{self, Answer, Place},
    types,
};

/// The row of the model's one cursor group.
const ROW: i64 = 1;
/// A segment that no model leaves.
const LEAF_BITS: u8 = 40;

/// A part of a description: numbers are only ever compared with others of their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Number {
    /// A transaction.
    Xid(u64),
    /// The end of a snapshot: transactions below it may be seen.
    Xmax(u64),
    /// A row's, or a value of the sequence.
    Seq(i64),
    /// The ordinal of a read.
    Read(u64),
    /// Compared with nothing else.
    Plain(u64),
}

/// Takes a description, number by number. Two values are the same when their descriptions are.
pub type Out<'a> = &'a mut dyn FnMut(Number);

/// The transactions that had completed at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(types::Snapshot);

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.xmax().hash(hasher);
        self.0.xip().hash(hasher);
    }
}

impl Snapshot {
    /// `xip`: those in progress below `xmax`, ascending.
    #[must_use]
    pub fn new(xmax: u64, xip: Vec<u64>) -> Self {
        Self(types::Snapshot::new(xmax, xip))
    }

    /// Whether it sees what this transaction did.
    #[must_use]
    pub fn sees(&self, xid: u64) -> bool {
        self.0.sees(xid)
    }

    /// Describes it.
    pub fn describe(&self, out: Out<'_>) {
        self.0.describe(out);
    }
}

impl<E> Mvcc<E> {
    /// The snapshot of a statement that begins now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.visible())
    }

    /// Describes all but the rows.
    pub fn describe(&self, out: Out<'_>) {
        let Self {
            next_xid,
            latest_completed,
            open,
            sequence,
            rows: _,
        } = self;
        out(Number::Xid(*next_xid));
        out(Number::Xmax(latest_completed + 1));
        out(Number::Plain(open.len() as u64));
        open.iter().for_each(|&xid| out(Number::Xid(xid)));
        out(Number::Seq(*sequence));
    }
}

/// A row, as seen from a stored place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has passed.
    Behind,
    /// A read from here brings it.
    Ahead,
    /// It has not passed and no read from here brings it.
    Hidden,
}

/// A stored place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(position::Position);

impl Position {
    /// Where a destination begins that wants all.
    #[must_use]
    pub fn oldest() -> Self {
        Self(position::Position {
            low: Arc::new(types::Snapshot::empty()),
            within: None,
            floors: Floors {
                floor: 0,
                floor_min: 0,
            },
        })
    }

    /// Where the marker of a key is to stand whose event was set aside at this cursor of ours.
    #[must_use]
    pub fn of(cursor: &Cursor, key: &str) -> Option<Self> {
        let position = marker_at("park", cursor, Some(key));
        position.ok().map(Self)
    }

    /// A cursor that points here, as a stored marker has it.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::whole(Arc::new(Place::at(&self.0)))
    }

    /// Where a destination begins that wants nothing of what this snapshot sees.
    #[must_use]
    pub fn now(snapshot: Snapshot) -> Self {
        Self(position::Position {
            low: Arc::new(snapshot.0),
            ..Self::oldest().0
        })
    }

    /// Retention must not remove rows above it: the place may need them.
    #[must_use]
    pub fn floor_min(&self) -> i64 {
        self.0.floors.floor_min
    }

    /// Where a row stands, seen from here.
    #[must_use]
    pub fn standing(&self, xid: u64, seq: i64) -> Standing {
        let position::Position {
            low,
            within,
            floors,
        } = &self.0;
        if low.sees(xid) || matches!(within, Some((high, last)) if high.sees(xid) && seq <= *last) {
            return Standing::Behind;
        }
        let floor = match low.xip().binary_search(&xid) {
            Ok(_) => floors.floor_min,
            Err(_) => floors.floor,
        };
        match seq > floor {
            true => Standing::Ahead,
            false => Standing::Hidden,
        }
    }

    /// Whether `low` alone has passed all that this transaction did.
    #[must_use]
    pub fn low_sees(&self, xid: u64) -> bool {
        self.0.low.sees(xid)
    }

    /// Whether it has passed all that the `low` of `other` has.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.low.covers(&other.0.low)
    }

    /// Whether it stands inside a difference.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.0.within.is_some()
    }

    /// Transactions in progress at its `low`.
    #[must_use]
    pub fn stragglers(&self) -> usize {
        self.0.low.xip().len()
    }

    /// Describes it.
    pub fn describe(&self, out: Out<'_>) {
        self.0.describe(out);
    }
}

/// A read under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request(sweep::Request);

impl Request {
    /// Whether the statement brings this row: the shipped SQL in words.
    #[must_use]
    pub fn takes(&self, snapshot: &Snapshot, xid: u64, seq: i64) -> bool {
        self.0.takes(&snapshot.0, xid, seq)
    }

    /// Whether it is more of a difference.
    #[must_use]
    pub fn is_page(&self) -> bool {
        matches!(self.0, sweep::Request::Page { .. })
    }

    /// Describes it: the rest is as in the sweep that it came from.
    pub fn describe(&self, out: Out<'_>) {
        match &self.0 {
            sweep::Request::Poll { owned, .. } => out(Number::Seq(*owned)),
            sweep::Request::Page { until, .. } => out(Number::Seq(*until)),
        }
    }
}

/// An advance under way.
#[derive(Debug, Clone)]
pub struct Advance(Stored);

impl Advance {
    /// The place that it stores.
    #[must_use]
    pub fn position(&self) -> Position {
        Position(self.0.advance.position.clone())
    }

    /// Describes it.
    pub fn describe(&self, out: Out<'_>) {
        self.0.advance.describe(out);
    }
}

/// The rows of an answer, in numbers.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// The sequence's value.
    pub sequence: i64,
    /// The last row of the page.
    pub last: Option<i64>,
    /// More rows may follow.
    pub more: bool,
}

/// Where a claim stands.
#[derive(Debug, Clone)]
pub struct Reading(ReadPlan);

impl Reading {
    /// Goes on from a stored place. `proven`: the sequence's value, received before the claim's own
    /// transaction was sent.
    #[must_use]
    pub fn restore(stored: &Position, proven: i64) -> Self {
        // One of one partition is always valid.
        let partitions = Partitions::all_of(1).unwrap_or_else(|_| unreachable!());
        let group = Group {
            row: GroupRow {
                ids: vec![ROW],
                position: stored.0.clone(),
            },
            partitions,
        };
        Self(ReadPlan::restore(
            LEAF_BITS,
            None,
            group,
            Vec::new(),
            proven,
        ))
    }

    /// The next read.
    #[must_use]
    pub fn request(&self) -> Request {
        Request(self.0.request().0)
    }

    /// Takes the answer to a request, with the events that came.
    ///
    /// # Errors
    /// A text that tells what is unsound about it.
    pub fn answer(
        &mut self,
        request: Request,
        snapshot: Snapshot,
        rows: Rows,
        events: Vec<StoredEvent>,
    ) -> Result<Page, String> {
        let answer = Answer {
            snapshot: snapshot.0,
            sequence: rows.sequence,
            last_row: rows.last,
            more: rows.more,
        };
        let step = self.0.answer(request.0, answer);
        let step = step.map_err(|unsound| format!("{unsound:?}"))?;
        Ok(Page {
            caught_up: step.caught_up,
            store_end: step.wants_advance,
            ..page_of(step.place, events)
        })
    }

    /// The advance to this cursor; none when it would go back.
    #[must_use]
    pub fn advance(&self, to: &Cursor) -> Option<Advance> {
        self.0.advance(to.base::<Place>()?, to.seq()).map(Advance)
    }

    /// The advance was made, and the answer has come.
    pub fn advanced(&mut self, advance: Advance) {
        self.0.advanced(advance.0);
    }

    /// Whether one more advance is worth making.
    #[must_use]
    pub fn wants_advance(&self) -> bool {
        self.0.wants_advance()
    }

    /// Describes it.
    pub fn describe(&mut self, out: Out<'_>) {
        let (sweep, rows) = self.0.parts();
        sweep.describe(out);
        rows.values().for_each(|position| position.describe(out));
    }
}

/// A side read under way.
#[derive(Debug, Clone)]
pub struct Side(SideCourse);

/// A committed row of a key that is read on the side.
#[derive(Debug)]
pub struct SideRow<'a> {
    /// Its transaction.
    pub xid: u64,
    /// Its event.
    pub event: StoredEvent,
    /// Where its key's marker stands.
    pub marker: &'a Position,
}

impl Side {
    /// From the markers of these keys on.
    #[must_use]
    pub fn open(markers: &[(String, Position)]) -> Self {
        let keys: Vec<String> = markers.iter().map(|(key, _)| key.clone()).collect();
        let markers = markers.iter().map(|(key, at)| (key.clone(), at.0.clone()));
        let course = SideCourse::from_markers(LEAF_BITS, &keys, markers.collect());
        Self(course.unwrap_or_else(|| unreachable!("there are as many markers as keys")))
    }

    /// These keys were blocked again.
    pub fn leave(&mut self, keys: &[String]) {
        self.0.leave(keys);
    }

    /// The keys that it reads.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        self.0.keys()
    }

    /// The next page, at most so many events long. `rows`: those of the keys that it reads,
    /// ascending.
    ///
    /// # Errors
    /// A text that tells what is wrong with the target.
    pub fn next(
        &mut self,
        rows: &[SideRow<'_>],
        sequence: i64,
        events: usize,
        until: &Cursor,
    ) -> Result<Page, String> {
        let target = target_of(until).map_err(|error| error.to_string())?;
        while let Some(request) = self.0.request(&target) {
            let taken = rows.iter().filter(|row| takes(&request, row));
            let mut taken: Vec<_> = taken.map(|row| row.event.clone()).collect();
            let more = taken.len() > events;
            taken.truncate(events);
            self.0.answer(&Answer {
                // A page says itself what it sees.
                snapshot: types::Snapshot::new(0, Vec::new()),
                sequence,
                last_row: taken.last().map(StoredEvent::seq),
                more,
            });
            if !taken.is_empty() {
                return Ok(self.0.page(taken));
            }
        }
        Ok(self.0.reached())
    }

    /// Where the markers are to stand that an advance to this cursor moves.
    ///
    /// # Errors
    /// A text that tells what is wrong with the cursor.
    pub fn moves(&mut self, at: &Cursor) -> Result<Vec<(String, Position)>, String> {
        let moves = self.0.moves(at).map_err(|error| error.to_string())?;
        Ok(moves
            .into_iter()
            .map(|(key, to)| (key, Position(to)))
            .collect())
    }

    /// Describes it.
    pub fn describe(&self, out: Out<'_>) {
        self.0.describe(out);
    }
}

/// Whether the statement brings this row: `side_page.sql` in words.
fn takes(request: &SideRequest, row: &SideRow<'_>) -> bool {
    let sweep::Request::Page {
        low,
        high,
        last,
        until,
    } = &request.page
    else {
        return false;
    };
    let (xid, seq) = (row.xid, row.event.seq());
    let to = (!request.rests).then_some(&**high);
    seq > *last && seq <= *until && !low.sees(xid) && brings(&row.marker.0, to, xid, seq)
}

/// Describes a place that a cursor of ours points into; false: it is another store's.
pub fn describe_place(place: &(dyn Any + Send + Sync), out: Out<'_>) -> bool {
    if let Some(place) = place.downcast_ref::<Place>() {
        place.describe(out);
    } else if let Some(place) = place.downcast_ref::<SidePlace>() {
        place.describe(out);
    } else {
        return false;
    }
    true
}
