//! One fact to publish, as an application writes it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use uuid::Uuid;

use crate::error::EmitError;
use crate::limits::Limits;

/// A point in time: microseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The first microsecond of the year 1.
    pub const MIN: Self = Self(-62_135_596_800_000_000);
    /// The last microsecond of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The wall clock of this process.
    #[must_use]
    pub fn now() -> Self {
        let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
        };
        Self(micros)
    }

    /// From microseconds since 1970-01-01 00:00 UTC. [`EventBuilder::build`] refuses what lies
    /// outside [`Timestamp::MIN`] and [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01 00:00 UTC.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}

/// One fact to publish.
///
/// Made by [`Event::builder`], which checks every limit; it cannot be changed afterwards, so an
/// event that exists can be stored and sent. Only the payload's limit depends on the
/// [`Outbox`](crate::Outbox) and is checked there.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) payload: Option<Bytes>,
    pub(crate) headers: Vec<(String, Option<String>)>,
    pub(crate) occurred_at: Timestamp,
    pub(crate) correlation_id: Option<String>,
    pub(crate) causation_id: Option<String>,
    pub(crate) tenant_id: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
}

impl fmt::Debug for Event {
    // No payload, key or header in any log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("type", &self.event_type)
            .finish_non_exhaustive()
    }
}

impl Event {
    /// Starts an event for this topic; its id and its time are made now.
    pub fn builder(topic: impl Into<String>) -> EventBuilder {
        EventBuilder {
            event: Self {
                id: Uuid::now_v7(),
                topic: topic.into(),
                key: None,
                event_type: None,
                content_type: None,
                payload: None,
                headers: Vec::new(),
                occurred_at: Timestamp::now(),
                correlation_id: None,
                causation_id: None,
                tenant_id: None,
                traceparent: None,
                tracestate: None,
            },
            not_honoured_yet: None,
        }
    }

    /// The event's identity, also the broker's message id.
    #[must_use]
    pub const fn id(&self) -> Uuid {
        self.id
    }

    /// Where the event goes.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The value that order is kept for.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The kind of fact; the column `type`.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
    }

    /// The payload's media type.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The payload; none is a tombstone, which is not an empty payload.
    #[must_use]
    pub const fn payload(&self) -> Option<&Bytes> {
        self.payload.as_ref()
    }

    /// The headers in their order, repeats included; a value may be none.
    #[must_use]
    pub fn headers(&self) -> &[(String, Option<String>)] {
        &self.headers
    }

    /// When it happened, by the writer's clock.
    #[must_use]
    pub const fn occurred_at(&self) -> Timestamp {
        self.occurred_at
    }

    /// The conversation that the event belongs to.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// The message that caused the event.
    #[must_use]
    pub fn causation_id(&self) -> Option<&str> {
        self.causation_id.as_deref()
    }

    /// The tenant that the event belongs to.
    #[must_use]
    pub fn tenant_id(&self) -> Option<&str> {
        self.tenant_id.as_deref()
    }

    /// W3C trace context.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// W3C trace context, the vendors' part.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    fn check(&self) -> Result<(), EmitError> {
        check_topic(&self.topic)?;
        let texts = [
            ("key", &self.key, Limits::KEY_BYTES_MAX),
            ("type", &self.event_type, Limits::TEXT_BYTES_MAX),
            ("content_type", &self.content_type, Limits::TEXT_BYTES_MAX),
            (
                "correlation_id",
                &self.correlation_id,
                Limits::TEXT_BYTES_MAX,
            ),
            ("causation_id", &self.causation_id, Limits::TEXT_BYTES_MAX),
            ("tenant_id", &self.tenant_id, Limits::TEXT_BYTES_MAX),
            ("traceparent", &self.traceparent, Limits::TEXT_BYTES_MAX),
            ("tracestate", &self.tracestate, Limits::TRACESTATE_BYTES_MAX),
        ];
        for (field, text, limit) in texts {
            check_text(field, text.as_deref().unwrap_or_default(), limit)?;
        }
        let header_texts = || {
            self.headers
                .iter()
                .flat_map(|(name, value)| [Some(name), value.as_ref()])
                .flatten()
        };
        let bytes = header_texts().map(String::len).sum();
        if bytes > Limits::HEADERS_BYTES_MAX {
            return Err(EmitError::limit(
                "headers",
                bytes,
                Limits::HEADERS_BYTES_MAX,
            ));
        }
        for text in header_texts() {
            check_text("headers", text, Limits::HEADERS_BYTES_MAX)?;
        }
        if !(Timestamp::MIN..=Timestamp::MAX).contains(&self.occurred_at) {
            return Err(EmitError::Invalid {
                field: "occurred_at",
                reason: "must lie in the years 1 to 9999",
            });
        }
        self.check_payload(Limits::PAYLOAD_BYTES_CEILING)
    }

    pub(crate) fn check_payload(&self, limit: usize) -> Result<(), EmitError> {
        match self.payload.as_ref().map(Bytes::len) {
            Some(size) if size > limit => Err(EmitError::limit("payload", size, limit)),
            _ => Ok(()),
        }
    }

    /// About how many bytes the event adds to a statement.
    pub(crate) fn statement_bytes(&self) -> usize {
        // Lengths and quotes of the thirteen parameters, and the id as text.
        const OVERHEAD: usize = 13 * 4 + 36;
        let texts = [
            &self.key,
            &self.event_type,
            &self.content_type,
            &self.correlation_id,
            &self.causation_id,
            &self.tenant_id,
            &self.traceparent,
            &self.tracestate,
        ];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(4, String::len) + 6)
            .sum();
        OVERHEAD + self.topic.len() + texts + headers + self.payload.as_ref().map_or(0, Bytes::len)
    }
}

fn check_topic(topic: &str) -> Result<(), EmitError> {
    let invalid = |reason| {
        Err(EmitError::Invalid {
            field: "topic",
            reason,
        })
    };
    if topic.is_empty() {
        return invalid("must not be empty");
    }
    if topic == "." || topic == ".." {
        return invalid("must not be \".\" or \"..\"");
    }
    check_text("topic", topic, Limits::TOPIC_BYTES_MAX)?;
    if topic.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return invalid("must not hold white space or control characters");
    }
    Ok(())
}

fn check_text(field: &'static str, text: &str, limit: usize) -> Result<(), EmitError> {
    if text.len() > limit {
        return Err(EmitError::limit(field, text.len(), limit));
    }
    if text.contains('\0') {
        return Err(EmitError::Invalid {
            field,
            reason: "must not hold a NUL character",
        });
    }
    Ok(())
}

/// Puts an [`Event`] together.
#[derive(Debug, Clone)]
#[must_use = "an event exists only after `build`"]
pub struct EventBuilder {
    event: Event,
    not_honoured_yet: Option<&'static str>,
}

impl EventBuilder {
    /// The value that order is kept for, commonly the aggregate's id. At most 1 KiB.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.event.key = Some(key.into());
        self
    }

    /// The kind of fact; the column `type`. At most 255 bytes.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event.event_type = Some(event_type.into());
        self
    }

    /// The payload's media type. At most 255 bytes.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.event.content_type = Some(content_type.into());
        self
    }

    /// The payload, delivered byte for byte. Without one the event is a tombstone. At most 1 MiB,
    /// unless the outbox is told otherwise.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.event.payload = Some(payload.into());
        self
    }

    /// Appends a header; a name may come again. At most 64 KiB for all of them together.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.event.headers.push((name.into(), Some(value.into())));
        self
    }

    /// Appends a header that has a name and no value, which is not an empty value.
    pub fn header_without_value(mut self, name: impl Into<String>) -> Self {
        self.event.headers.push((name.into(), None));
        self
    }

    /// When it happened, instead of now.
    pub fn occurred_at(mut self, occurred_at: Timestamp) -> Self {
        self.event.occurred_at = occurred_at;
        self
    }

    /// The conversation that the event belongs to. At most 255 bytes.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.event.correlation_id = Some(id.into());
        self
    }

    /// The message that caused the event. At most 255 bytes.
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.event.causation_id = Some(id.into());
        self
    }

    /// The tenant that the event belongs to. At most 255 bytes.
    pub fn tenant_id(mut self, id: impl Into<String>) -> Self {
        self.event.tenant_id = Some(id.into());
        self
    }

    /// W3C trace context. At most 255 bytes.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.event.traceparent = Some(traceparent.into());
        self
    }

    /// W3C trace context, the vendors' part. At most 512 bytes.
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.event.tracestate = Some(tracestate.into());
        self
    }

    /// The event's identity, instead of a new UUID version 7.
    pub fn id(mut self, id: Uuid) -> Self {
        self.event.id = id;
        self
    }

    /// Reserved: no relay honours it yet, so [`EventBuilder::build`] refuses it.
    pub fn destinations<S: Into<String>>(mut self, _names: impl IntoIterator<Item = S>) -> Self {
        self.not_honoured_yet = Some("destinations");
        self
    }

    /// Reserved: no relay honours it yet, so [`EventBuilder::build`] refuses it.
    pub fn deliver_after(mut self, _time: Timestamp) -> Self {
        self.not_honoured_yet = Some("deliver_after");
        self
    }

    /// Reserved: no relay honours it yet, so [`EventBuilder::build`] refuses it.
    pub fn expires_at(mut self, _time: Timestamp) -> Self {
        self.not_honoured_yet = Some("expires_at");
        self
    }

    /// The event.
    ///
    /// # Errors
    ///
    /// [`EmitError::Limit`] names the field, its size and its limit. [`EmitError::Invalid`] names a
    /// topic that no broker would take, a NUL character in a text, a time outside the years 1 to
    /// 9999, or a field that is not honoured yet.
    pub fn build(self) -> Result<Event, EmitError> {
        if let Some(field) = self.not_honoured_yet {
            // Stored and ignored would be worse: the writer would believe in it.
            return Err(EmitError::Invalid {
                field,
                reason: "is not honoured yet",
            });
        }
        self.event.check()?;
        Ok(self.event)
    }
}
