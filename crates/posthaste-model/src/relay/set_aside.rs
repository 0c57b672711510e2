//! The relay's part with an event that the broker refuses: it is parked, its copy tried again, its
//! key read on the side and joined. Each change of the store is made and answered at once.

use posthaste_engine::{
    Budget, Cause, Change, Cursor, Due, Outcome, ParkedCopy, Parking, Rejection, RejectionKind,
    Settlement, SideStep, StoredEvent, Unavailability, Verdict,
};
use posthaste_stores::postgres::model::{Position, Side, SideRow};

use super::{Memory, RANDOM, event_of, stored_events};
use crate::{aside::CopyState, database::Event};

/// A row's `seq`, event and key.
pub(crate) type Line = (i64, Event, &'static str);

/// A change that the store is to make.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// Copies and markers: each event, the place behind it, and its copy's state.
    Park(Vec<(Event, Position, CopyState)>),
    /// An attempt with this event's copy ended.
    Settle { event: Event, end: CopyState },
    /// As [`Memory::advancing_to`] says.
    Advance,
    /// Which copies are due, and which keys released.
    Look,
}

/// A step of the side read.
#[derive(Debug, Clone)]
pub(crate) enum SideAsked {
    /// From the markers of these keys on.
    Open(Vec<String>),
    /// A page.
    Read { budget: Budget, until: Cursor },
    /// The markers of these keys are moved.
    Advance(Vec<(String, Position)>),
    /// Those of these keys go.
    Join(Vec<String>),
}

/// A committed row, its transaction, and where its key's marker stands.
pub(crate) struct Behind<'a> {
    pub(crate) line: Line,
    pub(crate) xid: u64,
    pub(crate) marker: &'a Position,
}

/// Where the marker of this event's key is to stand.
fn place(cursor: &Cursor, event: &StoredEvent) -> Position {
    let key = event.key().unwrap_or_default();
    Position::of(cursor, key).unwrap_or_else(|| unreachable!("a foreign cursor"))
}

impl Memory {
    /// The broker refused the record with this ticket for good.
    pub(crate) fn refused(&self, ticket: u64) -> Self {
        let rejection = Rejection {
            kind: RejectionKind::Other,
            reason: "never".to_owned(),
        };
        self.told(ticket, Outcome::Rejected(Box::new(rejection)))
    }

    /// The place of the record with this ticket takes nothing for now.
    pub(crate) fn put_off(&self, ticket: u64) -> Self {
        self.told(ticket, Outcome::later("not now"))
    }

    /// The receiver did not take it, since it follows a refused one.
    pub(crate) fn behind(&self, ticket: u64) -> Self {
        let why = Unavailability {
            cause: Cause::BehindFailure,
            reason: "it follows a refused one".to_owned(),
            wait: None,
        };
        self.told(ticket, Outcome::Unavailable(why.into()))
    }

    fn told(&self, ticket: u64, outcome: Outcome) -> Self {
        let mut memory = self.clone();
        let verdicts = vec![Verdict { ticket, outcome }];
        memory.pipeline.verdicts(verdicts, memory.now, RANDOM);
        memory.described()
    }

    /// The next change, as if it had been sent.
    pub(crate) fn next_change(&self) -> Option<(Self, Asked)> {
        let mut memory = self.clone();
        loop {
            let asked = match memory.pipeline.next_change(memory.now, RANDOM)? {
                // Copies are always due here.
                Change::Report { .. } | Change::PutOff { .. } => {
                    memory.pipeline.change_done(None, false, memory.now);
                    continue;
                }
                Change::Advance { up_to, .. } => {
                    memory.advance = memory.reading.advance(&up_to);
                    if memory.advance.is_none() {
                        let wants = memory.reading.wants_advance();
                        memory.pipeline.change_done(None, wants, memory.now);
                        continue;
                    }
                    Asked::Advance
                }
                Change::Park(events) => {
                    let parked = |of: &Parking| {
                        let state = match of.next.retry_in() {
                            Some(_) => CopyState::Due,
                            None => CopyState::Dead,
                        };
                        (event_of(of.event.id()), place(&of.at, &of.event), state)
                    };
                    Asked::Park(events.iter().map(parked).collect())
                }
                Change::Settle { id, settlement } => Asked::Settle {
                    event: Event::try_from(id).unwrap_or(Event::MAX),
                    end: match settlement {
                        Settlement::Delivered => CopyState::Settled,
                        Settlement::Failed { .. } => CopyState::Dead,
                        Settlement::Postponed { .. } => CopyState::Due,
                    },
                },
                Change::Due { .. } => Asked::Look,
            };
            return Some((memory.described(), asked));
        }
    }

    /// The change is made: the event is parked or settled.
    pub(crate) fn changed(&self) -> Self {
        let mut memory = self.clone();
        memory.pipeline.change_done(None, false, memory.now);
        memory.described()
    }

    /// These copies are due, and these keys released.
    pub(crate) fn looked(&self, due: &[Line], released: Vec<String>) -> Option<Self> {
        let mut memory = self.clone();
        let events = stored_events(due, memory.places)?
            .into_iter()
            .map(|event| ParkedCopy {
                id: event_of(event.id()).into(),
                event,
                attempts: 0,
                holds_key: true,
                // Every event is routed.
                never_tried: true,
            });
        let due = Due {
            events: events.collect(),
            released,
            next_in: None,
        };
        memory.pipeline.change_done(Some(due), false, memory.now);
        Some(memory.described())
    }

    /// The next step of the side read, as if it had been sent.
    pub(crate) fn next_side_step(&self) -> Option<(Self, SideAsked)> {
        let mut memory = self.clone();
        let asked = match memory.pipeline.next_side_step()? {
            SideStep::Open(keys) => SideAsked::Open(keys),
            SideStep::Read {
                left,
                budget,
                until,
            } => {
                memory.side.as_mut()?.leave(&left);
                SideAsked::Read { budget, until }
            }
            SideStep::Advance { left, at, .. } => {
                let side = memory.side.as_mut()?;
                side.leave(&left);
                let moves = side.moves(&at);
                SideAsked::Advance(moves.unwrap_or_else(|why| unreachable!("{why}")))
            }
            SideStep::Join { keys, .. } => SideAsked::Join(keys),
        };
        Some((memory, asked))
    }

    /// The side read of these keys begins at their markers.
    pub(crate) fn side_opened(&self, markers: &[(String, Position)]) -> Self {
        let mut memory = self.clone();
        memory.side = Some(Side::open(markers));
        memory.pipeline.side_opened();
        memory.described()
    }

    /// The keys that are read on the side.
    pub(crate) fn side_keys(&self) -> &[String] {
        self.side.as_ref().map_or(&[], Side::keys)
    }

    /// A page of the keys' committed rows; none: it is refused.
    pub(crate) fn side_read(
        &self,
        rows: &[Behind<'_>],
        sequence: i64,
        budget: Budget,
        until: &Cursor,
    ) -> Option<Self> {
        let mut memory = self.clone();
        let lines: Vec<Line> = rows.iter().map(|row| row.line).collect();
        let events = stored_events(&lines, memory.places)?.into_iter();
        let rows = rows.iter().zip(events).map(|(row, event)| SideRow {
            xid: row.xid,
            event,
            marker: row.marker,
        });
        let rows: Vec<SideRow<'_>> = rows.collect();
        let side = memory.side.as_mut()?;
        let page = side.next(&rows, sequence, budget.events, until).ok()?;
        memory.pipeline.side_read(page);
        Some(memory.described())
    }

    /// The markers were moved.
    pub(crate) fn side_advanced(&self) -> Self {
        let mut memory = self.clone();
        memory.pipeline.side_advanced();
        memory.described()
    }

    /// The markers are gone.
    pub(crate) fn side_joined(&self) -> Self {
        let mut memory = self.clone();
        memory.side = None;
        memory.pipeline.side_joined(memory.now);
        memory.described()
    }
}
