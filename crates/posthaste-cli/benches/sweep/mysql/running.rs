//! MySQL and MariaDB beside a relay that runs: what it asks for while nobody writes, how long an
//! empty read takes, and how long an event takes at a steady rate, also beside a transaction that
//! stays open and a flood of rollbacks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use mysql_async::{Conn, prelude::Queryable};
use posthaste_engine::{
    Budget, ClaimOutcome, ClaimRequest, HostIdentity, Leases, Ownership, Registration, Store,
};
use posthaste_stores::mysql::MysqlStore;
use posthaste_testkit::process::Running;
use uuid::Uuid;

use super::Outbox;
use crate::{
    Plan,
    latency::{Bounds, Timing},
    outbox,
    report::{Bound, Report, median, quantile},
    timed::Accepted,
};

const SETTLE: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_secs(30);
const EMPTY_READS: usize = 500;
const EMPTY_MILLIS_MAX: f64 = 1.0;
const WRITERS: u32 = 8;
const RATE: u32 = 500;
const BOUNDS: Bounds = Bounds {
    p50: 10.0,
    p99: 50.0,
};
const ROLLBACKS: u32 = 500;
/// An event that was late is there so soon behind its commit.
const LATE_MILLIS_MAX: f64 = 1_000.0;

/// Everything that this outbox keeps was delivered to `default` before.
pub(super) async fn run(outbox: &Outbox, plan: &Plan, report: &mut Report) -> Result<()> {
    outbox.drained("default", &["--start", "now"], 0)?;
    idle(outbox, report).await?;
    empty_reads(outbox, report).await?;
    let accepted = Accepted::default();
    let store = Arc::new(MysqlStore::new(&outbox.database.url())?);
    let relay = Timing::start(store, "null:", &accepted)?;
    steady(outbox, plan, report, &accepted).await?;
    relay.stop().await
}

/// Statements that the server counts, without the two of ours.
async fn idle(outbox: &Outbox, report: &mut Report) -> Result<()> {
    let mut relay = outbox::posthaste();
    relay.args(["relay", "--from", &outbox.database.url(), "--to", "null:"]);
    let relay = Running::start(&mut relay);
    relay.wait_for_stderr("claimed", outbox::LIMIT);
    tokio::time::sleep(SETTLE).await;
    let mut conn = outbox.connect().await?;
    let before = questions(&mut conn).await?;
    tokio::time::sleep(WATCH).await;
    let asked = questions(&mut conn).await? - before - 1.0;
    outbox::stop(relay);
    report.hold(
        outbox.of("statements of an idle relay"),
        asked / WATCH.as_secs_f64(),
        "a second",
        Bound::AtMost(2.0),
    );
    Ok(())
}

async fn questions(conn: &mut Conn) -> Result<f64> {
    let sql = "show global status like 'Questions'";
    let row: Option<(String, f64)> = conn.query_first(sql).await?;
    Ok(row.context("no count of statements")?.1)
}

/// With their way to the server and back.
async fn empty_reads(outbox: &Outbox, report: &mut Report) -> Result<()> {
    let store = MysqlStore::new(&outbox.database.url())?;
    let registration = Registration {
        name: "reads".to_owned(),
        version: "0".to_owned(),
        host: HostIdentity::default(),
        lease: outbox::LIMIT,
    };
    let relay = store.register(&registration).await?;
    let request = ClaimRequest::all("default", "null:");
    let ClaimOutcome::Owned(claim) = store.claim(relay, &request).await? else {
        anyhow::bail!("the destination is not free");
    };
    let claimed = store.open(&claim).await?;
    let budget = Budget {
        events: 1_000,
        bytes: 1 << 20,
    };
    let mut millis = Vec::new();
    for _ in 0..EMPTY_READS {
        let begun = Instant::now();
        let page = claimed.next(budget).await?;
        millis.push(begun.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(page.events.is_empty(), "somebody writes");
    }
    drop(claimed);
    store.leave(relay, Duration::ZERO).await?;
    report.hold(
        outbox.of("an empty read"),
        median(&millis),
        "ms",
        Bound::AtMost(EMPTY_MILLIS_MAX),
    );
    Ok(())
}

/// Alone, and beside a transaction that stays open and rollbacks.
async fn steady(
    outbox: &Outbox,
    plan: &Plan,
    report: &mut Report,
    accepted: &Accepted,
) -> Result<()> {
    let span = Duration::from_secs(if plan.long { 60 } else { 20 });
    write(outbox, SETTLE).await?;
    let written = write(outbox, span).await?;
    tokio::time::sleep(SETTLE).await;
    let millis = waited(&written, accepted)?;
    let name = |what: &str| outbox.of(&format!("commit answered to accepted, {what}"));
    let (p50, p99) = (Bound::AtMost(BOUNDS.p50), Bound::AtMost(BOUNDS.p99));
    report.hold(name("p50"), quantile(&millis, 0.5), "ms", p50);
    report.hold(name("p99"), quantile(&millis, 0.99), "ms", p99);

    let mut open = outbox.connect().await?;
    open.query_drop("start transaction").await?;
    let late = insert(&mut open).await?;
    let flood = (0..WRITERS).map(|_| roll_back(outbox, span));
    let (written, _) = tokio::try_join!(write(outbox, span), try_join_all(flood))?;
    open.query_drop("commit").await?;
    let committed = Instant::now();
    tokio::time::sleep(SETTLE).await;
    let millis = waited(&written, accepted)?;
    let name = |what: &str| outbox.of(&format!("beside an open transaction, {what}"));
    report.hold(name("p50"), quantile(&millis, 0.5), "ms", p50);
    report.print(name("p99"), quantile(&millis, 0.99), "ms");
    let late = waited(&[(late, committed)], accepted)?;
    report.hold(
        name("its own event"),
        median(&late),
        "ms",
        Bound::AtMost(LATE_MILLIS_MAX),
    );
    Ok(())
}

/// Commits at the rate; answers when each was told that it is.
async fn write(outbox: &Outbox, span: Duration) -> Result<Vec<(Uuid, Instant)>> {
    let writers = (0..WRITERS).map(|_| async {
        let mut conn = outbox.connect().await?;
        let mut written = Vec::new();
        let mut pace = tokio::time::interval(Duration::from_secs(1) * WRITERS / RATE);
        let begun = Instant::now();
        while begun.elapsed() < span {
            pace.tick().await;
            written.push((insert(&mut conn).await?, Instant::now()));
        }
        anyhow::Ok(written)
    });
    Ok(try_join_all(writers).await?.concat())
}

/// Numbers that nobody will ever see.
async fn roll_back(outbox: &Outbox, span: Duration) -> Result<()> {
    let mut conn = outbox.connect().await?;
    let mut pace = tokio::time::interval(Duration::from_secs(1) * WRITERS / ROLLBACKS);
    let begun = Instant::now();
    while begun.elapsed() < span {
        pace.tick().await;
        conn.query_drop("start transaction").await?;
        insert(&mut conn).await?;
        conn.query_drop("rollback").await?;
    }
    Ok(())
}

async fn insert(conn: &mut Conn) -> Result<Uuid> {
    let id = Uuid::now_v7();
    let sql = "insert into posthaste_outbox (id, topic, `key`, payload) \
               values (?, 'orders', ?, '{}')";
    let key = format!("order-{}", rand::random_range(0..10_000));
    conn.exec_drop(sql, (id.as_bytes().as_slice(), key)).await?;
    Ok(id)
}

/// Milliseconds until each was accepted.
fn waited(written: &[(Uuid, Instant)], accepted: &Accepted) -> Result<Vec<f64>> {
    let accepted = accepted.lock().expect("the times");
    let waited = written.iter().map(|(id, committed)| {
        let at = accepted.get(id).context("an event was not accepted")?;
        Ok(at.saturating_duration_since(*committed).as_secs_f64() * 1e3)
    });
    waited.collect()
}
