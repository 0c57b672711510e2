//! From the answer to a commit until a sink has accepted the event, at a steady rate.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use posthaste::{Event, Outbox as Emitter};
use posthaste_engine::Store;
use posthaste_relay::{Destination, Relay, RelayError, Summary};
use posthaste_stores::postgres::PostgresStore;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    Plan,
    outbox::Outbox,
    report::{Bound, Report, quantile},
    timed::{Accepted, Timed},
    writers::Writers,
};

const RATE: f64 = 500.0;
const WRITERS: usize = 8;
/// Longer than a relay takes until it looks as seldom as it ever does.
const IDLE: Duration = Duration::from_secs(2);

/// Milliseconds that the median and the 99th of a hundred may not exceed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Begins after a pause, with the relay and the database warm.
pub(crate) async fn run(plan: &Plan, report: &mut Report, url: &str, bounds: Bounds) -> Result<()> {
    let outbox = Outbox::start().await?;
    let accepted = Accepted::default();
    let relay = Timing::start(store(&outbox)?, url, &accepted)?;
    let mut writers = Writers::connect(&outbox, WRITERS).await?;
    // Caches fill, the relay claims.
    writers.run(Duration::from_secs(2), Some(RATE)).await?;
    let span = Duration::from_secs(if plan.long { 60 } else { 20 });
    tokio::time::sleep(IDLE).await;
    let written = writers.run(span, Some(RATE)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let woken = first_after_idle(plan, &outbox, &accepted).await?;
    relay.stop().await?;
    outbox.init(&["--notify", "off"]);
    let relay = Timing::start(store(&outbox)?, url, &accepted)?;
    let firsts = first_after_idle(plan, &outbox, &accepted).await?;
    relay.stop().await?;

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
        Bound::AtMost(bounds.p50),
    );
    report.print(name("p95"), quantile(&millis, 0.95), "ms");
    report.hold(
        name("p99"),
        quantile(&millis, 0.99),
        "ms",
        Bound::AtMost(bounds.p99),
    );
    report.print(name("max"), quantile(&millis, 1.0), "ms");
    let name = |what| format!("the first event after {IDLE:?} without, {what}");
    report.print(name("p50"), quantile(&woken, 0.5), "ms");
    report.print(name("max"), quantile(&woken, 1.0), "ms");
    let name = |what| format!("the same without hints, {what}");
    report.print(name("p50"), quantile(&firsts, 0.5), "ms");
    report.print(name("max"), quantile(&firsts, 1.0), "ms");
    Ok(())
}

fn store(outbox: &Outbox) -> Result<Arc<PostgresStore>> {
    Ok(Arc::new(PostgresStore::new(&outbox.database.url())?))
}

/// A relay in this process, and not as its own, for the moment of each verdict.
pub(crate) struct Timing {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<Summary, RelayError>>,
}

impl Timing {
    pub(crate) fn start(store: Arc<dyn Store>, url: &str, accepted: &Accepted) -> Result<Self> {
        let sink = Timed {
            inner: posthaste_sinks::open(url)?,
            accepted: Arc::clone(accepted),
        };
        let relay = Relay::builder(store)
            .destination(Destination::new("default", Arc::new(sink)))
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(relay.run(async move { drop(stopped.await) }));
        Ok(Self { stop, running })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        drop(self.stop);
        let summary = self.running.await??;
        ensure!(summary.clean, "the relay did not end in order");
        Ok(())
    }
}

/// Milliseconds from the answer to a commit to accepted, each when nothing had come for a while.
async fn first_after_idle(plan: &Plan, outbox: &Outbox, accepted: &Accepted) -> Result<Vec<f64>> {
    let mut client = outbox.connect().await?;
    let mut millis = Vec::new();
    for _ in 0..if plan.long { 40 } else { 10 } {
        // Not in step with the relay's looks.
        tokio::time::sleep(IDLE.mul_f64(rand::random_range(1.0..1.5))).await;
        let mut transaction = client.transaction().await?;
        let event = Event::builder("accounts")
            .key("first")
            .payload("x")
            .build()?;
        let id = Emitter::new().emit(&mut transaction, event).await?.id;
        transaction.commit().await?;
        let committed = Instant::now();
        let at = loop {
            if let Some(at) = accepted.lock().expect("the times").get(&id) {
                break *at;
            }
            ensure!(committed.elapsed() < IDLE * 5, "an event was not accepted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        millis.push(at.saturating_duration_since(committed).as_secs_f64() * 1e3);
    }
    Ok(millis)
}
