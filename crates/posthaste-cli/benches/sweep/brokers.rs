//! A backlog to a broker, against the broker's own bare client beside a bare reader.

use std::time::Instant;

use anyhow::Result;

use crate::{
    Plan, drain,
    outbox::Outbox,
    relayed::{self, Drained},
    report::{Bound, Report, median},
};

/// A broker under measurement.
pub(crate) trait Broker: Sync {
    /// As `--to` takes it, to an empty place.
    fn fresh_place(&self) -> String;
    /// The same records to another empty place by a bare client; returns when all are acknowledged.
    fn bare(&self, events: u64) -> Result<()>;
    /// How many of the planned events a round has: fewer where the broker is slow.
    fn events(&self, planned: u64) -> u64 {
        planned
    }
    /// How many events the place of [`Self::fresh_place`] has received.
    fn arrived(&self) -> u64;
    /// The relay's memory may not exceed this.
    fn memory_mib_max(&self) -> f64;
    /// The relay is to be this fast beside the bare client.
    fn ratio_min(&self) -> f64 {
        0.5
    }
}

/// The payload of the events of the outbox.
pub(crate) fn payload() -> String {
    format!("{{\"order\":1000000,\"note\":\"{}\"}}", "x".repeat(270))
}

struct Round {
    bare: f64,
    bare_cpu: f64,
    relayed: Drained,
    idle: f64,
}

pub(crate) async fn run(plan: &Plan, report: &mut Report, broker: &dyn Broker) -> Result<()> {
    let events = broker.events(plan.events);
    let outbox = Outbox::start().await?;
    outbox.fill(events).await?;
    let client = outbox.connect().await?;
    drain::streamed(&client, events).await?;
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        let name = |what: &str| format!("{what}-{number}");
        let flags = ["--destination", &name("nothing"), "--start", "now"];
        let nothing = relayed::drained(outbox.relay(&broker.fresh_place(), &flags), 0)?;
        let relay = || {
            let place = broker.fresh_place();
            let flags = ["--destination", &name("round")];
            let drained = relayed::drained(outbox.relay(&place, &flags), events)?;
            anyhow::ensure!(broker.arrived() == events, "not all have arrived");
            Ok(drained)
        };
        // Each of the two compared goes first in every other round.
        let relay_first = (number % 2 == 1).then(relay).transpose()?;
        let (bare, bare_cpu) = bare_beside_reader(&outbox, broker, events).await?;
        let relayed = relay_first.map_or_else(relay, Ok)?;
        let round = Round {
            bare,
            bare_cpu,
            idle: nothing.wall,
            relayed,
        };
        println!(
            "round {number}: bare {:.3} s ({:.2} CPU s), relay {:.3} s ({:.2} CPU s, {:.0} MiB), \
             of it start and stop {:.3} s, ratio {:.3}",
            round.bare,
            round.bare_cpu,
            round.relayed.wall,
            round.relayed.cpu,
            round.relayed.peak_mib,
            round.idle,
            round.ratio()
        );
        rounds.push(round);
    }
    tell(events, report, broker, &rounds);
    Ok(())
}

impl Round {
    fn relayed(&self) -> f64 {
        self.relayed.wall - self.idle
    }

    fn ratio(&self) -> f64 {
        self.bare / self.relayed()
    }
}

fn tell(events: u64, report: &mut Report, broker: &dyn Broker, rounds: &[Round]) {
    let all = |of: fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let rate = |seconds: f64| events as f64 / seconds / 1_000.0;
    let per_million = 1e6 / events as f64;
    report.print(
        "bare client, with a bare reader beside it",
        rate(all(|r| r.bare)),
        "k events/s",
    );
    report.print("relay", rate(all(Round::relayed)), "k events/s");
    report.print(
        "bare client and reader, processor time",
        all(|r| r.bare_cpu) * per_million,
        "s/million",
    );
    report.print(
        "relay, processor time",
        all(|r| r.relayed.cpu) * per_million,
        "s/million",
    );
    let peak = rounds
        .iter()
        .map(|r| r.relayed.peak_mib)
        .fold(0.0, f64::max);
    report.hold(
        "relay's peak memory (VmHWM)",
        peak,
        "MiB",
        Bound::AtMost(broker.memory_mib_max()),
    );
    report.hold(
        "relay / bare client",
        all(Round::ratio),
        "",
        Bound::AtLeast(broker.ratio_min()),
    );
}

/// Seconds, and seconds of processor time.
async fn bare_beside_reader(
    outbox: &Outbox,
    broker: &dyn Broker,
    events: u64,
) -> Result<(f64, f64)> {
    let client = outbox.connect().await?;
    let cpu = || relayed::cpu_seconds(std::process::id()).unwrap_or(f64::NAN);
    let (started, before) = (Instant::now(), cpu());
    std::thread::scope(|scope| {
        let bare = scope.spawn(|| broker.bare(events));
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| runtime.block_on(drain::streamed(&client, events)))?;
        bare.join().expect("the bare client")
    })?;
    Ok((started.elapsed().as_secs_f64(), cpu() - before))
}
