//! Events as a writer of the suite emits them.

use posthaste_engine::{Field, StoredEvent};
use uuid::Uuid;

/// An event to emit. Every field is the writer's to store as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Its id; none: the writer draws one.
    pub id: Option<Uuid>,
    /// Topic.
    pub topic: String,
    /// Key of order.
    pub key: Option<String>,
    /// Type.
    pub event_type: Option<String>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Payload; none is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Headers in order.
    pub headers: Vec<(String, Option<String>)>,
    /// Writer's clock: microseconds since 1970-01-01 UTC.
    pub occurred_at: i64,
    /// Correlation id.
    pub correlation_id: Option<String>,
    /// Causation id.
    pub causation_id: Option<String>,
    /// Tenant.
    pub tenant_id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// W3C trace context, the vendors' part.
    pub tracestate: Option<String>,
}

impl NewEvent {
    /// An event of this key with this payload.
    pub(super) fn keyed(key: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..Self::unkeyed(payload)
        }
    }

    /// An event without a key.
    pub(super) fn unkeyed(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: None,
            topic: "orders".to_owned(),
            key: None,
            event_type: None,
            content_type: None,
            payload: Some(payload.into()),
            headers: Vec::new(),
            occurred_at: 1_700_000_000_000_000,
            correlation_id: None,
            causation_id: None,
            tenant_id: None,
            traceparent: None,
            tracestate: None,
        }
    }

    /// Fails unless `stored` is this event, byte for byte.
    pub(super) fn assert_stored_as(&self, id: Uuid, stored: &StoredEvent) {
        assert_eq!(stored.id(), id);
        assert_eq!(stored.topic(), self.topic);
        assert_eq!(stored.payload(), self.payload.as_deref(), "payload");
        assert_eq!(stored.occurred_at(), self.occurred_at, "occurred_at");
        let texts = [
            (Field::Key, &self.key),
            (Field::Type, &self.event_type),
            (Field::ContentType, &self.content_type),
            (Field::CorrelationId, &self.correlation_id),
            (Field::CausationId, &self.causation_id),
            (Field::TenantId, &self.tenant_id),
            (Field::Traceparent, &self.traceparent),
            (Field::Tracestate, &self.tracestate),
        ];
        for (field, text) in texts {
            assert_eq!(stored.text(field), text.as_deref(), "{field:?}");
        }
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        assert_eq!(stored.headers().collect::<Vec<_>>(), headers);
        let id = id.to_string();
        let slot = posthaste::slot(self.key.as_deref().unwrap_or(&id));
        assert_eq!(stored.slot(), slot, "slot");
    }
}
