//! The cost of an idle outbox beside a running relay, and beside two that share it.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::Client;

use crate::{
    Plan,
    outbox::{self, Outbox, connect},
    report::{Bound, Report},
};

const EVENTS: u64 = 10_000;
const SETTLE: Duration = Duration::from_secs(3);
const WATCH: Duration = Duration::from_secs(30);

/// Of the default number of partitions, so that two relays share them out at once.
const HALF: &str = "32";

pub(crate) async fn run(_: &Plan, report: &mut Report) -> Result<()> {
    let outbox = Outbox::start().await?;
    // From another database, so that nothing here counts as the relays'.
    let client = connect(&outbox.server.admin_url("postgres")).await?;
    client
        .batch_execute("create extension if not exists pg_stat_statements")
        .await?;
    watch(&outbox, &client, 1, &[], report).await?;
    watch(&outbox, &client, 2, &["--max-partitions", HALF], report).await
}

async fn watch(
    outbox: &Outbox,
    client: &Client,
    relays: u32,
    flags: &[&str],
    report: &mut Report,
) -> Result<()> {
    let running: Vec<_> = (0..relays).map(|_| outbox.start_relay(flags)).collect();
    outbox.fill(EVENTS).await?;
    tokio::time::sleep(SETTLE).await;

    client
        .execute("select pg_stat_statements_reset()", &[])
        .await?;
    let before = position(client).await?;
    tokio::time::sleep(WATCH).await;
    let after = position(client).await?;
    let cost = cost(client, outbox.database.name()).await?;
    running.into_iter().for_each(outbox::stop);

    let name = |what: &str| format!("{what}, of {relays}");
    let each = |number: f64| number / f64::from(relays) / WATCH.as_secs_f64();
    report.print(name("WAL of the whole server"), after - before, "bytes");
    report.print(
        name("heartbeats of a relay"),
        each(cost.heartbeats),
        "a second",
    );
    report.hold(
        name("statements of a relay, heartbeat included"),
        each(cost.statements),
        "a second",
        Bound::AtMost(2.0),
    );
    let seen = cost.heartbeats;
    report.hold(name("heartbeats seen"), seen, "", Bound::AtLeast(1.0));
    report.hold(
        name("WAL records of everything but the heartbeat"),
        cost.records,
        "",
        Bound::AtMost(0.0),
    );
    Ok(())
}

struct Cost {
    statements: f64,
    heartbeats: f64,
    /// WAL records, the heartbeats' excepted.
    records: f64,
}

async fn cost(client: &Client, database: &str) -> Result<Cost> {
    let row = client
        .query_one(
            "select
                coalesce(sum(calls), 0)::float8,
                coalesce(
                    sum(calls) filter (where query like '%update posthaste.relays%'),
                    0)::float8,
                coalesce(
                    sum(wal_records) filter (where query not like '%update posthaste.relays%'),
                    0)::float8
             from pg_stat_statements s join pg_database d on d.oid = s.dbid
             where d.datname = $1",
            &[&database],
        )
        .await?;
    Ok(Cost {
        statements: row.try_get(0)?,
        heartbeats: row.try_get(1)?,
        records: row.try_get(2)?,
    })
}

async fn position(client: &Client) -> Result<f64> {
    let row = client
        .query_one("select (pg_current_wal_lsn() - '0/0')::float8", &[])
        .await?;
    Ok(row.try_get(0)?)
}
