//! Events as a store read them: plain data over one shared buffer a page.

mod page;

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::{ORDER_KEY_SEPARATOR, OrderBy, WireIdRoom};
pub use page::{PageBuilder, PageFull, StoredFields};

/// The text attributes of an event that may be absent, and the topic, which may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Where the event goes.
    Topic,
    /// The key: order is kept for events of one key.
    Key,
    /// The kind of fact.
    Type,
    /// Media type of the payload.
    ContentType,
    /// The conversation that the event belongs to.
    CorrelationId,
    /// The message that caused the event.
    CausationId,
    /// The tenant that the event belongs to.
    TenantId,
    /// W3C trace context.
    Traceparent,
    /// W3C trace context, the vendors' part.
    Tracestate,
}

const TEXT_FIELDS: usize = 9;
const PAYLOAD: usize = TEXT_FIELDS;
const HEADERS: usize = TEXT_FIELDS + 1;
/// Of an event without a UUID.
const FOREIGN_ID: usize = TEXT_FIELDS + 2;
const SPANS: usize = TEXT_FIELDS + 3;
const ABSENT: u32 = u32::MAX;

/// Where one field lies in the page's buffer; `len == ABSENT` is "none".
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

/// Which event is meant. An application may emit an id again, so that the id alone does not tell,
/// and after a crash a database may issue a `seq` again that no committed event had: only both
/// together name one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventRef {
    /// [`StoredEvent::seq`].
    pub seq: i64,
    /// [`StoredEvent::id`].
    pub id: Uuid,
}

/// An event as the store holds it, ready to be routed.
///
/// Its bytes are a view of the page's buffer: cloning an event copies no payload, and the buffer
/// lives as long as any event of its page.
#[derive(Clone)]
pub struct StoredEvent {
    seq: i64,
    id: Uuid,
    occurred_at: i64,
    inserted_at: i64,
    slot: u16,
    order_by: OrderBy,
    spans: [Span; SPANS],
    page: Bytes,
    /// A pointer alone: few events have one.
    fault: Option<Arc<String>>,
}

impl std::fmt::Debug for StoredEvent {
    // No payload, header or key in any log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredEvent")
            .field("seq", &self.seq)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl StoredEvent {
    /// The number that orders events inside one page. It is *not* a total order over the outbox.
    #[must_use]
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// The event's identity in our tables.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The event's identity for everybody else: consumers, and people who look at events. It is the
    /// text of a [foreign id](PageBuilder::push_foreign), else that of the UUID.
    #[must_use]
    pub fn wire_id<'a>(&'a self, room: &'a mut WireIdRoom) -> &'a str {
        match self.foreign_id() {
            Some(text) => text,
            None => self.id.hyphenated().encode_lower(room),
        }
    }

    pub(crate) fn foreign_id(&self) -> Option<&str> {
        let bytes = self.span(FOREIGN_ID)?;
        std::str::from_utf8(bytes).ok()
    }

    /// The name of this event and no other.
    #[must_use]
    pub fn reference(&self) -> EventRef {
        EventRef {
            seq: self.seq,
            id: self.id,
        }
    }

    /// The writer's clock: microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn occurred_at(&self) -> i64 {
        self.occurred_at
    }

    /// The database's clock at the insert: microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn inserted_at(&self) -> i64 {
        self.inserted_at
    }

    /// The slot: 14-bit hash of the key, else of the id.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    fn span(&self, index: usize) -> Option<&[u8]> {
        let span = self.spans[index];
        if span.len == ABSENT {
            return None;
        }
        let start = span.start as usize;
        self.page.get(start..start + span.len as usize)
    }

    /// A text attribute. Stores check UTF-8 when they read, so that none here means absent.
    #[must_use]
    pub fn text(&self, field: Field) -> Option<&str> {
        self.span(field as usize)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.text(Field::Topic).unwrap_or_default()
    }

    /// The key, if the event has one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.text(Field::Key)
    }

    /// The key of order at the destination for which it was read: events that have the same are
    /// delivered one after the other. It is that of markers, and of copies in the store.
    #[must_use]
    pub fn order_key(&self) -> Option<&str> {
        self.order_key_by(self.order_by)
    }

    /// The key of order at a destination that keeps this order.
    #[must_use]
    pub fn order_key_by(&self, order_by: OrderBy) -> Option<&str> {
        let key = self.key()?;
        match order_by {
            OrderBy::Key => Some(key),
            OrderBy::KeyAndTopic => {
                let before = self.topic().len() + ORDER_KEY_SEPARATOR.len();
                let Span { start, len } = self.spans[Field::Key as usize];
                let from = (start as usize).checked_sub(before)?;
                let bytes = self.page.get(from..(start + len) as usize)?;
                std::str::from_utf8(bytes).ok()
            }
        }
    }

    /// The same event as a destination with this order sees it.
    #[must_use]
    pub fn ordered_by(mut self, order_by: OrderBy) -> Self {
        self.order_by = order_by;
        self
    }

    /// The payload; none is a tombstone, which is not the same as an empty payload.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        self.span(PAYLOAD)
    }

    /// The same event, its payload erased.
    #[cfg(feature = "memory-tables")]
    #[must_use]
    pub(crate) fn without_payload(&self) -> Self {
        let mut event = self.clone();
        event.spans[PAYLOAD].len = ABSENT;
        event
    }

    /// The payload as a view that shares the page's buffer.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<Bytes> {
        let span = self.spans[PAYLOAD];
        (span.len != ABSENT).then(|| {
            self.page
                .slice(span.start as usize..(span.start + span.len) as usize)
        })
    }

    /// The event's own headers, in order, repeats and absent values included.
    #[must_use]
    pub fn headers(&self) -> HeaderIter<'_> {
        HeaderIter {
            rest: self.span(HEADERS).unwrap_or_default(),
        }
    }

    /// Why the store could not read all of what was written, in words that hold none of it; what it
    /// could read is here. No sink sees such an event: it is parked at once, and is copied from its
    /// row as it stands.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref().map(String::as_str)
    }

    /// Bytes that this event keeps in memory, its share of the page's buffer and of the
    /// bookkeeping.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let held: usize = self
            .spans
            .iter()
            .filter(|s| s.len != ABSENT)
            .map(|s| s.len as usize)
            .sum();
        let separator = self.key().map_or(0, |_| ORDER_KEY_SEPARATOR.len());
        held + separator + size_of::<Self>()
    }
}

/// Walks an event's headers.
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a str, Option<&'a str>);

    fn next(&mut self) -> Option<Self::Item> {
        let name = take_text(&mut self.rest)??;
        let value = take_text(&mut self.rest)?;
        Some((name, value))
    }
}

/// Reads one length-prefixed text: none at the end, `Some(None)` for an absent value.
fn take_text<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a str>> {
    let (len, tail) = rest.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len);
    if len == ABSENT {
        *rest = tail;
        return Some(None);
    }
    let (text, tail) = tail.split_at_checked(len as usize)?;
    *rest = tail;
    std::str::from_utf8(text).ok().map(Some)
}
