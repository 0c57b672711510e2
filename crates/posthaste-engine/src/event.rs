//! Events as a store read them: plain data over one shared buffer a page.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::{ForeignId, ORDER_KEY_SEPARATOR, OrderBy, WireIdRoom};

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
        let key = self.key()?;
        match self.order_by {
            OrderBy::Key => Some(key),
            OrderBy::KeyAndTopic => {
                let before = self.topic().len() + ORDER_KEY_SEPARATOR.len_utf8();
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
        let separator = self.key().map_or(0, |_| ORDER_KEY_SEPARATOR.len_utf8());
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

/// The fields that a store hands to [`PageBuilder::push`], borrowed from the driver's row.
#[derive(Debug, Clone, Copy)]
pub struct StoredFields<'a> {
    /// Order inside the page.
    pub seq: i64,
    /// Identity.
    pub id: Uuid,
    /// Writer's clock, microseconds since 1970-01-01 UTC.
    pub occurred_at: i64,
    /// Database's clock, microseconds since 1970-01-01 UTC.
    pub inserted_at: i64,
    /// Slot of the key.
    pub slot: u16,
    /// Texts in the order of [`Field`].
    pub texts: [Option<&'a str>; TEXT_FIELDS],
    /// Payload; none is a tombstone.
    pub payload: Option<&'a [u8]>,
}

/// Gathers a page: the one place where an event's bytes are copied.
#[derive(Debug, Default)]
pub struct PageBuilder {
    buffer: BytesMut,
    events: Vec<Pending>,
    order_by: OrderBy,
    holds_copies: bool,
}

#[derive(Debug)]
struct Pending {
    seq: i64,
    id: Uuid,
    occurred_at: i64,
    inserted_at: i64,
    slot: u16,
    spans: [Span; SPANS],
    fault: Option<Arc<String>>,
}

/// The page would outgrow the 32-bit offsets of its buffer (4 GiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a page of events may hold at most 4 GiB")]
pub struct PageFull;

impl PageBuilder {
    /// An empty page with room for `events` events of about `bytes` bytes together.
    #[must_use]
    pub fn with_capacity(events: usize, bytes: usize) -> Self {
        Self {
            buffer: BytesMut::with_capacity(bytes),
            events: Vec::with_capacity(events),
            ..Self::default()
        }
    }

    /// A page of events for a destination that keeps this order.
    #[must_use]
    pub fn ordered_by(mut self, order_by: OrderBy) -> Self {
        self.order_by = order_by;
        self
    }

    /// A page of copies: with each the store keeps its [key of order](StoredEvent::order_key) in
    /// the place of its key.
    #[must_use]
    pub fn of_copies(mut self) -> Self {
        self.holds_copies = true;
        self
    }

    /// Events gathered so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing was gathered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Bytes gathered so far, bookkeeping included: what a byte budget is compared with.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.events.len() * size_of::<StoredEvent>()
    }

    /// Adds an event; `headers` are its pairs in order.
    ///
    /// # Errors
    /// [`PageFull`] when the page's buffer would pass 4 GiB; the event was not added.
    pub fn push<'a>(
        &mut self,
        fields: &StoredFields<'a>,
        headers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<(), PageFull> {
        let start = self.buffer.len();
        let mut spans = [Span {
            start: 0,
            len: ABSENT,
        }; SPANS];
        for (at, (span, text)) in spans.iter_mut().zip(fields.texts).enumerate() {
            if let Some(mut text) = text {
                if at == Field::Key as usize {
                    text = self.key_of(text, fields.texts[Field::Topic as usize]);
                    // Right behind the topic: together they are the key of order.
                    let mut separator = [0; ORDER_KEY_SEPARATOR.len_utf8()];
                    self.put(ORDER_KEY_SEPARATOR.encode_utf8(&mut separator).as_bytes())?;
                }
                *span = self.put(text.as_bytes())?;
            }
        }
        if let Some(payload) = fields.payload {
            spans[PAYLOAD] = self.put(payload)?;
        }
        let headers_start = self.buffer.len();
        for (name, value) in headers {
            put_text(&mut self.buffer, Some(name));
            put_text(&mut self.buffer, value);
        }
        if self.buffer.len() > headers_start {
            spans[HEADERS] = span(headers_start, self.buffer.len())?;
        }
        if span(start, self.buffer.len()).is_err() {
            self.buffer.truncate(start);
            return Err(PageFull);
        }
        self.events.push(Pending {
            seq: fields.seq,
            id: fields.id,
            occurred_at: fields.occurred_at,
            inserted_at: fields.inserted_at,
            slot: fields.slot,
            spans,
            fault: None,
        });
        Ok(())
    }

    /// Adds an event whose id is no UUID; that of `fields` does not count.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_foreign<'a>(
        &mut self,
        id: ForeignId<'_>,
        fields: &StoredFields<'a>,
        headers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<(), PageFull> {
        let start = self.buffer.len();
        let id_span = self.put(id.as_str().as_bytes())?;
        let id = id.uuid();
        if let Err(full) = self.push(&StoredFields { id, ..*fields }, headers) {
            self.buffer.truncate(start);
            return Err(full);
        }
        if let Some(event) = self.events.last_mut() {
            event.spans[FOREIGN_ID] = id_span;
        }
        Ok(())
    }

    /// Adds an event that the store cannot read as a whole: `fields` are what it could read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_faulty(&mut self, fields: &StoredFields<'_>, fault: &str) -> Result<(), PageFull> {
        self.push(fields, std::iter::empty())?;
        if let Some(event) = self.events.last_mut() {
            event.fault = Some(Arc::new(fault.to_owned()));
        }
        Ok(())
    }

    /// The key of an event of this topic, of which the store keeps this as its key.
    #[must_use]
    pub fn key_of<'a>(&self, stored: &'a str, topic: Option<&str>) -> &'a str {
        if !self.holds_copies || self.order_by == OrderBy::Key {
            return stored;
        }
        let behind_topic = stored.strip_prefix(topic.unwrap_or_default());
        let key = behind_topic.and_then(|rest| rest.strip_prefix(ORDER_KEY_SEPARATOR));
        key.unwrap_or(stored)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<Span, PageFull> {
        let start = self.buffer.len();
        self.buffer.put_slice(bytes);
        span(start, self.buffer.len())
    }

    /// The events, sharing one buffer.
    #[must_use]
    pub fn finish(self) -> Vec<StoredEvent> {
        // A page of few events, read with room for many, would hold that room for as long as one of
        // them lives: a window of such pages would take many times its budget.
        let (held, used) = (self.buffer.capacity(), self.buffer.len());
        let page = match held > used + used / 4 {
            true => Bytes::copy_from_slice(&self.buffer),
            false => self.buffer.freeze(),
        };
        let order_by = self.order_by;
        self.events
            .into_iter()
            .map(|event| StoredEvent {
                seq: event.seq,
                id: event.id,
                occurred_at: event.occurred_at,
                inserted_at: event.inserted_at,
                slot: event.slot,
                order_by,
                spans: event.spans,
                page: page.clone(),
                fault: event.fault,
            })
            .collect()
    }
}

fn span(start: usize, end: usize) -> Result<Span, PageFull> {
    let end32 = u32::try_from(end).map_err(|_| PageFull)?;
    if end32 == ABSENT {
        return Err(PageFull);
    }
    let start = u32::try_from(start).map_err(|_| PageFull)?;
    Ok(Span {
        start,
        len: end32 - start,
    })
}

fn put_text(buffer: &mut BytesMut, text: Option<&str>) {
    // A text longer than 4 GiB cannot come out of any supported database.
    let len = text.map_or(ABSENT, |text| u32::try_from(text.len()).unwrap_or(ABSENT));
    buffer.put_u32(len);
    if len != ABSENT {
        buffer.put_slice(text.unwrap_or_default().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_does_not_hold_the_room_of_a_page_that_stayed_nearly_empty() {
        let mut page = PageBuilder::with_capacity(1_000, 1 << 20);
        page.push(&fields(1, Some(b"small")), std::iter::empty())
            .unwrap();
        let event = page.finish().remove(0);
        let held = event.page.try_into_mut().unwrap().capacity();
        assert!(held < 1_000, "{held} bytes are held");
    }

    fn fields<'a>(seq: i64, payload: Option<&'a [u8]>) -> StoredFields<'a> {
        let mut texts = [None; TEXT_FIELDS];
        texts[Field::Topic as usize] = Some("orders");
        texts[Field::Key as usize] = Some("k");
        StoredFields {
            seq,
            id: Uuid::nil(),
            occurred_at: 1,
            inserted_at: 2,
            slot: 3,
            texts,
            payload,
        }
    }

    #[test]
    fn empty_and_absent_are_kept_apart() {
        let mut page = PageBuilder::default();
        let headers = [("a", None), ("a", Some("")), ("", Some("x"))];
        page.push(&fields(1, Some(b"")), headers.into_iter())
            .unwrap();
        page.push(&fields(2, None), std::iter::empty()).unwrap();
        page.push(&fields(3, Some(&[0xff, 0])), std::iter::empty())
            .unwrap();
        let events = page.finish();
        assert_eq!(events[0].payload(), Some(&b""[..]));
        assert_eq!(events[0].headers().collect::<Vec<_>>(), headers);
        assert_eq!(events[1].payload(), None);
        assert_eq!(events[1].headers().count(), 0);
        assert_eq!(events[2].payload_bytes().unwrap(), &[0xff, 0][..]);
        assert_eq!(events[2].text(Field::Type), None);
        assert_eq!(events[2].topic(), "orders");
    }

    #[test]
    fn the_wire_id_is_the_text_of_a_foreign_id_else_of_the_uuid() {
        let mut page = PageBuilder::default();
        page.push(&fields(1, None), std::iter::empty()).unwrap();
        let foreign = ForeignId::new("507f1f77bcf86cd799439011").unwrap();
        page.push_foreign(foreign, &fields(2, Some(b"v")), std::iter::empty())
            .unwrap();
        let events = page.finish();
        let mut room = crate::wire_id_room();
        assert_eq!(events[0].wire_id(&mut room), Uuid::nil().to_string());
        assert_eq!(events[1].wire_id(&mut room), foreign.as_str());
        assert_eq!(events[1].id(), foreign.uuid());
        assert_eq!(
            (events[1].key(), events[1].payload()),
            (Some("k"), Some(&b"v"[..]))
        );
    }
}
