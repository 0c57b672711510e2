use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{RetentionMode, Store};
use posthaste_stores::postgres::simulated::{NewEvent, Settings, SimulatedPostgres, Transaction};
use posthaste_testkit::store_suite::{self, Capability, Fixture, Outbox, Writer, audit_text};
use uuid::Uuid;

pub(crate) struct SimulatedFixture;

/// Steps of no, of little and of some time, in turn.
fn settings() -> Settings {
    let steps = AtomicU64::new(0);
    Settings {
        step: Arc::new(move || match steps.fetch_add(1, Relaxed) % 8 {
            7 => Duration::from_micros(50),
            _ => Duration::ZERO,
        }),
        ..Settings::default()
    }
}

#[async_trait]
impl Fixture for SimulatedFixture {
    fn name(&self) -> &'static str {
        "postgres_simulated"
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![
            Capability::Savepoints,
            Capability::OpenTogether,
            Capability::LateCommitDelaysOnlyItself,
            Capability::Crash,
            Capability::CutConnections,
            Capability::SharesOut,
        ]
    }

    async fn fresh(&self, _needs: &[Capability]) -> Box<dyn Outbox> {
        Box::new(SimulatedOutbox(SimulatedPostgres::new(settings())))
    }
}

struct SimulatedOutbox(SimulatedPostgres);

#[async_trait]
impl Outbox for SimulatedOutbox {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn writer(&self) -> Box<dyn Writer> {
        Box::new(SimulatedWriter {
            database: self.0.clone(),
            open: None,
            savepoint: 0,
        })
    }

    async fn set_retention(&self, window: Duration) {
        self.0.set_retention(window).await.unwrap();
    }

    async fn only_delete(&self) {
        self.0
            .set_retention_mode(RetentionMode::Delete)
            .await
            .unwrap();
    }

    async fn age_audit(&self, by: Duration) {
        self.0.age_audit(by).await.unwrap();
    }

    async fn age_parked(&self, by: Duration) {
        self.0.age_parked(by).await.unwrap();
    }

    async fn audit(&self) -> Vec<String> {
        self.0.audit().iter().map(audit_text).collect()
    }

    async fn crash(&self) {
        self.0.crash();
    }

    async fn cut_connections(&self) {
        self.0.cut_connections();
    }
}

struct SimulatedWriter {
    database: SimulatedPostgres,
    open: Option<Transaction>,
    savepoint: usize,
}

#[async_trait]
impl Writer for SimulatedWriter {
    async fn begin(&mut self) {
        self.open = Some(self.database.begin());
    }

    async fn emit(&mut self, event: &store_suite::NewEvent) -> Uuid {
        let event = event.clone();
        let event = NewEvent {
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
        };
        self.open.as_mut().unwrap().emit(&event).unwrap()
    }

    async fn savepoint(&mut self) {
        self.savepoint = self.open.as_ref().unwrap().savepoint();
    }

    async fn rollback_to_savepoint(&mut self) {
        let open = self.open.as_mut().unwrap();
        open.rollback_to(self.savepoint).unwrap();
    }

    async fn commit(&mut self) {
        self.open.take().unwrap().commit().unwrap();
    }

    async fn rollback(&mut self) {
        self.open = None;
    }
}
