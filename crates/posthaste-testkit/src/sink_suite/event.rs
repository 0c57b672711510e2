//! Events of the suite: sent as records, and read again as a consumer sees them.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_engine::{
    Field, ForeignId, LaneScope, LaneSpec, PageBuilder, Partitions, Record, SinkError, StoredFields,
};
use uuid::Uuid;

/// An event with every field that a consumer may see. A fixture maps what arrived back onto this:
/// headers are the event's own, attributes stand in their fields.
#[derive(Clone, PartialEq, Eq)]
pub struct SuiteEvent {
    /// Identity.
    pub id: Uuid,
    /// Topic.
    pub topic: String,
    /// Key of the record, and of order.
    pub key: Option<String>,
    /// The attribute `type`.
    pub kind: Option<String>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Own headers: order, repeats and absent values count.
    pub headers: Vec<(String, Option<String>)>,
    /// Payload; none is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Writer's clock, microseconds since 1970-01-01 UTC.
    pub occurred_at: i64,
    /// Conversation.
    pub correlation_id: Option<String>,
    /// Message that caused the event.
    pub causation_id: Option<String>,
    /// Tenant.
    pub tenant_id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// W3C trace context, the vendors' part.
    pub tracestate: Option<String>,
}

impl SuiteEvent {
    /// A plain event with this key, if any, and payload.
    #[must_use]
    pub fn new(key: Option<&str>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: Uuid::now_v7(),
            topic: "suite".to_owned(),
            key: key.map(str::to_owned),
            kind: None,
            content_type: None,
            headers: Vec::new(),
            payload: Some(payload.into()),
            occurred_at: 1_700_000_000_123_456,
            correlation_id: None,
            causation_id: None,
            tenant_id: None,
            traceparent: None,
            tracestate: None,
        }
    }

    /// A slot of its key, or else of its id: any function of them will do here.
    #[must_use]
    pub fn slot(&self) -> u16 {
        let bytes = match &self.key {
            Some(key) => key.as_bytes(),
            None => self.id.as_bytes().as_slice(),
        };
        let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, &byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        // Or keys that differ in their last byte alone lie side by side.
        let hash = (hash ^ hash >> 15).wrapping_mul(0x85eb_ca6b);
        u16::try_from(hash >> 18).expect("14 bits are left")
    }

    /// Its number: always the same for the same event, and another one for another event of the
    /// same id.
    fn seq(&self) -> i64 {
        let mut hasher = DefaultHasher::new();
        (self.id, &self.payload).hash(&mut hasher);
        i64::try_from(hasher.finish() >> 1).expect("63 bits are left")
    }

    fn texts(&self) -> [(&'static str, Field, Option<&str>); 9] {
        [
            ("topic", Field::Topic, Some(&self.topic)),
            ("key", Field::Key, self.key.as_deref()),
            ("type", Field::Type, self.kind.as_deref()),
            (
                "content_type",
                Field::ContentType,
                self.content_type.as_deref(),
            ),
            (
                "correlation_id",
                Field::CorrelationId,
                self.correlation_id.as_deref(),
            ),
            (
                "causation_id",
                Field::CausationId,
                self.causation_id.as_deref(),
            ),
            ("tenant_id", Field::TenantId, self.tenant_id.as_deref()),
            (
                "traceparent",
                Field::Traceparent,
                self.traceparent.as_deref(),
            ),
            ("tracestate", Field::Tracestate, self.tracestate.as_deref()),
        ]
    }

    /// The names of the fields in which two events differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let mut names: Vec<_> = self
            .texts()
            .into_iter()
            .zip(other.texts())
            .filter(|(ours, theirs)| ours != theirs)
            .map(|((name, ..), _)| name)
            .collect();
        for (name, same) in [
            ("id", self.id == other.id),
            ("headers", self.headers == other.headers),
            ("payload", self.payload == other.payload),
            ("occurred_at", self.occurred_at == other.occurred_at),
        ] {
            if !same {
                names.push(name);
            }
        }
        names
    }
}

impl fmt::Debug for SuiteEvent {
    // A payload of 10 MB would bury the message that shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.payload.as_deref();
        let start = payload.map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
        f.debug_struct("SuiteEvent")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("headers", &self.headers)
            .field("payload_len", &payload.map(<[u8]>::len))
            .field("payload_start", &start)
            .finish_non_exhaustive()
    }
}

/// The purpose of a lane: of a registration and a store of its own. Answers may take long: a busy
/// machine may do much for them.
#[must_use]
pub fn lane_spec(number: u64) -> LaneSpec {
    let scope = LaneScope {
        store_id: Uuid::new_v4(),
        destination: "suite".to_owned(),
        destination_id: 1,
        registration: Uuid::new_v4(),
        partitions: Partitions::all_of(64).expect("a power of two"),
        former: Vec::new(),
    };
    LaneSpec {
        scope: Arc::new(scope),
        epoch: 1,
        number,
        publish_timeout: Duration::from_secs(60),
        lease: Duration::from_secs(15),
    }
}

/// The same with a relay's default time for answers: some do not come.
#[must_use]
pub fn impatient(spec: LaneSpec) -> LaneSpec {
    LaneSpec {
        publish_timeout: Duration::from_secs(5),
        ..spec
    }
}

/// A lane of a destination that is well, tried for as a relay does: a busy machine may need longer
/// for one than a sink waits.
///
/// # Panics
/// When none is given within a minute, or trying again would not help.
pub async fn opened<L, Opening>(mut open: impl FnMut() -> Opening) -> L
where
    Opening: Future<Output = Result<L, SinkError>>,
{
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match open().await {
            Ok(lane) => return lane,
            Err(error) if error.is_retryable() && Instant::now() < end => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("a healthy destination gave no lane: {error}"),
        }
    }
}

/// Records of these events, with tickets from `first_ticket` on.
///
/// # Panics
/// When they have more than 4 GiB together.
#[must_use]
pub fn records(events: &[SuiteEvent], first_ticket: u64) -> Vec<Record> {
    let mut page = PageBuilder::default();
    for event in events {
        let pushed = page.push(&fields(event), headers(event));
        pushed.expect("a page of the suite is small");
    }
    (first_ticket..)
        .zip(page.finish())
        .map(|(ticket, event)| Record::new(ticket, event))
        .collect()
}

/// A record of this event, whose id is this text and no UUID.
pub(super) fn foreign_record(id: &str, event: &SuiteEvent, ticket: u64) -> Record {
    let id = ForeignId::new(id).expect("an id of the suite is short");
    let mut page = PageBuilder::default();
    let pushed = page.push_foreign(id, &fields(event), headers(event));
    pushed.expect("a page of the suite is small");
    Record::new(ticket, page.finish().remove(0))
}

fn fields(event: &SuiteEvent) -> StoredFields<'_> {
    let mut fields = StoredFields {
        seq: event.seq(),
        id: event.id,
        occurred_at: event.occurred_at,
        inserted_at: event.occurred_at,
        slot: event.slot(),
        texts: [None; 9],
        payload: event.payload.as_deref(),
    };
    for (_, field, text) in event.texts() {
        fields.texts[field as usize] = text;
    }
    fields
}

fn headers(event: &SuiteEvent) -> impl Iterator<Item = (&str, Option<&str>)> {
    let headers = event.headers.iter();
    headers.map(|(name, value)| (name.as_str(), value.as_deref()))
}
