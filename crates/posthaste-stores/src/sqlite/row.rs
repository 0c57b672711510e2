//! Events between the tables' rows and memory.

use std::borrow::Cow;

use posthaste_engine::{
    Budget, Field, OrderBy, PageBuilder, StoreError, StoredEvent, StoredFields,
};
use rusqlite::{Row, types::ValueRef};
use uuid::Uuid;

use super::error::{classify, unexpected};
use crate::{
    headers,
    page::{self, Pushed},
};

// The columns of an event, in the order in which a statement selects them, before any other. Texts
// stand in the order of `Field`.
const SEQ: usize = 0;
const ID: usize = 1;
const OCCURRED_AT: usize = 2;
const INSERTED_AT: usize = 3;
const HEADERS: usize = 4;
const PAYLOAD: usize = 5;
const TEXTS: usize = 6;
/// The first column that a statement may add behind the event's.
pub(super) const BEHIND: usize = TEXTS + 9;

/// Copies the row's event into the page. The first event of a page always fits. Where a column
/// cannot be read, the event says so, and the reading goes on: one bad row is no reason to stop a
/// destination.
pub(super) fn push(
    page: &mut PageBuilder,
    budget: Budget,
    operation: &'static str,
    row: &Row<'_>,
) -> Result<Pushed, StoreError> {
    let fail = |error| classify(operation, error);
    let seq: i64 = row.get(SEQ).map_err(fail)?;
    if page.len() >= budget.events.max(1) {
        return Ok(Pushed::NoRoom);
    }
    let mut columns = Columns {
        row,
        seq,
        fault: None,
    };
    let texts = columns.texts().map_err(fail)?;
    let payload = columns.payload().map_err(fail)?;
    let header_texts = columns.headers().map_err(fail)?;

    let id = columns.id().map_err(fail)?;
    let [topic, key] = [Field::Topic, Field::Key].map(|field| texts[field as usize].as_deref());
    let slot = match key.map(|key| page.key_of(key, topic)) {
        Some(key) => posthaste::slot(key),
        None => posthaste::slot(id.hyphenated().encode_lower(&mut Uuid::encode_buffer())),
    };
    let fields = StoredFields {
        seq,
        id,
        occurred_at: columns.micros(OCCURRED_AT).map_err(fail)?,
        inserted_at: columns.micros(INSERTED_AT).map_err(fail)?,
        slot,
        texts: std::array::from_fn(|field| texts[field].as_deref()),
        payload,
    };
    let fault = columns.fault.as_deref();
    page::push(page, budget, operation, &fields, &header_texts, fault)
}

/// A row that may break the table's own checks: the file was changed behind them.
struct Columns<'a> {
    row: &'a Row<'a>,
    seq: i64,
    fault: Option<String>,
}

impl<'a> Columns<'a> {
    fn id(&mut self) -> rusqlite::Result<Uuid> {
        let id = event_id(self.row, ID)?;
        if id.is_none() {
            self.refuse(ID);
        }
        Ok(id.unwrap_or_default())
    }

    fn texts(&mut self) -> rusqlite::Result<[Option<Cow<'a, str>>; 9]> {
        let mut texts: [Option<Cow<'a, str>>; 9] = Default::default();
        for (column, text) in (TEXTS..).zip(&mut texts) {
            *text = match self.row.get_ref(column)? {
                ValueRef::Null => None,
                ValueRef::Text(bytes) => Some(utf8(bytes, self.seq, "a text column")),
                value => {
                    self.refuse(column);
                    value.as_bytes().ok().map(String::from_utf8_lossy)
                }
            };
        }
        Ok(texts)
    }

    fn payload(&mut self) -> rusqlite::Result<Option<&'a [u8]>> {
        Ok(match self.row.get_ref(PAYLOAD)? {
            ValueRef::Null => None,
            ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Some(bytes),
            _ => {
                self.refuse(PAYLOAD);
                None
            }
        })
    }

    /// Names and values in turn.
    fn headers(&mut self) -> rusqlite::Result<Vec<Option<String>>> {
        let texts = match self.row.get_ref(HEADERS)? {
            // The usual row has none and pays nothing.
            ValueRef::Text(b"[]") => return Ok(Vec::new()),
            ValueRef::Text(json) => headers::parse(&utf8(as_checked(json), self.seq, "headers")),
            _ => None,
        };
        let texts = texts.filter(|texts| headers::pairs(texts).is_some());
        if texts.is_none() {
            self.refuse(HEADERS);
        }
        Ok(texts.unwrap_or_default())
    }

    fn micros(&mut self, column: usize) -> rusqlite::Result<i64> {
        Ok(match self.row.get_ref(column)? {
            ValueRef::Integer(micros) => micros,
            _ => {
                self.refuse(column);
                0
            }
        })
    }

    /// The first fault is the one that is told.
    fn refuse(&mut self, column: usize) {
        let name = self.row.as_ref().column_name(column).unwrap_or("?");
        let fault = || format!("its column `{name}` breaks the table's own checks");
        self.fault.get_or_insert_with(fault);
    }
}

/// The one event of a row of parked copies, whatever its size.
pub(super) fn copy(
    operation: &'static str,
    order_by: OrderBy,
    row: &Row<'_>,
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

/// The topic and the key of a row, where the statement selects them at `column` and behind it. A
/// row whose checks were bypassed may have no topic: its is empty.
pub(super) fn topic_and_key<'a>(
    operation: &'static str,
    row: &'a Row<'_>,
    column: usize,
) -> Result<(Cow<'a, str>, Option<Cow<'a, str>>), StoreError> {
    let text = |column| {
        let value = row.get_ref(column);
        let value = value.map_err(|error| classify(operation, error))?;
        Ok(value.as_bytes().ok().map(String::from_utf8_lossy))
    };
    Ok((text(column)?.unwrap_or_default(), text(column + 1)?))
}

/// The event's id at `column`; none if the text there is none.
pub(super) fn event_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Uuid>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(text) => Uuid::try_parse_ascii(as_checked(text)).ok(),
        _ => None,
    })
}

/// The part of a text that the table's checks saw: none of them looks for a NUL, and SQLite's
/// functions end there. A writer that counts the end of a C string in leaves one, and its event is
/// to be read all the same.
fn as_checked(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Where the statement of a page holds the topic, and behind it the key.
pub(super) const TOPIC: usize = TEXTS + Field::Topic as usize;

/// SQLite takes any bytes as text, and no CHECK can refuse them. One such event must neither stop
/// the outbox nor be lost, so it is delivered with U+FFFD where the bytes mean nothing.
fn utf8<'a>(bytes: &'a [u8], seq: i64, what: &str) -> Cow<'a, str> {
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, Cow::Owned(_)) {
        tracing::warn!(seq, "{what} of event {seq} is not UTF-8: U+FFFD stands in");
    }
    text
}
