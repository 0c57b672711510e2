//! Where a sweep stands, what its next read asks for and what an advance stores: pure state, no
//! I/O.
//!
//! A read is a snapshot difference: the rows that `low` did not see and `high`, the statement's own
//! snapshot, does, in the order of `seq`. A floor spares it the rows below; it has to be *proven*:
//!
//! - F, the sequence's value, is received with an answer. An advance sent after that gets a
//!   transaction number, commits and is answered. A poll sent after *that* owns F as its floor:
//!   every transaction at or above its snapshot's `xmax` was numbered after F was read and draws
//!   larger values, because a row takes its transaction's number before its `seq`. The floor
//!   belongs to the snapshot and comes into force when that becomes `low`, however many pages
//!   later.
//! - A transaction new in `xip(low)` was at or above the former `xmax`: the *former* floor is its.
//!   One that was there already keeps its own. When it finishes, the very poll whose snapshot sees
//!   it finished starts at its floor (the statement itself looks).
//! - `floor_min` is the least of all. The stored floors are those of the stored `low`, also in
//!   the middle of a difference; after a restart nothing else is known.
//! - A difference ends when a page has reached F, never because a page was short or empty.
//! - Transactions of an ended era are numbered by another counter. The rest of that era is
//!   a difference from the empty snapshot to one that sees everything, and ends at the era's last
//!   `seq`; all that is behind is read from a snapshot that sees nothing, with that `seq` as its
//!   floor.

#[cfg(feature = "model")]
mod model;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use posthaste_engine::{
    Cursor, StoreError,
    rule::{Rule, left_out},
};

use super::{
    layout::{GroupLayout, GroupRow},
    position::{Floors, Position},
    types::{Snapshot, Xid8},
};

/// Where the page of a read ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Inside the difference, everything up to this `seq` passed.
    Within(i64),
    /// The difference is used up; these are the floors of `high`.
    Whole(Floors),
}

/// The content of a cursor of one page.
#[derive(Debug)]
pub(super) struct Place {
    /// Counts the reads of one claim: an advance never goes back.
    read: u64,
    low: Arc<Snapshot>,
    floors: Floors,
    high: Arc<Snapshot>,
    end: End,
    /// While groups converge: where all of them stand.
    layout: Option<GroupLayout>,
}

impl Place {
    /// The place that a cursor of ours points into.
    pub(super) fn of<'a>(operation: &'static str, at: &'a Cursor) -> Result<&'a Self, StoreError> {
        at.base::<Self>().ok_or_else(|| StoreError::Bug {
            operation,
            reason: "the cursor is another store's".to_owned(),
        })
    }

    /// A stored position, as a place whose end it is.
    pub(super) fn at(position: &Position) -> Self {
        let (high, end) = match &position.within {
            Some((high, last)) => (high, End::Within(*last)),
            None => (&position.low, End::Whole(position.floors)),
        };
        Self {
            read: 0,
            low: Arc::clone(&position.low),
            floors: position.floors,
            high: Arc::clone(high),
            end,
            layout: None,
        }
    }

    /// A page of one group among several.
    pub(super) fn of_group(
        read: u64,
        from: &Position,
        high: &Arc<Snapshot>,
        to: &Position,
        layout: GroupLayout,
    ) -> Self {
        Self {
            read,
            low: Arc::clone(&from.low),
            floors: from.floors,
            high: Arc::clone(high),
            end: match &to.within {
                Some((_, last)) => End::Within(*last),
                None => End::Whole(to.floors),
            },
            layout: Some(layout),
        }
    }

    /// Where all groups stand behind `seq` of this page; none: there is one only.
    pub(super) fn rows(&self, seq: Option<i64>) -> Option<Vec<GroupRow>> {
        let layout = self.layout.as_ref()?;
        Some(layout.rows(seq.map(|_| self.position(seq))))
    }

    /// The position behind `seq` of this page; none: behind the page.
    pub(super) fn position(&self, seq: Option<i64>) -> Position {
        let within = match (seq, self.end) {
            (None, End::Whole(floors)) => {
                return Position {
                    low: Snapshot::behind(&self.high),
                    within: None,
                    floors,
                };
            }
            (None, End::Within(last)) => last,
            (Some(seq), _) => seq,
        };
        Position {
            low: Arc::clone(&self.low),
            within: Some((Arc::clone(&self.high), within)),
            floors: self.floors,
        }
    }

    /// Whether this page's end is a whole snapshot, where a side read can join.
    pub(super) fn is_joinable(&self) -> bool {
        matches!(self.end, End::Whole(_)) && self.layout.as_ref().is_none_or(GroupLayout::is_one)
    }

    fn ordinal(&self, seq: Option<i64>) -> (u64, i64) {
        (self.read, seq.unwrap_or(i64::MAX))
    }
}

/// A read to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The beginning of a new difference: rows that `low` has not seen and the statement's snapshot
    /// does.
    Poll {
        low: Arc<Snapshot>,
        floor: i64,
        /// Transactions in progress at `low`, each with its floor.
        stragglers: (Vec<Xid8>, Vec<i64>),
        /// The floor that this poll's snapshot will have.
        owned: i64,
    },
    /// More of the difference `(low, high)`: `last < seq <= until`.
    Page {
        low: Arc<Snapshot>,
        high: Arc<Snapshot>,
        last: i64,
        until: i64,
    },
}

/// The answer to a read, without its events.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The statement's snapshot.
    pub(super) snapshot: Snapshot,
    /// F: the sequence's value, read inside the statement, that is after its snapshot was taken.
    pub(super) sequence: i64,
    /// The `seq` of the last row that is in the page.
    pub(super) last_row: Option<i64>,
    /// The read was cut: rows may follow behind `last_row`.
    pub(super) more: bool,
}

/// The meaning of an answer.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) place: Arc<Place>,
    /// Everything that was visible when the read was sent lies before the page's end.
    pub(super) caught_up: bool,
    pub(super) wants_advance: bool,
    /// The difference goes on behind this page.
    pub(super) unfinished: bool,
}

/// An answer that no sound database gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsound {
    /// F is below an earlier F: the counters began a new life, or somebody set them back.
    WentBack { sequence: i64, before: i64 },
    /// F is below a row of its own answer.
    BelowRow { sequence: i64, row: i64 },
}

/// An advance under way; made when it is sent.
#[derive(Debug, Clone)]
pub(super) struct Advance {
    /// The place to store.
    pub(super) position: Position,
    ordinal: (u64, i64),
    /// F as received before the advance was sent: proven once it is answered with one row changed.
    proves: i64,
}

#[derive(Debug, Clone)]
struct Difference {
    high: Arc<Snapshot>,
    /// The floor that `high` owns.
    owned: i64,
    last: i64,
    /// The greatest `seq` that the difference can hold; none after a restart, until F is read anew.
    end: Option<i64>,
}

/// The state of one destination's main group.
#[derive(Debug, Clone)]
pub(super) struct Sweep {
    leaf_bits: u8,
    reads: u64,
    low: Arc<Snapshot>,
    floor: i64,
    /// Each transaction of `xip(low)` with its floor.
    stragglers: BTreeMap<u64, i64>,
    difference: Option<Difference>,
    /// The `floor_min` of what an ended era left over, while that is being read: the floor is its
    /// end.
    left_over: Option<i64>,
    /// The greatest F received.
    received: i64,
    /// The greatest F that is proven for polls sent from now on.
    proven: i64,
    stored: Floors,
    stored_ordinal: (u64, i64),
}

impl Sweep {
    /// Goes on from a stored position. `proven` is an F that was received before the claim's own
    /// transaction was sent, which makes the claim its proof.
    pub(super) fn restore(leaf_bits: u8, stored: &Position, proven: i64) -> Self {
        let floor = stored.floors.floor;
        let mut sweep = Self {
            leaf_bits,
            reads: 0,
            low: Arc::clone(&stored.low),
            floor,
            stragglers: BTreeMap::new(),
            difference: None,
            left_over: None,
            received: proven,
            proven,
            stored: stored.floors,
            stored_ordinal: (0, 0),
        };
        sweep.go_on_from(stored);
        sweep
    }

    /// Goes on from another place; numbers that were received and stored keep counting.
    pub(super) fn go_on_from(&mut self, place: &Position) {
        let Floors { floor, floor_min } = place.floors;
        self.low = Arc::clone(&place.low);
        self.floor = floor;
        // A floor that was proven for an earlier snapshot holds for all that come.
        self.received = self.received.max(floor);
        self.proven = self.proven.max(floor);
        // The floors of single stragglers died with the memory that had them; the least holds for
        // all.
        let stragglers = place.low.xip().iter().map(|&xid| (xid, floor_min));
        self.stragglers = stragglers.collect();
        self.left_over = place.end_of_era().map(|_| floor_min);
        self.difference = place.within.as_ref().map(|(high, seq)| Difference {
            high: Arc::clone(high),
            owned: floor,
            last: *seq,
            end: place.end_of_era(),
        });
    }

    /// The next read. A poll owns what is proven now, when it is sent.
    pub(super) fn request(&self) -> Request {
        let low = Arc::clone(&self.low);
        match &self.difference {
            None => Request::Poll {
                low,
                floor: self.floor,
                stragglers: self
                    .stragglers
                    .iter()
                    .map(|(&xid, &floor)| (Xid8(xid), floor))
                    .unzip(),
                owned: self.proven,
            },
            Some(difference) => {
                // A page reads one leaf: without this end every newer leaf would be walked as well.
                let segment_end = segment_end(difference.last, self.leaf_bits);
                Request::Page {
                    low,
                    high: Arc::clone(&difference.high),
                    last: difference.last,
                    until: difference
                        .end
                        .map_or(segment_end, |end| end.min(segment_end)),
                }
            }
        }
    }

    /// Takes the answer to `request`.
    pub(super) fn answer(&mut self, request: Request, answer: Answer) -> Result<Step, Unsound> {
        let sequence = answer.sequence;
        self.receive(&answer)?;
        let (low, floors) = (Arc::clone(&self.low), self.floors());
        let (high, last, caught_up) = match request {
            Request::Poll { owned, floor, .. } => {
                let owned = match left_out(Rule::FloorOfEarlierPoll) {
                    true => sequence,
                    false => owned,
                };
                let high = Arc::new(answer.snapshot);
                let last = answer.last_row.unwrap_or(floor);
                if answer.more {
                    self.difference = Some(Difference {
                        high: Arc::clone(&high),
                        owned,
                        last,
                        end: Some(sequence),
                    });
                } else {
                    self.become_low(&high, owned);
                }
                (high, last, !answer.more)
            }
            Request::Page { high, until, .. } => {
                let last = match answer.last_row {
                    Some(row) if answer.more => row,
                    _ => until,
                };
                self.page_read(last, sequence);
                (high, last, false)
            }
        };
        let end = match self.difference {
            Some(_) => End::Within(last),
            None => End::Whole(self.floors()),
        };
        let at_end = match end {
            End::Whole(at_end) => at_end,
            End::Within(_) => floors,
        };
        Ok(Step {
            place: Arc::new(Place {
                read: self.reads,
                low,
                floors,
                high,
                end,
                layout: None,
            }),
            caught_up,
            wants_advance: self.wants_advance() || at_end.floor_min > self.stored.floor_min,
            unfinished: self.difference.is_some(),
        })
    }

    /// Takes note of an answer; answers its number.
    pub(super) fn receive(&mut self, answer: &Answer) -> Result<u64, Unsound> {
        let sequence = answer.sequence;
        if sequence < self.received {
            return Err(Unsound::WentBack {
                sequence,
                before: self.received,
            });
        }
        if let Some(row) = answer.last_row.filter(|&row| row > sequence) {
            return Err(Unsound::BelowRow { sequence, row });
        }
        self.received = sequence;
        self.reads += 1;
        Ok(self.reads)
    }

    fn page_read(&mut self, last: i64, sequence: i64) {
        let Some(mut difference) = self.difference.take() else {
            return;
        };
        difference.last = last;
        let end = *difference.end.get_or_insert(sequence);
        if last < end {
            self.difference = Some(difference);
        } else {
            self.become_low(&difference.high, difference.owned);
        }
    }

    fn become_low(&mut self, high: &Arc<Snapshot>, owned: i64) {
        let former_floor = match left_out(Rule::StragglerKeepsItsFloor) {
            true => owned,
            false => self.floor,
        };
        self.stragglers = high
            .xip()
            .iter()
            .map(|xid| (*xid, *self.stragglers.get(xid).unwrap_or(&former_floor)))
            .collect();
        self.low = Snapshot::behind(high);
        self.floor = owned;
        self.left_over = None;
    }

    fn floors(&self) -> Floors {
        let floors = self.stragglers.values().copied();
        let least = floors.chain(self.left_over).min();
        Floors {
            floor: self.floor,
            floor_min: least.map_or(self.floor, |least| least.min(self.floor)),
        }
    }

    /// The advance to behind `seq` of a page; none when that would go back.
    pub(super) fn advance(&self, place: &Place, seq: Option<i64>) -> Option<Advance> {
        let ordinal = place.ordinal(seq);
        (ordinal >= self.stored_ordinal).then(|| Advance {
            position: place.position(seq),
            ordinal,
            proves: self.received,
        })
    }

    /// The advance changed its row, and the answer has come.
    pub(super) fn advanced(&mut self, advance: &Advance) {
        self.proven = self.proven.max(advance.proves);
        if advance.ordinal >= self.stored_ordinal {
            self.stored_ordinal = advance.ordinal;
            self.stored = advance.position.floors;
        }
    }

    /// Whether one more advance brings the stored floors nearer to F. Floors that only an
    /// open transaction holds back need none; when it has finished, the page that sees it says so.
    pub(super) fn wants_advance(&self) -> bool {
        self.stored.floor < self.received
    }
}

/// The last `seq` of the 2^bits segment in which `last + 1` lies.
pub(super) fn segment_end(last: i64, bits: u8) -> i64 {
    let next = last.saturating_add(1);
    next | ((1_i64 << bits) - 1)
}
