use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{
    Cause, FenceKind, Field, KeyOrder, Record, RejectionKind, Sink, SinkMode, wire_id_room,
};
use posthaste_relay::memory::{MemorySink, MemorySinkFault};
use posthaste_testkit::sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord};

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

pub(crate) fn row() -> Row {
    let mode = SinkMode {
        name: "memory",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: false,
        requests_max: None,
        deduplication: None,
    };
    Row {
        expected: Expected {
            breaks_with: Some(Cause::Connection),
            // It answers within `submit`.
            stalls: false,
            rejects: Some(RejectionKind::TooLarge),
            ..Expected::of("memory", &mode)
        },
        fixture,
    }
}

fn fixture() -> Box<dyn Fixture> {
    let sink = MemorySink::new();
    sink.set_fault(MemorySinkFault::RejectLarger(EVENT_BYTES_MAX));
    Box::new(MemoryFixture(sink))
}

struct MemoryFixture(MemorySink);

fn seen(record: &Record) -> SuiteEvent {
    let event = record.event();
    let text = |field| event.text(field).map(str::to_owned);
    SuiteEvent {
        id: event.id(),
        topic: record.topic().to_owned(),
        key: record
            .key()
            .map(|key| String::from_utf8(key.to_vec()).unwrap()),
        kind: text(Field::Type),
        content_type: text(Field::ContentType),
        headers: event
            .headers()
            .map(|(name, value)| (name.into(), value.map(Into::into)))
            .collect(),
        payload: record.value().map(<[u8]>::to_vec),
        occurred_at: event.occurred_at(),
        correlation_id: text(Field::CorrelationId),
        causation_id: text(Field::CausationId),
        tenant_id: text(Field::TenantId),
        traceparent: text(Field::Traceparent),
        tracestate: text(Field::Tracestate),
    }
}

fn wire(record: &Record) -> WireRecord {
    WireRecord {
        key: record.key().map(<[u8]>::to_vec),
        value: record.value().map(<[u8]>::to_vec),
        headers: record
            .headers()
            .map(|(name, value)| (name.into(), value.map(Into::into)))
            .collect(),
        timestamp: Some(record.timestamp()),
        partition: None,
        wire_id: Some(record.wire_id(&mut wire_id_room()).to_owned()),
    }
}

#[async_trait]
impl Fixture for MemoryFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.0.clone())
    }

    async fn trace(&self) -> String {
        format!("{:?}", self.0.accepted())
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        self.0.accepted().iter().map(seen).collect()
    }

    async fn arrived_records(&self) -> Vec<WireRecord> {
        self.0.accepted().iter().map(wire).collect()
    }

    async fn take_away(&self) {
        self.0.set_fault(MemorySinkFault::Away);
    }

    async fn bring_back(&self) {
        self.0
            .set_fault(MemorySinkFault::RejectLarger(EVENT_BYTES_MAX));
    }

    fn spoil(&self, mut event: SuiteEvent) -> SuiteEvent {
        event.payload = Some(vec![b'x'; EVENT_BYTES_MAX + 1]);
        event
    }
}
