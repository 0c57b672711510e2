//! A backlog into null by relays that share it, against one relay alone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use posthaste_relay::{Destination, Relay};
use posthaste_sinks::NullSink;
use posthaste_stores::postgres::PostgresStore;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Plan,
    outbox::{Outbox, connect},
    report::{Report, median},
};

const RELAYS: u16 = 4;
const PARTITIONS: u16 = 64;
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let outbox = Outbox::start().await?;
    outbox.fill(plan.events).await?;
    let (mut alone, mut shared, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        // Each of the two goes first in every other round.
        let mut sizes = [1, RELAYS];
        sizes.rotate_left(round % 2);
        for relays in sizes {
            let drained = drain(&outbox, plan.events, relays, round).await?;
            let (rate, waited) = (plan.events as f64 / drained.seconds / 1e3, drained.waited);
            println!(
                "round {round}: {relays} relays, {rate:.0} k events/s, {waited:.3} lock waits"
            );
            if relays == 1 {
                alone.push(rate);
            } else {
                shared.push(rate);
                waits.push(waited);
            }
        }
    }
    let (alone, shared) = (median(&alone), median(&shared));
    report.print("one relay into null", alone, "k events/s");
    report.print("four relays into null", shared, "k events/s");
    let ratio = shared / (f64::from(RELAYS) * alone);
    report.print("four relays / (4 x one relay)", ratio, "");
    report.print(
        "sessions that wait for a lock, at a look",
        median(&waits),
        "",
    );
    Ok(())
}

struct Drained {
    seconds: f64,
    /// Sessions that waited for a lock, on average over all looks.
    waited: f64,
}

/// From the start of the relays until a destination of its own has all events.
async fn drain(outbox: &Outbox, events: u64, relays: u16, round: usize) -> Result<Drained> {
    let watcher = connect(&outbox.server.admin_url("postgres")).await?;
    let (stop, stopped) = watch::channel(false);
    let (mut running, mut counters) = (JoinSet::new(), Vec::new());
    let name = format!("{relays}-relays-{round}");
    let began = Instant::now();
    for number in 0..relays {
        let store = Arc::new(PostgresStore::new(&outbox.database.url())?);
        let destination = Destination::new(&*name, Arc::new(NullSink::default()));
        counters.push(destination.counters());
        let relay = Relay::builder(store)
            .name(format!("relay-{number}"))
            .partitions_max(PARTITIONS / relays)
            .destination(destination)
            .build()?;
        let mut stopped = stopped.clone();
        running.spawn(relay.run(async move { drop(stopped.wait_for(|stop| *stop).await) }));
    }
    let (mut looks, mut waits) = (0_u32, 0_u32);
    let accepted = || counters.iter().map(|c| c.snapshot().accepted).sum::<u64>();
    while accepted() < events {
        tokio::time::sleep(LOOK_EVERY).await;
        let row = watcher
            .query_one(
                "select count(*)::int4 from pg_stat_activity where wait_event_type = 'Lock'",
                &[],
            )
            .await?;
        waits += u32::try_from(row.try_get::<_, i32>(0)?)?;
        looks += 1;
        ensure!(running.try_join_next().is_none(), "a relay ended");
    }
    let seconds = began.elapsed().as_secs_f64();
    ensure!(accepted() == events, "something was delivered twice");
    stop.send(true)?;
    while let Some(ended) = running.join_next().await {
        ensure!(ended??.clean, "a relay did not end in order");
    }
    Ok(Drained {
        seconds,
        waited: f64::from(waits) / f64::from(looks.max(1)),
    })
}
