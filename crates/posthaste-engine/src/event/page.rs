//! How a store makes events: pages, gathered row by row into one buffer.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::{ABSENT, FOREIGN_ID, Field, HEADERS, PAYLOAD, SPANS, Span, StoredEvent, TEXT_FIELDS};
use crate::{ForeignId, ORDER_KEY_SEPARATOR, OrderBy};

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
                    self.put(ORDER_KEY_SEPARATOR.as_bytes())?;
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
