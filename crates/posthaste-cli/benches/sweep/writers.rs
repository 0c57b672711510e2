//! Applications that write: one business row and one event a transaction, beside a relay and
//! without.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use posthaste::{Event, Outbox as Emitter};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    Plan,
    outbox::{self, Outbox},
    report::{Bound, Report, median, quantile},
};

const WRITERS: usize = 16;
const ACCOUNTS: i32 = 10_000;
/// The pace asked for; less where the machine has no processor to spare at it.
const PACE: f64 = 3_000.0;
const SPARE: f64 = 0.5;

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let outbox = Outbox::start().await?;
    let mut writers = Writers::connect(&outbox, WRITERS).await?;
    let span = Duration::from_secs(if plan.long { 20 } else { 5 });
    let most = writers.run(span, None).await?.rate;
    let pace = PACE.min(most * SPARE);
    report.print(
        "most transactions without a relay, 16 writers",
        most,
        "a second",
    );

    let paced = compare(plan, &outbox, &mut writers, span, Some(pace), Factor::Relay).await?;
    report.print("pace", pace, "a second");
    report.print(
        "time of a paced transaction, relay off, p50",
        paced.off_millis,
        "ms",
    );
    report.print(
        "time of a paced transaction, relay on, p50",
        paced.on_millis,
        "ms",
    );
    report.hold(
        "paced writers, relay on / off",
        paced.ratio,
        "",
        Bound::AtLeast(0.95),
    );

    let saturated = compare(plan, &outbox, &mut writers, span, None, Factor::Relay).await?;
    report.print("saturating writers, relay on / off", saturated.ratio, "");

    for synchronous_commit in ["on", "off"] {
        writers
            .each(&format!("set synchronous_commit = {synchronous_commit}"))
            .await?;
        let hints = compare(plan, &outbox, &mut writers, span, None, Factor::Hints).await?;
        report.hold(
            format!("beside a relay, hints / no trigger, synchronous_commit {synchronous_commit}"),
            hints.ratio,
            "",
            Bound::AtLeast(0.97),
        );
    }
    Ok(())
}

/// The settings in which the rounds of a comparison differ.
#[derive(Debug, Clone, Copy)]
enum Factor {
    Relay,
    /// Beside a relay.
    Hints,
}

impl Factor {
    async fn run(
        self,
        on: bool,
        outbox: &Outbox,
        writers: &mut Writers,
        span: Duration,
        pace: Option<f64>,
    ) -> Result<Written> {
        match self {
            Self::Relay if !on => return writers.run(span, pace).await,
            Self::Relay => {}
            Self::Hints => {
                let switch = if on { "enable" } else { "disable" };
                let sql = format!("alter table posthaste.outbox {switch} trigger hint");
                outbox.connect().await?.batch_execute(&sql).await?;
            }
        }
        beside_relay(outbox, writers, span, pace).await
    }
}

/// Medians over the rounds.
struct Compared {
    ratio: f64,
    off_millis: f64,
    on_millis: f64,
}

async fn compare(
    plan: &Plan,
    outbox: &Outbox,
    writers: &mut Writers,
    span: Duration,
    pace: Option<f64>,
    factor: Factor,
) -> Result<Compared> {
    let (mut ratios, mut off_millis, mut on_millis) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..plan.rounds {
        // Each of the two goes first in every other round.
        let first = number % 2 == 1;
        let one = factor.run(first, outbox, writers, span, pace).await?;
        let other = factor.run(!first, outbox, writers, span, pace).await?;
        let (off, on) = if first { (other, one) } else { (one, other) };
        println!(
            "round {number}: off {:.0}/s, p50 {:.3} ms; on {:.0}/s, p50 {:.3} ms; ratio {:.3}",
            off.rate,
            median(&off.millis),
            on.rate,
            median(&on.millis),
            on.rate / off.rate
        );
        ratios.push(on.rate / off.rate);
        off_millis.push(quantile(&off.millis, 0.5));
        on_millis.push(quantile(&on.millis, 0.5));
    }
    Ok(Compared {
        ratio: median(&ratios),
        off_millis: median(&off_millis),
        on_millis: median(&on_millis),
    })
}

async fn beside_relay(
    outbox: &Outbox,
    writers: &mut Writers,
    span: Duration,
    pace: Option<f64>,
) -> Result<Written> {
    // The backlog of the rounds without a relay is not this round's.
    outbox.drain();
    let relay = outbox.start_relay(&[]);
    let written = writers.run(span, pace).await;
    outbox::stop(relay);
    written
}

/// Connections that write.
pub(crate) struct Writers {
    clients: Vec<Client>,
}

/// The events that were written, and how fast.
#[derive(Default)]
pub(crate) struct Written {
    /// When the commit of each event was answered.
    pub(crate) committed: Vec<(Uuid, Instant)>,
    /// How long each transaction took.
    millis: Vec<f64>,
    /// Transactions a second.
    pub(crate) rate: f64,
}

impl Writers {
    pub(crate) async fn connect(outbox: &Outbox, count: usize) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(outbox.connect().await?);
        }
        let sql = format!(
            "create table accounts (id integer primary key, balance bigint not null)
                 with (fillfactor = 50);
             insert into accounts select n, 0 from generate_series(0, {ACCOUNTS} - 1) n"
        );
        outbox.connect().await?.batch_execute(&sql).await?;
        Ok(Self { clients })
    }

    /// Lets each of them run this.
    async fn each(&self, sql: &str) -> Result<()> {
        for client in &self.clients {
            client.batch_execute(sql).await?;
        }
        Ok(())
    }

    /// Writes for so long; with a pace, each transaction begins at its own moment, however long
    /// those before it took.
    pub(crate) async fn run(&mut self, span: Duration, pace: Option<f64>) -> Result<Written> {
        let count = self.clients.len() as f64;
        let started = Instant::now();
        let writers = self
            .clients
            .iter_mut()
            .zip(0_u32..)
            .map(|(client, number)| {
                let schedule = pace.map(|pace| {
                    let every = Duration::from_secs_f64(count / pace);
                    (every.mul_f64(f64::from(number) / count), every)
                });
                write(client, started, span, schedule)
            });
        let mut all = Written::default();
        for written in try_join_all(writers).await? {
            all.committed.extend(written.committed);
            all.millis.extend(written.millis);
        }
        ensure!(!all.committed.is_empty(), "nothing was written");
        all.rate = all.committed.len() as f64 / started.elapsed().as_secs_f64();
        Ok(all)
    }
}

async fn write(
    client: &mut Client,
    started: Instant,
    span: Duration,
    schedule: Option<(Duration, Duration)>,
) -> Result<Written> {
    let update = client
        .prepare("update accounts set balance = balance + 1 where id = $1")
        .await?;
    let emitter = Emitter::new();
    let payload = vec![b'x'; 300];
    let mut written = Written::default();
    let mut due = schedule.map(|(offset, _)| offset);
    loop {
        if let (Some(due), Some((_, every))) = (&mut due, schedule) {
            if *due >= span {
                return Ok(written);
            }
            tokio::time::sleep_until((started + *due).into()).await;
            *due += every;
        } else if started.elapsed() >= span {
            return Ok(written);
        }
        let account = rand::random_range(0..ACCOUNTS);
        let event = Event::builder("accounts")
            .key(format!("account-{account}"))
            .event_type("BalanceChanged")
            .payload(payload.clone())
            .build()?;
        let began = Instant::now();
        let mut transaction = client.transaction().await?;
        transaction.execute(&update, &[&account]).await?;
        let emitted = emitter.emit(&mut transaction, event).await?;
        transaction.commit().await?;
        let committed = Instant::now();
        written.committed.push((emitted.id, committed));
        written.millis.push((committed - began).as_secs_f64() * 1e3);
    }
}
