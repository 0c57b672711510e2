//! A backlog of MySQL and MariaDB into null, against a bare client of the same driver that reads
//! the same columns; with no hole, and with a hundred that stay open. Then a relay that runs.

mod running;

use std::time::Instant;

use anyhow::{Result, ensure};
use mysql_async::{Conn, Opts, Value, prelude::Queryable};
use posthaste_testkit::{
    process,
    servers::mysql::{Database, MysqlServer, Version},
};

use crate::{
    Plan,
    outbox::{LIMIT, posthaste},
    relayed::{self, Drained},
    report::{Bound, Report, median},
};

const COLUMNS: &str = "seq, slot, id, topic, `key`, `type`, content_type, payload, headers, \
     occurred_at, inserted_at, correlation_id, causation_id, tenant_id, traceparent, tracestate";
const HOLES: u64 = 100;
const MEMORY_MIB_MAX: f64 = 64.0;

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    for version in [Version::MySql8, Version::MariaDb11] {
        let outbox = Outbox::start(version).await?;
        outbox.fill(plan.events).await?;
        outbox.compare(plan, report, (0, 0.5)).await?;
        let mut open = outbox.connect().await?;
        outbox.leave_open(&mut open).await?;
        outbox.compare(plan, report, (HOLES, 0.4)).await?;
        open.query_drop("rollback").await?;
        running::run(&outbox, plan, report).await?;
    }
    Ok(())
}

struct Outbox {
    version: Version,
    database: Database,
    // Stops with its last user.
    _server: MysqlServer,
}

impl Outbox {
    async fn start(version: Version) -> Result<Self> {
        let server = MysqlServer::builder(version)
            .shows_locks()
            .setting("innodb-buffer-pool-size", "1G")
            .start();
        let database = server.create_database();
        let mut init = posthaste();
        init.args(["init", "--store", &database.url()]);
        process::run(&mut init, LIMIT).expect_status(0);
        let outbox = Self {
            version,
            database,
            _server: server,
        };
        let version: Option<String> = outbox
            .connect()
            .await?
            .query_first("select version()")
            .await?;
        println!("{version:?}");
        Ok(outbox)
    }

    fn of(&self, what: &str) -> String {
        format!("{:?}, {what}", self.version)
    }

    async fn connect(&self) -> Result<Conn> {
        Ok(Conn::new(Opts::from_url(&self.database.url())?).await?)
    }

    /// Commits events of 300 bytes with 10 000 keys.
    async fn fill(&self, events: u64) -> Result<()> {
        const CHUNK: u64 = 100_000;
        let mut conn = self.connect().await?;
        conn.query_drop("create table numbers (n int primary key)")
            .await?;
        conn.query_drop(
            "insert into numbers with recursive c (n) as
             (select 0 union all select n + 1 from c where n < 999) select n from c",
        )
        .await?;
        let mut done = 0;
        while done < events {
            let more = CHUNK.min(events - done);
            conn.query_drop(format!(
                "insert into posthaste_outbox (topic, `key`, `type`, content_type, payload)
                 select 'orders', concat('order-', n % 10000), 'OrderPlaced', 'application/json',
                     concat(rpad(concat('{{\"order\":', n, ',\"note\":\"'), 298, 'x'), '\"}}')
                 from (select {done} + a.n + 1000 * b.n as n from numbers a, numbers b
                     where b.n < 100 order by b.n, a.n limit {more}) as numbered"
            ))
            .await?;
            done += more;
        }
        Ok(())
    }

    /// A transaction that has drawn each second one of the next numbers.
    async fn leave_open(&self, open: &mut Conn) -> Result<()> {
        let mut between = self.connect().await?;
        open.query_drop("start transaction").await?;
        for conn in (0..HOLES).flat_map(|_| [0, 1]) {
            let conn = if conn == 0 { &mut *open } else { &mut between };
            conn.query_drop(
                "insert into posthaste_outbox (topic, payload) values ('orders', '{}')",
            )
            .await?;
        }
        Ok(())
    }

    fn drained(&self, destination: &str, flags: &[&str], events: u64) -> Result<Drained> {
        let mut relay = posthaste();
        relay.args(["relay", "--from", &self.database.url(), "--to", "null:"]);
        relay.args(["--destination", destination]).args(flags);
        relayed::drained(relay, events)
    }

    async fn compare(
        &self,
        plan: &Plan,
        report: &mut Report,
        (holes, at_least): (u64, f64),
    ) -> Result<()> {
        let events = plan.events + holes;
        let mut conn = self.connect().await?;
        streamed(&mut conn, events).await?;
        let (mut ratios, mut peak) = (Vec::new(), 0.0_f64);
        for number in 0..plan.rounds {
            let name = |what: &str| format!("{what}-{holes}-{number}");
            let nothing = self.drained(&name("nothing"), &["--start", "now"], 0)?;
            let relay = || self.drained(&name("round"), &[], events);
            // Each of the two compared goes first in every other round.
            let relay_first = (number % 2 == 1).then(relay).transpose()?;
            let streamed = streamed(&mut conn, events).await?;
            let drained = relay_first.map_or_else(relay, Ok)?;
            let relayed = drained.wall - nothing.wall;
            println!(
                "round {number}, {holes} holes: streamed {streamed:.3} s, relay {relayed:.3} s \
                 ({:.2} CPU s, beside {:.3} s of start and stop), ratio {:.3}",
                drained.cpu,
                nothing.wall,
                streamed / relayed
            );
            ratios.push(streamed / relayed);
            peak = peak.max(drained.peak_mib);
        }
        let of = |what: &str| self.of(&format!("{holes} holes: {what}"));
        report.hold(
            of("relay / bare client, one streamed read"),
            median(&ratios),
            "",
            Bound::AtLeast(at_least),
        );
        let memory = of("relay's peak memory (VmHWM)");
        report.hold(memory, peak, "MiB", Bound::AtMost(MEMORY_MIB_MAX));
        Ok(())
    }
}

/// The ruler: no page ever waits for the one before. Looks at every byte, as the null sink does.
async fn streamed(conn: &mut Conn, events: u64) -> Result<f64> {
    let sql = format!("select {COLUMNS} from posthaste_outbox order by seq");
    let started = Instant::now();
    let (mut read, mut sum) = (0, 0_u64);
    let mut rows = conn.query_iter(sql).await?;
    while let Some(row) = rows.next().await? {
        read += 1;
        for value in row.unwrap_raw().into_iter().flatten() {
            let Value::Bytes(bytes) = value else { continue };
            let (words, rest) = bytes.as_chunks::<8>();
            for word in words {
                sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
            for &byte in rest {
                sum = sum.wrapping_add(u64::from(byte));
            }
        }
    }
    ensure!(read == events, "read {read} of {events}");
    std::hint::black_box(sum);
    Ok(started.elapsed().as_secs_f64())
}
