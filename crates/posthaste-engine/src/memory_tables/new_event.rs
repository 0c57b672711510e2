//! Events that applications write.

use uuid::Uuid;

use crate::{PageBuilder, StoreError, StoredEvent, StoredFields};

/// An event to be written.
#[derive(Debug, Clone, Default)]
pub struct NewEvent {
    /// Its id; none: a new one.
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
    /// Writer's clock, microseconds since 1970-01-01 UTC; none: the database's.
    pub occurred_at: Option<i64>,
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
    /// The event as the outbox has it. `slot`: the hash of a key.
    ///
    /// # Errors
    /// [`StoreError::Bug`] when it takes more than 4 GiB.
    #[doc(hidden)]
    pub fn stored(
        &self,
        seq: i64,
        id: Uuid,
        now: i64,
        slot: impl Fn(&str) -> u16,
    ) -> Result<StoredEvent, StoreError> {
        let fields = StoredFields {
            seq,
            id,
            occurred_at: self.occurred_at.unwrap_or(now),
            inserted_at: now,
            slot: match &self.key {
                Some(key) => slot(key),
                None => slot(&id.to_string()),
            },
            // In the order of `Field`.
            texts: [
                Some(&self.topic),
                self.key.as_deref(),
                self.event_type.as_deref(),
                self.content_type.as_deref(),
                self.correlation_id.as_deref(),
                self.causation_id.as_deref(),
                self.tenant_id.as_deref(),
                self.traceparent.as_deref(),
                self.tracestate.as_deref(),
            ],
            payload: self.payload.as_deref(),
        };
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_deref()));
        let mut page = PageBuilder::default();
        let pushed = page.push(&fields, headers).map_err(|full| full.to_string());
        let one = pushed.and_then(|()| page.finish().pop().ok_or("the page lost it".to_owned()));
        one.map_err(|reason| StoreError::Bug {
            operation: "write",
            reason,
        })
    }
}
