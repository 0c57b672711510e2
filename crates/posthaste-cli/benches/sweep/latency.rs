//! From the answer to a commit until a sink has accepted the event, at a steady rate.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use posthaste_engine::{Lane, LaneSpec, Outcome, Record, Sink, SinkError, SinkInfo, Verdict};
use posthaste_relay::{Destination, Relay};
use posthaste_stores::postgres::PostgresStore;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{
    Plan,
    outbox::Outbox,
    report::{Bound, Report, quantile},
    writers::Writers,
};

const RATE: f64 = 500.0;
const WRITERS: usize = 8;
const MILLIS_MAX: f64 = 10.0;

pub(crate) async fn run(plan: &Plan, report: &mut Report, url: &str) -> Result<()> {
    let outbox = Outbox::start().await?;
    // In this process, and not as its own, for the moment of each verdict.
    let accepted = Accepted::default();
    let sink = Timed {
        inner: posthaste_sinks::open(url)?,
        accepted: Arc::clone(&accepted),
    };
    let store = Arc::new(PostgresStore::new(&outbox.database.url())?);
    let relay = Relay::builder(store)
        .destination(Destination::new("default", Arc::new(sink)))
        .build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = tokio::spawn(relay.run(async move { drop(stopped.await) }));

    let mut writers = Writers::connect(&outbox, WRITERS).await?;
    // Caches fill, the relay claims.
    writers.run(Duration::from_secs(2), Some(RATE)).await?;
    let span = Duration::from_secs(if plan.long { 60 } else { 20 });
    let written = writers.run(span, Some(RATE)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(stop);
    let summary = relay.await??;
    ensure!(summary.clean, "the relay did not end in order");

    let accepted = accepted.lock().expect("the times");
    let mut millis = Vec::new();
    for (id, committed) in &written.committed {
        let accepted = accepted.get(id).context("an event was not accepted")?;
        millis.push(accepted.saturating_duration_since(*committed).as_secs_f64() * 1e3);
    }
    report.print("events a second, asked for 500", written.rate, "a second");
    let name = |what| format!("commit answered to accepted, {what}");
    report.hold(
        name("p50"),
        quantile(&millis, 0.5),
        "ms",
        Bound::AtMost(MILLIS_MAX),
    );
    report.print(name("p95"), quantile(&millis, 0.95), "ms");
    report.print(name("p99"), quantile(&millis, 0.99), "ms");
    report.print(name("max"), quantile(&millis, 1.0), "ms");
    Ok(())
}

/// When each event was accepted.
type Accepted = Arc<Mutex<HashMap<Uuid, Instant>>>;

/// A sink whose verdicts are timed.
struct Timed {
    inner: Arc<dyn Sink>,
    accepted: Accepted,
}

struct TimedLane {
    inner: Box<dyn Lane>,
    open: HashMap<u64, Uuid>,
    accepted: Accepted,
}

#[async_trait]
impl Sink for Timed {
    fn info(&self) -> SinkInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.inner.check().await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        Ok(Box::new(TimedLane {
            inner: self.inner.open_lane(spec).await?,
            open: HashMap::new(),
            accepted: Arc::clone(&self.accepted),
        }))
    }
}

#[async_trait]
impl Lane for TimedLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        let known = batch.iter().map(|r| (r.ticket(), r.event().id()));
        self.open.extend(known);
        self.inner.submit(batch).await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        let verdicts = self.inner.outcomes().await;
        let now = Instant::now();
        let mut accepted = self.accepted.lock().expect("the times");
        for verdict in &verdicts {
            let id = self.open.remove(&verdict.ticket);
            if let (Some(id), Outcome::Accepted(_)) = (id, &verdict.outcome) {
                accepted.insert(id, now);
            }
        }
        verdicts
    }

    async fn abort(self: Box<Self>) {
        self.inner.abort().await;
    }

    async fn close(self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.inner.close(limit).await
    }
}
