//! An event after routing, as sinks see it.

use std::slice;

use bytes::Bytes;

use crate::{Field, StoredEvent, WireIdRoom, event::HeaderIter, wire_id_room};

/// A routed event: what goes over the wire. Sinks read it and never change it.
///
/// The key of order ([`order_key`](Self::order_key)) and the key of the record ([`key`](Self::key))
/// are two things: a template may give the record another key.
#[derive(Debug, Clone)]
pub struct Record {
    ticket: u64,
    order_key: Option<u64>,
    topic: Option<Box<str>>,
    key: Option<Option<Box<[u8]>>>,
    /// Most records have none.
    overrides: Option<Box<Overrides>>,
    event: StoredEvent,
}

/// The parts that a record has instead of its event's own.
#[derive(Debug, Clone, Default)]
struct Overrides {
    value: Option<Option<Bytes>>,
    headers: Option<Vec<GivenHeader>>,
    added: Vec<GivenHeader>,
    timestamp: Option<i64>,
    partition: Option<u32>,
    wire_id: Option<Box<str>>,
    dedup_id: Option<Box<str>>,
}

/// A header's name and value.
pub type GivenHeader = (Box<str>, Option<Box<str>>);

impl Record {
    /// A record of `event` under its own topic and key.
    #[must_use]
    pub fn new(ticket: u64, event: StoredEvent) -> Self {
        let order_key = event.order_key().map(key_hash);
        Self {
            ticket,
            order_key,
            topic: None,
            key: None,
            overrides: None,
            event,
        }
    }

    /// The same record under another topic.
    #[must_use]
    pub fn with_topic(mut self, topic: String) -> Self {
        self.topic = Some(topic.into_boxed_str());
        self
    }

    /// The same record under another record key, or under none.
    #[must_use]
    pub fn with_key(mut self, key: Option<Vec<u8>>) -> Self {
        self.key = Some(key.map(Vec::into_boxed_slice));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Overrides)) -> Self {
        change(self.overrides.get_or_insert_default());
        self
    }

    /// The same record with another value, or as a tombstone.
    #[must_use]
    pub fn with_value(self, value: Option<Bytes>) -> Self {
        self.with(|overrides| overrides.value = Some(value))
    }

    /// The same record with these headers and no others: none of the event's own, and none of its
    /// attributes, whether the protocol has them as headers or in fields of their own.
    #[must_use]
    pub fn with_headers(self, headers: Vec<GivenHeader>) -> Self {
        self.with(|overrides| overrides.headers = Some(headers))
    }

    /// The same record with these headers in front of those that it has, be they the event's own or
    /// [given](Self::with_headers): they tell how its value is to be read.
    #[must_use]
    pub fn with_added_headers(self, headers: Vec<GivenHeader>) -> Self {
        self.with(|overrides| overrides.added.extend(headers))
    }

    /// The same record with another time: microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn with_timestamp(self, micros: i64) -> Self {
        self.with(|overrides| overrides.timestamp = Some(micros))
    }

    /// The same record for this partition of its topic. A sink whose topics have none ignores it.
    #[must_use]
    pub fn with_partition(self, partition: u32) -> Self {
        self.with(|overrides| overrides.partition = Some(partition))
    }

    /// The same record under another id, of 1 to 255 bytes.
    #[must_use]
    pub fn with_wire_id(self, id: String) -> Self {
        self.with(|overrides| overrides.wire_id = Some(id.into_boxed_str()))
    }

    /// The same record under another id for the broker's de-duplication alone, of 1 to 255 bytes:
    /// an event that is sent again on purpose must not be taken for a repeat. A sink whose broker
    /// knows no such ids ignores it.
    #[must_use]
    pub fn with_dedup_id(self, id: String) -> Self {
        self.with(|overrides| overrides.dedup_id = Some(id.into_boxed_str()))
    }

    fn overridden<'a, T>(&'a self, of: impl FnOnce(&'a Overrides) -> Option<T>) -> Option<T> {
        self.overrides.as_deref().and_then(of)
    }

    /// The engine's name for this record on its lane; verdicts bear it.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// A hash of the key of order; none for events without a key, which no order binds.
    #[must_use]
    pub fn order_key(&self) -> Option<u64> {
        self.order_key
    }

    /// The topic to publish to.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.topic.as_deref().unwrap_or_else(|| self.event.topic())
    }

    /// The record's key. A protocol that has only text sends one that is not UTF-8 in base64, under
    /// a name that says so.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.key {
            Some(key) => key.as_deref(),
            None => self.event.key().map(str::as_bytes),
        }
    }

    /// The value as a view that shares the bytes.
    #[must_use]
    pub fn value_bytes(&self) -> Option<Bytes> {
        match self.overridden(|overrides| overrides.value.as_ref()) {
            Some(value) => value.clone(),
            None => self.event.payload_bytes(),
        }
    }

    /// The value; none is a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match self.overridden(|overrides| overrides.value.as_ref()) {
            Some(value) => value.as_deref(),
            None => self.event.payload(),
        }
    }

    /// The time that the record bears: microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn timestamp(&self) -> i64 {
        let given = self.overridden(|overrides| overrides.timestamp);
        given.unwrap_or_else(|| self.event.occurred_at())
    }

    /// The partition of its topic that it is for; none: the sink chooses, by the key.
    #[must_use]
    pub fn partition(&self) -> Option<u32> {
        self.overridden(|overrides| overrides.partition)
    }

    /// The id by which consumers tell repeats ([`StoredEvent::wire_id`]).
    #[must_use]
    pub fn wire_id<'a>(&'a self, room: &'a mut WireIdRoom) -> &'a str {
        match self.overridden(|overrides| overrides.wire_id.as_deref()) {
            Some(id) => id,
            None => self.event.wire_id(room),
        }
    }

    /// Bytes of the [wire id](Self::wire_id), which is not rendered for that.
    #[must_use]
    pub fn wire_id_len(&self) -> usize {
        let given = self.overridden(|overrides| overrides.wire_id.as_deref());
        let text = given.or_else(|| self.event.foreign_id());
        text.map_or(wire_id_room().len(), str::len)
    }

    /// The id by which the broker tells repeats: the wire id, unless another one was given.
    #[must_use]
    pub fn dedup_id<'a>(&'a self, room: &'a mut WireIdRoom) -> &'a str {
        match self.overridden(|overrides| overrides.dedup_id.as_deref()) {
            Some(id) => id,
            None => self.wire_id(room),
        }
    }

    /// The event that this record carries.
    #[must_use]
    pub fn event(&self) -> &StoredEvent {
        &self.event
    }

    /// Whether the headers were given, so that no other may be sent: neither `id` and `occurred-at`
    /// nor any attribute.
    #[must_use]
    pub fn has_given_headers(&self) -> bool {
        self.overridden(|overrides| overrides.headers.as_ref())
            .is_some()
    }

    /// An attribute of the event; none where [headers are given](Self::has_given_headers).
    #[must_use]
    pub fn attribute(&self, field: Field) -> Option<&str> {
        match self.has_given_headers() {
            true => None,
            false => self.event.text(field),
        }
    }

    /// The attributes of the event that it has, by the names of their headers; none where
    /// [headers are given](Self::has_given_headers).
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, &str)> + Clone {
        let all = ATTRIBUTES.into_iter();
        all.filter_map(|(name, field)| Some((name, self.attribute(field)?)))
    }

    /// The headers without the event's attributes: those that were
    /// [added](Self::with_added_headers), then the event's own in their order, or those that were
    /// given.
    #[must_use]
    pub fn own_headers(&self) -> OwnHeaders<'_> {
        let overrides = self.overrides.as_deref();
        let added = overrides.map_or(&[][..], |overrides| &overrides.added);
        OwnHeaders {
            added: added.iter(),
            rest: match overrides.and_then(|overrides| overrides.headers.as_ref()) {
                Some(given) => Rest::Given(given.iter()),
                None => Rest::Stored(self.event.headers()),
            },
        }
    }

    /// The broker's headers: the event's attributes first (`id`, `type`, `content-type`,
    /// `correlation-id`, `causation-id`, `tenant-id`, `traceparent`, `tracestate`, absent ones left
    /// out), then the event's own headers in their order. A clash yields both.
    ///
    /// `id` and `occurred-at` are not text in the store; a sink renders them from
    /// [`wire_id`](Self::wire_id) and [`timestamp`](Self::timestamp) in front of these, unless
    /// [headers are given](Self::has_given_headers).
    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&str>)> + Clone {
        let attributes = self.attributes().map(|(name, value)| (name, Some(value)));
        attributes.chain(self.own_headers())
    }
}

const ATTRIBUTES: [(&str, Field); 7] = [
    ("type", Field::Type),
    ("content-type", Field::ContentType),
    ("correlation-id", Field::CorrelationId),
    ("causation-id", Field::CausationId),
    ("tenant-id", Field::TenantId),
    ("traceparent", Field::Traceparent),
    ("tracestate", Field::Tracestate),
];

/// Walks a record's headers, but for the event's attributes.
#[derive(Debug, Clone)]
pub struct OwnHeaders<'a> {
    added: slice::Iter<'a, GivenHeader>,
    rest: Rest<'a>,
}

#[derive(Debug, Clone)]
enum Rest<'a> {
    Stored(HeaderIter<'a>),
    Given(slice::Iter<'a, GivenHeader>),
}

impl OwnHeaders<'_> {
    /// How many of those that come next were [added](Record::with_added_headers).
    #[must_use]
    pub fn added_len(&self) -> usize {
        self.added.len()
    }
}

impl<'a> Iterator for OwnHeaders<'a> {
    type Item = (&'a str, Option<&'a str>);

    fn next(&mut self) -> Option<Self::Item> {
        let added = self.added.next();
        let given = match &mut self.rest {
            Rest::Stored(stored) if added.is_none() => return stored.next(),
            Rest::Given(given) => added.or_else(|| given.next()),
            Rest::Stored(_) => added,
        };
        let (name, value) = given?;
        Some((name, value.as_deref()))
    }
}

/// A stable hash of a key of order (FNV-1a, 64 bits). Two keys that collide merely wait for each
/// other, so it need not be strong, only the same on every run.
#[must_use]
pub(crate) fn key_hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{PageBuilder, StoredFields};

    fn record() -> Record {
        let mut fields = StoredFields {
            seq: 1,
            id: Uuid::nil(),
            occurred_at: 7,
            inserted_at: 0,
            slot: 0,
            texts: [None; 9],
            payload: Some(b"v"),
        };
        fields.texts[Field::Key as usize] = Some("k");
        fields.texts[Field::Type as usize] = Some("t");
        let mut page = PageBuilder::default();
        page.push(&fields, [("own", None)].into_iter()).unwrap();
        Record::new(1, page.finish().remove(0))
    }

    #[test]
    fn an_override_stands_for_the_events_own_and_leaves_the_rest() {
        let (plain, mut room) = (record(), wire_id_room());
        assert_eq!(plain.dedup_id(&mut room), Uuid::nil().to_string());
        let own: Vec<_> = plain.headers().collect();
        assert_eq!(own, [("type", Some("t")), ("own", None)]);
        let other = record()
            .with_key(Some(vec![0xff]))
            .with_value(None)
            .with_timestamp(-3)
            .with_partition(2)
            .with_wire_id("w".to_owned());
        assert_eq!(other.key(), Some(&[0xff][..]));
        assert_eq!((other.value(), other.timestamp()), (None, -3));
        assert_eq!((other.partition(), plain.partition()), (Some(2), None));
        assert_eq!(other.wire_id(&mut room), "w");
        assert_eq!(other.dedup_id(&mut room), "w");
        assert_eq!(other.headers().count(), 2);
        let other = other.with_dedup_id("d".to_owned());
        assert_eq!(other.dedup_id(&mut room), "d");
        assert_eq!(other.wire_id(&mut room), "w");
        let given = other.with_headers(vec![("a".into(), Some("1".into()))]);
        let headers: Vec<_> = given.headers().collect();
        assert_eq!(headers, [("a", Some("1"))]);
        assert_eq!(given.attribute(Field::Type), None);
        let more = given.with_added_headers(vec![("b".into(), None)]);
        let headers: Vec<_> = more.headers().collect();
        assert_eq!(headers, [("b", None), ("a", Some("1"))]);
        let more = record().with_added_headers(vec![("b".into(), Some("2".into()))]);
        let headers: Vec<_> = more.headers().collect();
        assert_eq!(
            headers,
            [("type", Some("t")), ("b", Some("2")), ("own", None)]
        );
        let shared = plain.value_bytes().unwrap();
        assert_eq!(
            shared.as_ptr(),
            plain.value().unwrap().as_ptr(),
            "no copy is made"
        );
    }

    /// A record is copied and moved for each event.
    #[test]
    fn a_record_without_overrides_holds_a_pointer_more() {
        let fields = size_of::<(
            u64,
            Option<u64>,
            Option<Box<str>>,
            Option<Option<Box<[u8]>>>,
        )>();
        let event = size_of::<StoredEvent>();
        assert!(size_of::<Record>() <= fields + event + size_of::<usize>());
    }
}
