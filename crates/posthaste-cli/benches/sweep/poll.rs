//! Server time of an empty poll: beside many retained rows, and with many transactions in progress.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::Client;

use crate::{
    Plan,
    outbox::{self, Outbox},
    report::{Bound, Report, median, quantile},
};

const RETAINED: u64 = 300_000;
const RETAINED_LONG: u64 = 2_000_000;
const IN_PROGRESS: usize = 500;
const WATCH: Duration = Duration::from_secs(5);
const MILLIS_MAX: f64 = 1.0;

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let outbox = Outbox::start().await?;
    let retained = if plan.long { RETAINED_LONG } else { RETAINED };
    outbox.fill(retained).await?;
    outbox.drain();

    let polls = watch(&outbox).await?;
    say(report, &format!("{retained} retained"), &polls);

    let open = in_progress(&outbox).await?;
    let polls = watch(&outbox).await?;
    say(
        report,
        &format!("{retained} retained, {IN_PROGRESS} transactions in progress"),
        &polls,
    );
    drop(open);
    Ok(())
}

fn say(report: &mut Report, beside: &str, polls: &[f64]) {
    report.print(format!("polls seen, {beside}"), polls.len() as f64, "");
    report.print(
        format!("server time of an empty poll, p95, {beside}"),
        quantile(polls, 0.95),
        "ms",
    );
    report.hold(
        format!("server time of an empty poll, {beside}"),
        median(polls),
        "ms",
        Bound::AtMost(MILLIS_MAX),
    );
}

/// Transactions that have each emitted an event and do not end, and one after them that has ended,
/// so that every later snapshot has all of them in its list.
async fn in_progress(outbox: &Outbox) -> Result<Vec<Client>> {
    const EMIT: &str = "insert into posthaste.outbox (topic, key) values ('orders', 'open')";
    let mut open = Vec::new();
    for _ in 0..IN_PROGRESS {
        let client = outbox.connect().await?;
        client.batch_execute("begin").await?;
        client.batch_execute(EMIT).await?;
        open.push(client);
    }
    outbox.connect().await?.batch_execute(EMIT).await?;
    Ok(open)
}

/// Milliseconds of each poll (bind and execute) of a relay that has caught up, by the server's log.
async fn watch(outbox: &Outbox) -> Result<Vec<f64>> {
    let name = outbox.database.name();
    let client = outbox.connect().await?;
    let log = |on: bool| {
        let millis = if on { 0 } else { -1 };
        format!("alter database {name} set log_min_duration_statement = {millis}")
    };
    outbox.drain();
    let before = outbox.server.log().len();
    client.batch_execute(&log(true)).await?;
    let relay = outbox.start_relay(&["--poll-idle", "20ms"]);
    tokio::time::sleep(WATCH).await;
    outbox::stop(relay);
    client.batch_execute(&log(false)).await?;
    let log = outbox.server.log();
    let polls = polls(log.get(before..).context("the server's log was cut")?)?;
    ensure!(polls.len() > 50, "only {} polls in the log", polls.len());
    Ok(polls)
}

/// The polls in a log: the only reads of the outbox that ask for the sequence, and on one
/// connection, so that each execute belongs to the bind before it.
fn polls(log: &str) -> Result<Vec<f64>> {
    let mut polls = Vec::new();
    let mut bound = None;
    for record in log.split("\n20") {
        if !(record.contains("pg_sequence_last_value") && record.contains("from posthaste.outbox"))
        {
            continue;
        }
        let Some((_, timed)) = record.split_once("duration: ") else {
            continue;
        };
        let (millis, what) = timed.split_once(" ms  ").context("a duration")?;
        let millis: f64 = millis.parse()?;
        if what.starts_with("bind") {
            bound = Some(millis);
        } else if what.starts_with("execute") {
            polls.push(millis + bound.take().context("an execute without its bind")?);
        }
    }
    Ok(polls)
}
