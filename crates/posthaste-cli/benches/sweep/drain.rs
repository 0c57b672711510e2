//! A backlog into null, against a bare client of the same driver that reads the same columns.

use std::{pin::pin, time::Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio_postgres::{
    Client, Row,
    types::{FromSql, Type},
};

use crate::{
    Plan,
    outbox::Outbox,
    relayed::{self, Drained},
    report::{Bound, Report, median},
};

const COLUMNS: &str = "seq, id, topic, key, type, content_type, payload, headers, occurred_at, \
     inserted_at, correlation_id, causation_id, tenant_id, traceparent, tracestate, slot";
/// The relay's own page size.
const PAGE: u64 = 1_000;
const PENDING_LONG: u64 = 5_000_000;
const MEMORY_MIB_MAX: f64 = 64.0;

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let outbox = Outbox::start().await?;
    outbox.fill(plan.events).await?;
    let client = outbox.connect().await?;
    // The first reader would otherwise pay for loading the table.
    streamed(&client, plan.events).await?;

    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        rounds.push(round(&outbox, &client, plan.events, number).await?);
    }
    let all = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    let rate = |of: fn(&Round) -> f64| plan.events as f64 / median(&all(of)) / 1_000.0;
    report.print(
        "bare client, one streamed read",
        rate(|r| r.streamed),
        "k events/s",
    );
    report.print(
        "bare client, pages of 1 000",
        rate(|r| r.paged),
        "k events/s",
    );
    report.print("bare COPY binary", rate(|r| r.copied), "k events/s");
    report.print("relay into null", rate(|r| r.relayed), "k events/s");
    report.print(
        "relay's start and stop, taken off",
        median(&all(|r| r.idle)),
        "s",
    );
    report.print(
        "relay / bare client in pages",
        median(&all(|r| r.paged / r.relayed)),
        "",
    );
    report.print(
        "relay / COPY binary",
        median(&all(|r| r.copied / r.relayed)),
        "",
    );
    report.hold(
        "relay / bare client, one streamed read",
        median(&all(|r| r.streamed / r.relayed)),
        "",
        Bound::AtLeast(0.5),
    );
    let peak = rounds.iter().map(|r| r.peak_mib).fold(0.0, f64::max);
    memory(report, plan.events, peak);
    if plan.long {
        outbox
            .fill(PENDING_LONG.saturating_sub(plan.events))
            .await?;
        let drained = relay(&outbox, "five-million", PENDING_LONG)?;
        memory(report, PENDING_LONG, drained.peak_mib);
    }
    Ok(())
}

fn memory(report: &mut Report, pending: u64, peak_mib: f64) {
    let name = format!("relay's peak memory (VmHWM), {pending} pending");
    report.hold(name, peak_mib, "MiB", Bound::AtMost(MEMORY_MIB_MAX));
}

/// Seconds that each took.
struct Round {
    streamed: f64,
    paged: f64,
    copied: f64,
    idle: f64,
    relayed: f64,
    peak_mib: f64,
}

async fn round(outbox: &Outbox, client: &Client, events: u64, number: usize) -> Result<Round> {
    // Each of the two compared goes first in every other round.
    let relay_first = number % 2 == 1;
    let nothing = relay_nothing(outbox, number)?;
    let mut drained = None;
    if relay_first {
        drained = Some(relay(outbox, &format!("round-{number}"), events)?);
    }
    let streamed = streamed(client, events).await?;
    let drained = match drained {
        Some(drained) => drained,
        None => relay(outbox, &format!("round-{number}"), events)?,
    };
    let round = Round {
        streamed,
        paged: paged(client, events).await?,
        copied: copied(client).await?,
        idle: nothing.wall,
        relayed: drained.wall - nothing.wall,
        peak_mib: drained.peak_mib,
    };
    println!(
        "round {number}: streamed {:.3} s, paged {:.3} s, COPY {:.3} s, relay {:.3} s \
         (beside {:.3} s of start and stop), ratio {:.3}",
        round.streamed,
        round.paged,
        round.copied,
        round.relayed,
        round.idle,
        round.streamed / round.relayed
    );
    Ok(round)
}

fn relay(outbox: &Outbox, destination: &str, events: u64) -> Result<Drained> {
    let relay = outbox.relay("null:", &["--destination", destination]);
    relayed::drained(relay, events)
}

/// The cost of a start and a stop: a new destination that has nothing before it.
fn relay_nothing(outbox: &Outbox, number: usize) -> Result<Drained> {
    let name = format!("nothing-{number}");
    let flags = ["--destination", &name, "--start", "now"];
    relayed::drained(outbox.relay("null:", &flags), 0)
}

/// A column as it came; looks at every byte, as the null sink does.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The rows that were read; the sum keeps the compiler from removing unused work.
#[derive(Default)]
struct Read {
    events: u64,
    last: i64,
    sum: u64,
}

impl Read {
    fn row(&mut self, row: &Row) -> Result<()> {
        self.events += 1;
        self.last = row.try_get(0)?;
        for column in 1..row.len() {
            let Raw(Some(bytes)) = row.try_get(column)? else {
                continue;
            };
            let (words, rest) = bytes.as_chunks::<8>();
            for word in words {
                self.sum = self.sum.wrapping_add(u64::from_le_bytes(*word));
            }
            for &byte in rest {
                self.sum = self.sum.wrapping_add(u64::from(byte));
            }
        }
        Ok(())
    }
}

/// The ruler: no page ever waits for the one before.
pub(crate) async fn streamed(client: &Client, events: u64) -> Result<f64> {
    let sql = format!("select {COLUMNS} from posthaste.outbox order by seq");
    let statement = client.prepare(&sql).await?;
    let started = Instant::now();
    let mut read = Read::default();
    let rows = client.query_raw(&statement, Vec::<i64>::new()).await?;
    let mut rows = pin!(rows);
    while let Some(row) = rows.try_next().await? {
        read.row(&row)?;
    }
    ensure!(read.events == events, "read {} of {events}", read.events);
    std::hint::black_box(read.sum);
    Ok(started.elapsed().as_secs_f64())
}

async fn paged(client: &Client, events: u64) -> Result<f64> {
    let sql = format!(
        "select {COLUMNS} from posthaste.outbox where seq > $1::bigint order by seq limit {PAGE}"
    );
    client
        .batch_execute("set plan_cache_mode = force_generic_plan")
        .await?;
    let statement = client.prepare(&sql).await?;
    let started = Instant::now();
    let mut read = Read::default();
    loop {
        let before = read.events;
        let rows = client.query_raw(&statement, [read.last]).await?;
        let mut rows = pin!(rows);
        while let Some(row) = rows.try_next().await? {
            read.row(&row)?;
        }
        if read.events == before {
            break;
        }
    }
    ensure!(read.events == events, "read {} of {events}", read.events);
    std::hint::black_box(read.sum);
    Ok(started.elapsed().as_secs_f64())
}

async fn copied(client: &Client) -> Result<f64> {
    let sql = format!(
        "copy (select {COLUMNS} from posthaste.outbox order by seq) to stdout (format binary)"
    );
    let started = Instant::now();
    let chunks = client.copy_out(&sql).await?;
    let mut chunks = pin!(chunks);
    let mut bytes = 0;
    while let Some(chunk) = chunks.try_next().await? {
        bytes += Bytes::len(&chunk);
    }
    std::hint::black_box(bytes);
    Ok(started.elapsed().as_secs_f64())
}
