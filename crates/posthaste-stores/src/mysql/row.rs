//! Events between the tables' rows and memory.

use std::borrow::Cow;

use mysql_async::{Row, Value};
use posthaste_engine::{
    Budget, Field, OrderBy, PageBuilder, StoreError, StoredEvent, StoredFields,
};
use uuid::Uuid;

use super::error::unexpected;
use crate::{
    headers,
    page::{self, Pushed},
};

/// The columns of an event of the outbox `o`, in the order of those below. Times may be none: rows
/// of a server, or of a session, that checks nothing. A row that fits into no packet, which one row
/// must, comes without headers and payload, and says so.
pub(super) const OUTBOX: &str = "o.seq, o.slot, o.id, \
     timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', o.occurred_at), \
     timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', o.inserted_at), \
     if(coalesce(octet_length(o.payload), 0) + octet_length(o.headers) + 65536 \
         > @@max_allowed_packet, 'too large', convert(o.headers using utf8mb4)), \
     if(coalesce(octet_length(o.payload), 0) + octet_length(o.headers) + 65536 \
         > @@max_allowed_packet, null, o.payload), \
     o.topic, o.`key`, o.`type`, o.content_type, \
     o.correlation_id, o.causation_id, o.tenant_id, o.traceparent, o.tracestate";

/// The same of a parked copy `p`.
pub(super) const PARKED: &str = "p.seq, p.slot, p.event_id, p.occurred_at, p.inserted_at, \
     if(coalesce(octet_length(p.payload), 0) + octet_length(p.headers) + 65536 \
         > @@max_allowed_packet, 'too large', p.headers), \
     if(coalesce(octet_length(p.payload), 0) + octet_length(p.headers) + 65536 \
         > @@max_allowed_packet, null, p.payload), \
     p.topic, p.`key`, p.`type`, p.content_type, p.correlation_id, \
     p.causation_id, p.tenant_id, p.traceparent, p.tracestate";

// Texts stand in the order of `Field`.
const SEQ: usize = 0;
const SLOT: usize = 1;
const ID: usize = 2;
const OCCURRED_AT: usize = 3;
const INSERTED_AT: usize = 4;
const HEADERS: usize = 5;
const PAYLOAD: usize = 6;
const TEXTS: usize = 7;
/// The first column that a statement may add behind the event's.
pub(super) const BEHIND: usize = TEXTS + 9;

/// The bytes that each text may have.
const TEXTS_MAX: [usize; 9] = [249, 1_024, 255, 255, 255, 255, 255, 255, 512];

/// The times that the contract allows an event to bear: the years 1 to 9999.
const TIMES: std::ops::Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;

/// The row's number and slot.
pub(super) fn place(operation: &'static str, row: &Row) -> Result<(u64, u16), StoreError> {
    let columns = Columns { row, fault: None };
    let number = columns.number(SEQ);
    let seq = number.and_then(|seq| u64::try_from(seq).ok());
    let slot = columns
        .number(SLOT)
        .and_then(|slot| u16::try_from(slot).ok());
    seq.zip(slot)
        .ok_or_else(|| unexpected(operation, "a row without number and slot"))
}

/// Whether the statement has the row's event, and not only its place.
pub(super) fn has_event(row: &Row) -> bool {
    !matches!(row.as_ref(HEADERS), None | Some(Value::NULL))
}

/// Copies the row's event into the page. The first event of a page always fits. Where a column
/// cannot be read, the event says so, and the reading goes on: one bad row is no reason to stop a
/// destination.
pub(super) fn push(
    page: &mut PageBuilder,
    budget: Budget,
    operation: &'static str,
    row: &Row,
) -> Result<Pushed, StoreError> {
    if page.len() >= budget.events.max(1) {
        return Ok(Pushed::NoRoom);
    }
    let (seq, slot) = place(operation, row)?;
    let seq = i64::try_from(seq).map_err(|_| unexpected(operation, "a number beyond 2^63"))?;
    let mut columns = Columns { row, fault: None };
    let texts = columns.texts(page);
    let payload = columns.bytes(PAYLOAD);
    let header_texts = columns.headers();

    let fields = StoredFields {
        seq,
        id: columns.id(),
        occurred_at: columns.time(OCCURRED_AT),
        inserted_at: columns.time(INSERTED_AT),
        slot,
        texts: std::array::from_fn(|field| texts[field].as_deref()),
        payload,
    };
    let fault = columns.fault.as_deref();
    page::push(page, budget, operation, &fields, &header_texts, fault)
}

/// The one event of a row of parked copies, whatever its size.
pub(super) fn copy(
    operation: &'static str,
    order_by: OrderBy,
    row: &Row,
) -> Result<StoredEvent, StoreError> {
    let mut page = PageBuilder::default().ordered_by(order_by).of_copies();
    let budget = Budget {
        events: 1,
        bytes: 0,
    };
    push(&mut page, budget, operation, row)?;
    page.finish()
        .pop()
        .ok_or_else(|| unexpected(operation, "a row without an event"))
}

/// The key of order of the row's event.
pub(super) fn order_key(order_by: OrderBy, row: &Row) -> Option<String> {
    let columns = Columns { row, fault: None };
    let text = |field| {
        let bytes = columns.bytes(TEXTS + field as usize);
        bytes.map(String::from_utf8_lossy)
    };
    let topic = text(Field::Topic).unwrap_or_default();
    let key = text(Field::Key)?;
    Some(order_by.order_key(&topic, &key).into_owned())
}

/// An event's id as the tables have it; none: it is no UUID.
pub(super) fn event_id(bytes: Option<&[u8]>) -> Option<Uuid> {
    bytes.and_then(|bytes| Uuid::from_slice(bytes).ok())
}

/// A row that may break the table's own checks.
struct Columns<'a> {
    row: &'a Row,
    fault: Option<String>,
}

impl<'a> Columns<'a> {
    fn bytes(&self, column: usize) -> Option<&'a [u8]> {
        match self.row.as_ref(column) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// A number, of a statement that was sent as text or was prepared.
    fn number(&self, column: usize) -> Option<i64> {
        match self.row.as_ref(column)? {
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            Value::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    fn id(&mut self) -> Uuid {
        let id = event_id(self.bytes(ID));
        if id.is_none() {
            self.refuse(ID, "it has not 16 bytes");
        }
        id.unwrap_or_default()
    }

    fn texts(&mut self, page: &PageBuilder) -> [Option<Cow<'a, str>>; 9] {
        let mut texts: [Option<Cow<'a, str>>; 9] = Default::default();
        for (field, max) in TEXTS_MAX.into_iter().enumerate() {
            let column = TEXTS + field;
            let Some(bytes) = self.bytes(column) else {
                continue;
            };
            let read = String::from_utf8_lossy(bytes);
            if matches!(read, Cow::Owned(_)) {
                self.refuse(column, "it is not UTF-8");
            }
            let len = match field == Field::Key as usize {
                true => page
                    .key_of(&read, texts[Field::Topic as usize].as_deref())
                    .len(),
                false => bytes.len(),
            };
            if len > max || bytes.contains(&0) {
                self.refuse(column, "it breaks the table's own checks");
            }
            texts[field] = Some(read);
        }
        if texts[Field::Topic as usize]
            .as_ref()
            .is_none_or(|topic| topic.is_empty())
        {
            self.refuse(TEXTS, "it is empty");
        }
        texts
    }

    /// Names and values in turn.
    fn headers(&mut self) -> Vec<Option<String>> {
        let texts = match self.bytes(HEADERS) {
            // The usual row has none and pays nothing.
            Some(b"[]") => return Vec::new(),
            Some(b"too large") => {
                self.refuse(PAYLOAD, "the row is over the server's max_allowed_packet");
                return Vec::new();
            }
            Some(json) => std::str::from_utf8(json).ok().and_then(headers::parse),
            None => None,
        };
        let texts = texts.filter(|texts| headers::pairs(texts).is_some());
        if texts.is_none() {
            self.refuse(HEADERS, "it is no array of names and values");
        }
        texts.unwrap_or_default()
    }

    fn time(&mut self, column: usize) -> i64 {
        let time = self.number(column).filter(|time| TIMES.contains(time));
        if time.is_none() {
            self.refuse(column, "it is not within the years 1 to 9999");
        }
        time.unwrap_or(0)
    }

    /// The first fault is the one that is told.
    fn refuse(&mut self, column: usize, why: &str) {
        const NAMES: [&str; BEHIND] = [
            "seq",
            "slot",
            "id",
            "occurred_at",
            "inserted_at",
            "headers",
            "payload",
            "topic",
            "key",
            "type",
            "content_type",
            "correlation_id",
            "causation_id",
            "tenant_id",
            "traceparent",
            "tracestate",
        ];
        let name = NAMES.get(column).unwrap_or(&"?");
        let fault = || format!("its column `{name}` cannot be read: {why}");
        self.fault.get_or_insert_with(fault);
    }
}
