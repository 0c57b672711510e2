use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::Store;
use posthaste_relay::memory::{MemoryMode, MemoryStore, MemoryTransaction, NewEvent};
use posthaste_testkit::store_suite::{self, Capability, Fixture, Outbox, Writer, audit_text};
use uuid::Uuid;

pub(crate) struct MemoryFixture(pub(crate) &'static str, pub(crate) MemoryMode);

#[async_trait]
impl Fixture for MemoryFixture {
    fn name(&self) -> &'static str {
        self.0
    }

    fn capabilities(&self) -> Vec<Capability> {
        use Capability::{Crash, LateCommitDelaysOnlyItself, OpenTogether, Savepoints, SharesOut};
        vec![
            Savepoints,
            OpenTogether,
            LateCommitDelaysOnlyItself,
            Crash,
            SharesOut,
        ]
    }

    async fn fresh(&self, _needs: &[Capability]) -> Box<dyn Outbox> {
        Box::new(MemoryOutbox(MemoryStore::new(self.1)))
    }
}

struct MemoryOutbox(MemoryStore);

#[async_trait]
impl Outbox for MemoryOutbox {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn writer(&self) -> Box<dyn Writer> {
        Box::new(MemoryWriter {
            store: self.0.clone(),
            open: None,
            savepoint: 0,
        })
    }

    async fn set_retention(&self, window: Duration) {
        self.0.set_retention(window);
    }

    /// It knows nothing else.
    async fn only_delete(&self) {}

    async fn age_audit(&self, by: Duration) {
        self.0.age_audit(by);
    }

    async fn age_parked(&self, by: Duration) {
        self.0.age_parked(by);
    }

    async fn audit(&self) -> Vec<String> {
        self.0.audit().iter().map(audit_text).collect()
    }

    async fn crash(&self) {
        self.0.crash();
    }
}

struct MemoryWriter {
    store: MemoryStore,
    open: Option<MemoryTransaction>,
    savepoint: usize,
}

#[async_trait]
impl Writer for MemoryWriter {
    async fn begin(&mut self) {
        self.open = Some(self.store.begin());
    }

    async fn emit(&mut self, event: &store_suite::NewEvent) -> Uuid {
        let event = event.clone();
        self.open.as_mut().unwrap().emit(NewEvent {
            id: event.id,
            topic: event.topic,
            key: event.key,
            event_type: event.event_type,
            content_type: event.content_type,
            payload: event.payload,
            headers: event.headers,
            occurred_at: Some(event.occurred_at),
            correlation_id: event.correlation_id,
            causation_id: event.causation_id,
            tenant_id: event.tenant_id,
            traceparent: event.traceparent,
            tracestate: event.tracestate,
        })
    }

    async fn savepoint(&mut self) {
        self.savepoint = self.open.as_ref().unwrap().savepoint();
    }

    async fn rollback_to_savepoint(&mut self) {
        self.open.as_mut().unwrap().rollback_to(self.savepoint);
    }

    async fn commit(&mut self) {
        self.open.take().unwrap().commit().unwrap();
    }

    async fn rollback(&mut self) {
        self.open = None;
    }
}
