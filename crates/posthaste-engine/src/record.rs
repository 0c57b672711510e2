//! An event after routing, as sinks see it.

use crate::{Field, StoredEvent, event::HeaderIter};

/// A routed event: what goes over the wire. Sinks read it and never change it.
///
/// The key of order ([`order_key`](Self::order_key)) and the key of the record ([`key`](Self::key))
/// are two things: a template may give the record another key.
#[derive(Debug, Clone)]
pub struct Record {
    ticket: u64,
    order_key: Option<u64>,
    topic: Option<Box<str>>,
    key: Option<Option<Box<str>>>,
    event: StoredEvent,
}

impl Record {
    /// A record of `event` under its own topic and key.
    #[must_use]
    pub fn new(ticket: u64, event: StoredEvent) -> Self {
        let order_key = event.key().map(key_hash);
        Self {
            ticket,
            order_key,
            topic: None,
            key: None,
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
    pub fn with_key(mut self, key: Option<String>) -> Self {
        self.key = Some(key.map(String::into_boxed_str));
        self
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

    /// The record's key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match &self.key {
            Some(key) => key.as_deref(),
            None => self.event.key(),
        }
    }

    /// The value; none is a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.event.payload()
    }

    /// The event that this record carries.
    #[must_use]
    pub fn event(&self) -> &StoredEvent {
        &self.event
    }

    /// The broker's headers: the event's attributes first (`id`, `type`, `content-type`,
    /// `correlation-id`, `causation-id`, `tenant-id`, `traceparent`, `tracestate`, absent ones left
    /// out), then the event's own headers in their order. A clash yields both.
    ///
    /// `id` and `occurred-at` are not text in the store; a sink renders them from
    /// [`StoredEvent::id`] and [`StoredEvent::occurred_at`] in front of these.
    #[must_use]
    pub fn headers(&self) -> RecordHeaders<'_> {
        RecordHeaders {
            event: &self.event,
            attribute: 0,
            own: self.event.headers(),
        }
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

/// Walks a record's headers.
#[derive(Debug, Clone)]
pub struct RecordHeaders<'a> {
    event: &'a StoredEvent,
    attribute: usize,
    own: HeaderIter<'a>,
}

impl<'a> Iterator for RecordHeaders<'a> {
    type Item = (&'a str, Option<&'a str>);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&(name, field)) = ATTRIBUTES.get(self.attribute) {
            self.attribute += 1;
            if let Some(value) = self.event.text(field) {
                return Some((name, Some(value)));
            }
        }
        self.own.next()
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
