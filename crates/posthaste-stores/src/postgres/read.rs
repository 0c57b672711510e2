//! Reading pages: prepared statements by size class, and the one copy of each event's bytes.

use std::{
    collections::HashMap,
    error::Error,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use postgres_types::{FromSql, ToSql, Type};
use posthaste_engine::{Budget, OrderBy, PageBuilder, StoreError, StoredEvent, StoredFields};
use tokio_postgres::{Column, Row};
use uuid::Uuid;

use super::{
    Grant,
    client::{Client, Prepared, Rows},
    error::classify,
    ordering::with_order,
    slots::Slots,
    sweep::{Answer, Request},
    types::{Headers, Snapshot, UnixMicros},
};

const HEADER: &str = include_str!("sql/header.sql");
const POLL: &str = include_str!("sql/poll.sql");
const PAGE: &str = include_str!("sql/page.sql");
const SIDE_PAGE: &str = include_str!("sql/side_page.sql");
const SLOTS: &str = include_str!("sql/slots.sql");

/// A LIMIT must be literal for a good generic plan, so that pages come in these sizes; each
/// statement asks for one row more, which tells whether the page was all.
pub(super) const PAGE_SIZES: [usize; 11] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000];

/// Nothing is known yet of how large the events are: 10 of the largest are bearable.
const FIRST_PAGE_SIZE: usize = 10;

/// The rows that are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// Everything, or what lies in these slots.
    Main(Option<&'a Slots>),
    /// The rows of these keys behind their markers; with `rests`, only as far as the differences go
    /// in which the markers stand.
    Keys { keys: &'a [String], rests: bool },
}

/// The result of a read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) answer: Answer,
    pub(super) events: Vec<StoredEvent>,
    pub(super) shares_version: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Poll,
    PollOfSlots,
    Page,
    PageOfSlots,
    SidePage,
}

impl Kind {
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] = [
        Self::Poll,
        Self::PollOfSlots,
        Self::Page,
        Self::PageOfSlots,
        Self::SidePage,
    ];

    /// The statement's text for a page of `size` events.
    pub(super) fn sql(self, size: usize) -> String {
        let text = match self {
            Self::Poll | Self::PollOfSlots => POLL,
            Self::Page | Self::PageOfSlots => PAGE,
            Self::SidePage => SIDE_PAGE,
        };
        let slots = match self {
            Self::PollOfSlots | Self::PageOfSlots => {
                SLOTS.replace("{mask}", "$6").replace("{shift}", "$7")
            }
            _ => String::new(),
        };
        with_order(text)
            .replace("{header}", HEADER)
            .replace("{slots}", &slots)
            .replace("{limit}", &(size + 1).to_string())
    }

    pub(super) fn types(self) -> &'static [Type] {
        const PAGE: [Type; 7] = [
            Type::INT8,
            Type::PG_SNAPSHOT,
            Type::PG_SNAPSHOT,
            Type::INT8,
            Type::INT8,
            Type::BYTEA,
            Type::INT4,
        ];
        const POLL: [Type; 7] = [
            Type::INT8,
            Type::PG_SNAPSHOT,
            Type::INT8,
            Type::XID8_ARRAY,
            Type::INT8_ARRAY,
            Type::BYTEA,
            Type::INT4,
        ];
        const SIDE_PAGE: [Type; 8] = [
            Type::INT8,
            Type::PG_SNAPSHOT,
            Type::PG_SNAPSHOT,
            Type::INT8,
            Type::INT8,
            Type::TEXT_ARRAY,
            Type::BOOL,
            Type::BOOL,
        ];
        match self {
            Self::Poll => &POLL[..5],
            Self::PollOfSlots => &POLL,
            Self::Page => &PAGE[..5],
            Self::PageOfSlots => &PAGE,
            Self::SidePage => &SIDE_PAGE,
        }
    }
}

/// A connection that reads pages of one destination in one incarnation.
#[derive(Debug)]
pub(super) struct Reader {
    client: Client,
    destination_id: i64,
    order_by: OrderBy,
    token: Uuid,
    statements: Mutex<HashMap<(Kind, usize), Arc<Prepared>>>,
    /// Bytes that an event of the last page took on average, at least; zero: nothing read yet.
    event_bytes: AtomicUsize,
}

impl Reader {
    pub(super) fn new(client: Client, grant: &Grant) -> Self {
        Self {
            client,
            destination_id: grant.destination_id,
            order_by: grant.order_by,
            token: grant.token,
            statements: Mutex::default(),
            event_bytes: AtomicUsize::new(0),
        }
    }

    /// Sends a read and gathers its page, bounded in events and bytes.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        request: &Request,
        scope: Scope<'_>,
        budget: Budget,
    ) -> Result<Read, StoreError> {
        let size = self.page_size(budget);
        let failed = |error| classify(operation, error);
        let mut rows = self.send(request, scope, size).await.map_err(failed)?;
        let header = rows.next().await.map_err(failed)?;
        let (snapshot, sequence, shares_version) = self.header(operation, header.as_ref())?;

        let bytes = self.event_bytes.load(Ordering::Relaxed);
        let expected = bytes
            .saturating_sub(size_of::<StoredEvent>())
            .saturating_mul(size);
        let mut page =
            PageBuilder::with_capacity(size, expected.min(budget.bytes)).ordered_by(self.order_by);
        let mut last_row = None;
        let mut more = false;
        let mut event_bytes = 0;
        while let Some(row) = rows.next().await.map_err(failed)? {
            let full = page.len() >= size.min(budget.events.max(1))
                || page.bytes() + row.raw_size_bytes() > budget.bytes;
            if full && !page.is_empty() {
                more = true;
                event_bytes = row.raw_size_bytes();
                break;
            }
            last_row = Some(push(&mut page, &row).map_err(|reason| StoreError::Bug {
                operation,
                reason: format!("an event cannot be read: {reason}"),
            })?);
        }
        if let Some(average) = page.bytes().checked_div(page.len()) {
            // Down by steps: one small event among large ones must not call for a thousand of them.
            let steps = self.event_bytes.load(Ordering::Relaxed) / 4;
            self.event_bytes
                .store(average.max(event_bytes).max(steps), Ordering::Relaxed);
        }
        let answer = Answer {
            snapshot,
            sequence,
            last_row,
            more,
        };
        Ok(Read {
            answer,
            events: page.finish(),
            shares_version,
        })
    }

    /// The largest size that fits both budgets; rows beyond them would be sent for nothing.
    fn page_size(&self, budget: Budget) -> usize {
        let by_bytes = match self.event_bytes.load(Ordering::Relaxed) {
            0 => FIRST_PAGE_SIZE,
            // Half as many again: an average is not a bound, and a short page costs a round trip.
            bytes => (budget.bytes / bytes).saturating_mul(3) / 2,
        };
        let wanted = budget.events.min(by_bytes);
        let fits = PAGE_SIZES.iter().rev().find(|&&size| size <= wanted);
        fits.copied().unwrap_or(PAGE_SIZES[0])
    }

    async fn send(
        &self,
        request: &Request,
        scope: Scope<'_>,
        size: usize,
    ) -> Result<Rows<'_>, tokio_postgres::Error> {
        let destination = &self.destination_id;
        let by_topic = self.order_by == OrderBy::KeyAndTopic;
        let (whole, of_slots, mut params): (_, _, Vec<&(dyn ToSql + Sync)>) = match request {
            Request::Poll {
                low,
                floor,
                stragglers: (xids, floors),
                ..
            } => {
                let params: [&(dyn ToSql + Sync); 5] = [destination, &**low, floor, xids, floors];
                (Kind::Poll, Kind::PollOfSlots, params.into())
            }
            Request::Page {
                low,
                high,
                last,
                until,
            } => {
                let params: [&(dyn ToSql + Sync); 5] = [destination, &**low, &**high, last, until];
                (Kind::Page, Kind::PageOfSlots, params.into())
            }
        };
        let kind = match &scope {
            Scope::Main(None) => whole,
            Scope::Main(Some(slots)) => {
                params.extend::<[&(dyn ToSql + Sync); 2]>([&slots.mask, &slots.shift]);
                of_slots
            }
            // A side read has no polls.
            Scope::Keys { keys, rests } => {
                params.extend::<[&(dyn ToSql + Sync); 3]>([keys, rests, &by_topic]);
                Kind::SidePage
            }
        };
        let statement = self.statement(kind, size).await?;
        self.client.read(&statement, &params).await
    }

    async fn statement(
        &self,
        kind: Kind,
        size: usize,
    ) -> Result<Arc<Prepared>, tokio_postgres::Error> {
        let known = || {
            self.statements
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(statement) = known().get(&(kind, size)) {
            return Ok(Arc::clone(statement));
        }
        let statement = self.client.prepare(kind.sql(size), kind.types()).await?;
        let statement = Arc::new(statement);
        known().insert((kind, size), Arc::clone(&statement));
        Ok(statement)
    }

    /// Checks the header row: nothing behind it counts when the incarnation is not ours.
    fn header(
        &self,
        operation: &'static str,
        row: Option<&Row>,
    ) -> Result<(Snapshot, i64, i64), StoreError> {
        let bug = |reason: String| StoreError::Bug { operation, reason };
        let row = row.ok_or_else(|| bug("the answer has no header".to_owned()))?;
        let read = |error: tokio_postgres::Error| bug(format!("the header: {error}"));
        if row
            .try_get::<_, Option<&str>>(TOPIC)
            .map_err(read)?
            .is_some()
        {
            return Err(bug("the answer does not begin with its header".to_owned()));
        }
        let token: Option<Uuid> = row.try_get(ID).map_err(read)?;
        if token != Some(self.token) {
            return Err(StoreError::IncarnationChanged { operation });
        }
        let sequence = row.try_get(SEQ).map_err(read)?;
        let snapshot: &[u8] = row.try_get(PAYLOAD).map_err(read)?;
        let snapshot =
            Snapshot::decode(snapshot).map_err(|error| bug(format!("the header: {error}")))?;
        let version: Option<&str> = row.try_get(KEY).map_err(read)?;
        let version = version.and_then(|version| version.parse().ok());
        Ok((snapshot, sequence, version.unwrap_or(0)))
    }
}

// The columns of every read, in the order of the statements.
const SEQ: usize = 0;
const ID: usize = 1;
const TOPIC: usize = 2;
const KEY: usize = 3;
const PAYLOAD: usize = 6;

/// The times that the contract allows an event to bear, in microseconds since 1970-01-01 UTC: the
/// years 1 to 9999.
const OCCURRED_AT: Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;

/// Reads the columns of a row, and remembers what cannot be read.
struct Columns<'a> {
    row: &'a Row,
    fault: Option<String>,
}

impl<'a> Columns<'a> {
    fn get<T: FromSql<'a> + Default>(&mut self, column: usize) -> T {
        match self.row.try_get(column) {
            Ok(value) => value,
            Err(error) => {
                let cause = error.source().map(ToString::to_string);
                self.refuse(column, &cause.unwrap_or_else(|| error.to_string()));
                T::default()
            }
        }
    }

    fn occurred_at(&mut self, column: usize) -> i64 {
        let UnixMicros(at) = self.get(column);
        if OCCURRED_AT.contains(&at) {
            return at;
        }
        self.refuse(column, "it is not within the years 1 to 9999");
        0
    }

    fn slot(&mut self, column: usize) -> u16 {
        let slot: i16 = self.get(column);
        // As the statements read it (slots.sql).
        let of_14_bits = u16::try_from(slot & 0x3fff).unwrap_or(0);
        if i16::try_from(of_14_bits) != Ok(slot) {
            self.refuse(column, "it is not within 0 to 16383");
        }
        of_14_bits
    }

    /// The first fault is the one that is told.
    fn refuse(&mut self, column: usize, why: &str) {
        let name = self.row.columns().get(column).map_or("?", Column::name);
        let fault = || format!("its column `{name}` cannot be read: {why}");
        self.fault.get_or_insert_with(fault);
    }
}

/// Copies an event's bytes into the page, straight from the driver's row. Answers its `seq`. Where
/// a column cannot be read, the event says so, and the reading goes on: one bad row is no reason to
/// stop a destination.
pub(super) fn push(page: &mut PageBuilder, row: &Row) -> Result<i64, Box<dyn Error>> {
    let seq = row.try_get(SEQ)?;
    let mut columns = Columns { row, fault: None };
    let headers: Headers<'_> = columns.get(7);
    let topic: &str = columns.get(TOPIC);
    let UnixMicros(inserted_at) = columns.get(9);
    let fields = StoredFields {
        seq,
        id: columns.get(ID),
        occurred_at: columns.occurred_at(8),
        // Only ages are told by it, and the difference to now is to be a number.
        inserted_at: inserted_at.clamp(OCCURRED_AT.start, OCCURRED_AT.end),
        slot: columns.slot(15),
        // In the order of `posthaste_engine::Field`.
        texts: [
            Some(topic),
            columns.get(KEY),
            columns.get(4),
            columns.get(5),
            columns.get(10),
            columns.get(11),
            columns.get(12),
            columns.get(13),
            columns.get(14),
        ],
        payload: columns.get(PAYLOAD),
    };
    match columns.fault {
        None => page.push(&fields, headers)?,
        Some(fault) => page.push_faulty(&fields, &fault)?,
    }
    Ok(seq)
}
