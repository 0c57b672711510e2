//! A relay's memory under one claim: the production pipeline over the production sweep, with what
//! it has under way.

pub(crate) mod set_aside;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use posthaste_engine::{
    Backoff, Cause, Change, DeliveryPolicy, EventRef, FenceKind, KeyOrder, Marker, Moment, OnDead,
    Outcome, PageBuilder, Pipeline, PipelineLimits, Router, Routes, SinkInfo, StoredEvent,
    StoredFields, Unavailability, Verdict, model::Part,
};
use posthaste_stores::postgres::{
    model::{Advance, Number, Position, Reading, Request, Rows, Side, Snapshot, describe_place},
    mvcc::Mvcc,
};
use uuid::Uuid;

use crate::{
    canonical,
    database::{Event, Row},
};

/// Longer than any wait of a place.
const A_WHILE: Duration = Duration::from_secs(3_600);
/// The middle of every jitter.
const RANDOM: f64 = 0.5;
/// Bytes never limit anything here.
const BYTES: usize = 1 << 20;

/// How much is read at once and kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Events in a page.
    pub page: usize,
    /// Events read and not behind the stored cursor.
    pub window: usize,
    /// The order that the receiver keeps.
    pub order: KeyOrder,
    /// Whether events may be refused for good: each is dead at once, and an operator decides on it.
    pub sets_aside: bool,
    /// Topics over which the events go in turn: each is a place.
    pub places: u8,
}

/// The rows that a claim finds beside the cursor.
#[derive(Debug, Default)]
pub struct Found {
    /// Each blocked key, its marker's place, and whether nothing holds the key any more.
    pub markers: Vec<(&'static str, Position, bool)>,
    /// Events that were set aside, each with its `seq`.
    pub set_aside: Vec<(i64, Event)>,
}

/// A relay's memory. A value never changes: each step answers another one.
#[derive(Clone)]
pub struct Memory {
    pipeline: Pipeline,
    reading: Reading,
    /// A read that was sent, with the statement's snapshot.
    read: Option<(Request, Snapshot)>,
    /// An advance that was sent.
    advance: Option<Advance>,
    /// The side read under way.
    side: Option<Side>,
    sets_aside: bool,
    places: u8,
    /// Stands still, since what may happen at any moment is an action, but for the end of the waits
    /// of places.
    now: Moment,
    /// Tells it from others.
    numbers: Vec<Number>,
    name: u64,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:x})", self.name)
    }
}

/// The answer to a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answered {
    /// Each row's `seq`, event and key.
    pub rows: Vec<(i64, Event, &'static str)>,
    /// More rows may follow.
    pub more: bool,
    /// The sequence's value.
    pub sequence: i64,
}

impl Memory {
    /// After a claim: the stored place, and the sequence's value as it was received before the
    /// claim was sent.
    pub fn open(bounds: Bounds, stored: &Position, proven: i64, found: &Found) -> Self {
        let none = Backoff {
            first: Duration::ZERO,
            max: Duration::ZERO,
            jitter: 0.0,
        };
        let limits = PipelineLimits {
            window_events: bounds.window,
            window_bytes: BYTES,
            batch_events: bounds.page,
            batch_bytes: BYTES,
            retry: none,
            probe: match bounds.places {
                1 => none,
                _ => Backoff::default(),
            },
            blocked_keys_max: 10,
            blocked_keys_kept: 10,
            rejections_max: 10,
            advance_every: Duration::ZERO,
            settle: Duration::ZERO,
            poll_busy: Duration::ZERO,
            poll_idle: Duration::ZERO,
            // Without anything that is set aside one look is enough.
            due_every: Duration::from_secs(u64::from(!bounds.sets_aside)),
        };
        let info = SinkInfo {
            kind: "model",
            batch_events_max: bounds.window,
            batch_bytes_max: BYTES,
            in_flight_events_max: bounds.window,
            event_bytes_max: None,
            requests_max: None,
            deduplication: None,
            key_order: bounds.order,
            fence: FenceKind::Timing,
            single_lane: false,
            parts: None,
        };
        let policy = DeliveryPolicy {
            attempts: Some(if bounds.sets_aside { 1 } else { 5 }),
            on_dead: OnDead::Block,
        };
        let router = Router {
            routes: Routes::default().for_destination("model", policy),
            topic: None,
            key: None,
        };
        let markers = found.markers.iter().map(|(key, at, released)| Marker {
            key: (*key).to_owned(),
            at: at.cursor(),
            released: *released,
        });
        let markers: Vec<Marker> = markers.collect();
        let mut memory = Self {
            pipeline: Pipeline::new(limits, info, router, &markers),
            reading: Reading::restore(stored, proven),
            read: None,
            advance: None,
            side: None,
            sets_aside: bounds.sets_aside,
            places: bounds.places,
            now: Moment::default(),
            numbers: Vec::new(),
            name: 0,
        };
        let set_aside = found.set_aside.iter().map(|&(seq, event)| EventRef {
            seq,
            id: id_of(event),
        });
        memory.pipeline.pass_over(set_aside);
        memory.pipeline.lane_opened();
        if !bounds.sets_aside {
            memory.turn();
        }
        memory.described()
    }

    /// The part of the runner's turn that asks nobody: looks that find nothing,
    /// and reports. Answers the advance that is to be sent.
    fn turn(&mut self) -> Option<Advance> {
        while let Some(change) = self.pipeline.next_change(self.now, RANDOM) {
            let Change::Advance { up_to, .. } = change else {
                self.pipeline.change_done(None, false, self.now);
                continue;
            };
            if let Some(advance) = self.reading.advance(&up_to) {
                return Some(advance);
            }
            let wants = self.reading.wants_advance();
            self.pipeline.change_done(None, wants, self.now);
        }
        None
    }

    /// A read is sent; none: the pipeline wants none.
    pub fn begin_read(&self, snapshot: Snapshot) -> Option<Self> {
        let mut memory = self.clone();
        memory.pipeline.next_read(memory.now)?;
        memory.read = Some((memory.reading.request(), snapshot));
        Some(memory.described())
    }

    /// Whether a read is under way.
    pub fn is_reading(&self) -> bool {
        self.read.is_some()
    }

    /// Whether an advance is under way.
    pub fn is_advancing(&self) -> bool {
        self.advance.is_some()
    }

    /// The place that the advance under way stores.
    pub fn advancing_to(&self) -> Option<Position> {
        self.advance.as_ref().map(Advance::position)
    }

    /// Whether a difference is being paged.
    pub fn is_within(&self) -> bool {
        self.reading.request().is_page()
    }

    /// The answer to the read under way: of the outbox as it is now, at most so many rows.
    pub fn page(
        &self,
        outbox: &Mvcc<Event>,
        size: usize,
        key_of: impl Fn(Event) -> &'static str,
    ) -> Answered {
        let taken = |row: &&Row| match &self.read {
            Some((request, snapshot)) => request.takes(snapshot, row.xid, row.seq),
            None => false,
        };
        let rows = outbox.committed().filter(taken);
        let mut rows: Vec<_> = rows
            .map(|row| (row.seq, row.event, key_of(row.event)))
            .collect();
        let more = rows.len() > size;
        rows.truncate(size);
        Answered {
            rows,
            more,
            sequence: outbox.sequence,
        }
    }

    /// Takes the answer to the read under way; none: it is refused as unsound.
    pub fn answer(&self, answered: &Answered) -> Option<Self> {
        let mut memory = self.clone();
        let (request, snapshot) = memory.read.take()?;
        let events = stored_events(&answered.rows, memory.places)?;
        let rows = Rows {
            sequence: answered.sequence,
            last: answered.rows.last().map(|row| row.0),
            more: answered.more,
        };
        let page = memory.reading.answer(request, snapshot, rows, events);
        let page = page.ok()?;
        memory.pipeline.read(page, memory.now);
        Some(memory.described())
    }

    /// All that may be handed to the lane now, each with its ticket; none: nothing.
    pub fn submit(&self) -> Option<(Self, Vec<(u64, Event)>)> {
        let mut memory = self.clone();
        let mut sent = Vec::new();
        while let Some(batch) = memory.pipeline.take_batch(memory.now) {
            sent.extend(
                batch
                    .iter()
                    .map(|record| (record.ticket(), event_of(record.event().id()))),
            );
        }
        let memory = memory.described();
        // An event that follows a refused one of its key is passed over in its turn.
        let passed_over = self.sets_aside && memory.name != self.name;
        (!sent.is_empty() || passed_over).then_some((memory, sent))
    }

    /// The same once the waits of places are over.
    pub(crate) fn submit_after_a_while(&self) -> Option<(Self, Vec<(u64, Event)>)> {
        let mut memory = self.clone();
        memory.now = memory.now.after(A_WHILE);
        memory.submit()
    }

    /// The broker took the record with this ticket.
    pub fn accepted(&self, ticket: u64) -> Self {
        let mut memory = self.clone();
        let outcome = Outcome::accepted();
        let verdict = Verdict { ticket, outcome };
        memory.pipeline.verdicts(vec![verdict], memory.now, RANDOM);
        memory.described()
    }

    /// The broker did not take the record with this ticket for now, nor, on the same lane, these
    /// behind it: the lane was aborted, and another one is opened.
    pub fn failed(&self, ticket: u64, behind: &[u64]) -> Self {
        let mut memory = self.clone();
        let verdict = |ticket, cause| Verdict {
            ticket,
            outcome: Outcome::Unavailable(Arc::new(Unavailability {
                cause,
                reason: "not now".to_owned(),
                wait: None,
            })),
        };
        let behind = behind
            .iter()
            .map(|&ticket| verdict(ticket, Cause::BehindFailure));
        let first = verdict(ticket, Cause::Throttled);
        let verdicts = std::iter::once(first).chain(behind).collect();
        memory.pipeline.verdicts(verdicts, memory.now, RANDOM);
        memory.pipeline.lane_ended(memory.now);
        memory.pipeline.lane_opened();
        memory.described()
    }

    /// No answer came in time: the lane was aborted, and another one is opened.
    pub fn cut(&self) -> Self {
        let mut memory = self.clone();
        let reason = "no answer".to_owned();
        memory.pipeline.answer_is_late(reason, memory.now, RANDOM);
        memory.pipeline.lane_ended(memory.now);
        memory.pipeline.lane_opened();
        memory.described()
    }

    /// An advance is sent; none: nothing is to be stored.
    pub fn begin_advance(&self) -> Option<Self> {
        if self.advance.is_some() {
            return None;
        }
        let mut memory = self.clone();
        memory.advance = Some(memory.turn()?);
        Some(memory.described())
    }

    /// The advance was made, and the answer has come.
    pub fn advanced(&self) -> Self {
        let mut memory = self.clone();
        if let Some(advance) = memory.advance.take() {
            memory.reading.advanced(advance);
            let wants = memory.reading.wants_advance();
            memory.pipeline.change_done(None, wants, memory.now);
        }
        memory.described()
    }

    /// Tells it from others, the names of its numbers included.
    #[must_use]
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Describes it.
    #[must_use]
    pub fn numbers(&self) -> &[Number] {
        &self.numbers
    }

    fn described(mut self) -> Self {
        // Values that outlive a step in production are dropped: nobody asks for them here.
        drop(self.pipeline.take_behind_the_store());
        drop(self.pipeline.take_accepted_inserted_at());
        let mut numbers = Vec::with_capacity(self.numbers.len() + 8);
        let rejects = self.sets_aside;
        self.pipeline
            .describe(rejects, &mut |part| describe(part, &mut numbers));
        if rejects {
            if let Some(side) = &self.side {
                side.describe(&mut |number| numbers.push(number));
            }
        } else {
            assert!(!self.pipeline.has_rejected(), "not told by a description");
        }
        self.reading.describe(&mut |number| numbers.push(number));
        for is in [self.read.is_some(), self.advance.is_some()] {
            numbers.push(Number::Plain(is.into()));
        }
        if let Some((request, snapshot)) = &self.read {
            request.describe(&mut |number| numbers.push(number));
            snapshot.describe(&mut |number| numbers.push(number));
        }
        if let Some(advance) = &self.advance {
            advance.describe(&mut |number| numbers.push(number));
        }
        canonical::rank_reads(&mut numbers);
        numbers.shrink_to_fit();
        let mut hasher = DefaultHasher::new();
        numbers.hash(&mut hasher);
        (self.numbers, self.name) = (numbers, hasher.finish());
        self
    }
}

fn describe(part: Part<'_>, numbers: &mut Vec<Number>) {
    match part {
        Part::Number(number) => numbers.push(Number::Plain(number)),
        Part::Text(text) => {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            numbers.push(Number::Plain(hasher.finish()));
        }
        Part::Event(event) => {
            numbers.push(Number::Plain(event_of(event.id()).into()));
            numbers.push(Number::Seq(event.seq()));
        }
        Part::Seq(seq) => numbers.push(Number::Seq(seq)),
        Part::Place(place) => {
            assert!(describe_place(place, &mut |n| numbers.push(n)), "foreign");
        }
    }
}

/// The topics of the events, in turn.
const TOPICS: [&str; 2] = ["model", "other"];

/// These rows as a store brings them: `seq`, event and key each.
fn stored_events(rows: &[(i64, Event, &'static str)], places: u8) -> Option<Vec<StoredEvent>> {
    let mut page = PageBuilder::default();
    for &(seq, event, key) in rows {
        let mut texts = [None; 9];
        texts[0] = Some(TOPICS[usize::from(event % places)]);
        texts[1] = Some(key);
        let fields = StoredFields {
            seq,
            id: id_of(event),
            occurred_at: 0,
            inserted_at: 0,
            slot: 0,
            texts,
            payload: None,
        };
        page.push(&fields, std::iter::empty()).ok()?;
    }
    Some(page.finish())
}

fn id_of(event: Event) -> Uuid {
    Uuid::from_u128(event.into())
}

fn event_of(id: Uuid) -> Event {
    id.as_bytes()[15]
}
