//! What becomes of a relay, or of the database under all of them.

use std::time::{Duration, Instant};

use posthaste_testkit::{process::Running, proxy::Proxy, servers::postgres::PostgresServer};
use rand::{Rng, seq::SliceRandom};

use super::{LEASE, fleet::Fleet};
use crate::{
    load::Load,
    relay::{LIMIT, assert_no_panic},
    server_crash::crash_server,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`.
    Kill,
    /// SIGSTOP beyond the lease, then SIGCONT: it goes on where it stood.
    Freeze,
    /// One is killed while another stands still, so that a third one has to take over from both.
    Two,
    /// No way to the database beyond the lease; the broker is in reach.
    CutDatabase,
    /// No way to the broker beyond the lease; the database is in reach.
    CutBroker,
    /// SIGTERM.
    Stop,
    /// The database's server, stopped like a crash.
    Crash,
}

impl Fault {
    pub(super) const ALL: [Self; 7] = [
        Self::Kill,
        Self::Freeze,
        Self::Two,
        Self::CutDatabase,
        Self::CutBroker,
        Self::Stop,
        Self::Crash,
    ];

    /// Windows that it may repeat at the most, of this many relays (I4).
    pub(super) fn windows(self, relays: usize) -> u64 {
        match self {
            Self::Stop => 0,
            Self::Kill | Self::Freeze => 1,
            // The lane ends with the lease, and what a network kept may come besides.
            Self::Two | Self::CutDatabase | Self::CutBroker => 2,
            Self::Crash => relays as u64,
        }
    }
}

/// Each once, in any order.
pub(super) fn shuffled(faults: &[Fault]) -> Vec<Fault> {
    let mut faults = faults.to_vec();
    faults.shuffle(&mut rand::rng());
    faults
}

impl Fleet {
    /// One fault of one relay that owns something, until it is mended.
    pub(super) async fn suffers(&mut self, fault: Fault, server: &PostgresServer, load: &Load) {
        let who = self.an_owner();
        println!("{fault:?} of {}", self.name(who));
        let began = Instant::now();
        match fault {
            Fault::Kill => {
                assert_no_panic(&self.take(who).kill9().stderr);
                self.is_taken_over_from(&[who]).await;
                println!("  taken over {:?} after a kill", began.elapsed());
                self.start(who);
            }
            Fault::Freeze => self.freeze(who, began, &[who]).await,
            Fault::Two => {
                let second = (who + 1) % self.size();
                assert_no_panic(&self.take(second).kill9().stderr);
                self.freeze(who, began, &[who, second]).await;
                self.start(second);
            }
            Fault::CutDatabase => {
                let _cut = Cut::off(self.database_way(who));
                self.is_taken_over_from(&[who]).await;
                println!(
                    "  taken over {:?} after a cut from the database",
                    began.elapsed()
                );
                outlast(began).await;
            }
            Fault::CutBroker => {
                let target = self.target();
                let proxy = target.proxy(who).expect("a broker that can be cut off");
                let _cut = Cut::off(proxy);
                self.is_taken_over_from(&[who]).await;
                println!(
                    "  given up {:?} after a cut from the broker",
                    began.elapsed()
                );
                outlast(began).await;
            }
            Fault::Stop => {
                stop_after_whatever(self.take(who));
                println!("  stopped within {:?}", began.elapsed());
                self.is_taken_over_from(&[who]).await;
                println!("  handed over {:?} after the signal", began.elapsed());
                self.start(who);
            }
            Fault::Crash => {
                let paused = load.pause().await;
                let postgres = self.postgres();
                crash_server(server, &postgres, &mut 0, || ()).await;
                drop(paused);
            }
        }
    }

    /// One stands still, until the others have what `gone` had.
    async fn freeze(&mut self, who: usize, began: Instant, gone: &[usize]) {
        self.running(who).pause();
        self.is_taken_over_from(gone).await;
        println!("  taken over {:?} after it stood still", began.elapsed());
        outlast(began).await;
        self.running(who).resume();
    }
}

/// A way that leads nowhere until the value is dropped, however that comes.
struct Cut<'a>(&'a Proxy);

impl<'a> Cut<'a> {
    /// Connections end, or stay open and silent.
    fn off(proxy: &'a Proxy) -> Self {
        if rand::rng().random_bool(0.5) {
            proxy.refuse();
        } else {
            proxy.stall();
        }
        Self(proxy)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// Until the lease of whoever could not renew it since then is over.
async fn outlast(began: Instant) {
    let left = (LEASE + LEASE / 3).saturating_sub(began.elapsed());
    tokio::time::sleep(left.max(Duration::from_millis(100))).await;
}

/// Who is stopped while it claims anew after a crash of the database does not know what the lost claim
/// stored, and says so.
fn stop_after_whatever(running: Running) {
    running.terminate();
    let stopped = running.wait(LIMIT);
    assert_no_panic(&stopped.stderr);
    if !stopped
        .stderr
        .contains("some events will be delivered again")
    {
        stopped.expect_status(0);
    }
}

pub(super) fn stop_in_order(running: Running) {
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
}
