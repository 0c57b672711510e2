//! Several relays on one outbox, each with ways of its own to database and broker.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_testkit::{lines, process::Running, proxy::Proxy, servers::postgres::PostgresServer};
use rand::seq::IndexedRandom;
use serde_json::Value;

#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
use crate::brokers::Broker;
use crate::{
    database::Database,
    postgres::Postgres,
    relay::{Delivered, LIMIT, Relay, assert_no_panic, posthaste_json, until},
    verdict::Delivery,
};

/// The number of partitions that a destination has unless told otherwise.
const PARTITIONS: u64 = 64;

/// Where a fleet delivers to.
pub(super) trait Target: Send + Sync {
    /// As `--to` of one of the relays takes it.
    fn url(&self, relay: usize) -> String;
    /// What all of that goes through; none: it cannot be cut off.
    fn proxy(&self, relay: usize) -> Option<&Proxy>;
    /// Whether several relays deliver at once.
    fn is_shared_out(&self) -> bool;
    /// Events that arrived.
    fn arrived(&self) -> u64;
    /// All of them, in order for each key.
    fn deliveries(&self) -> Vec<Delivery>;
}

/// A broker with a way for each relay.
#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
pub(super) struct Brokered<B>(pub(super) Arc<B>);

#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
impl<B: Broker> Target for Brokered<B> {
    fn url(&self, relay: usize) -> String {
        self.0.way(relay).0
    }

    fn proxy(&self, relay: usize) -> Option<&Proxy> {
        Some(self.0.way(relay).1)
    }

    fn is_shared_out(&self) -> bool {
        true
    }

    fn arrived(&self) -> u64 {
        self.0.arrived()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.0.deliveries()
    }
}

/// One file for all relays.
pub(super) struct Shared(pub(super) Delivered);

impl Target for Shared {
    fn url(&self, _relay: usize) -> String {
        format!("file://{}", self.0.path().display())
    }

    fn proxy(&self, _relay: usize) -> Option<&Proxy> {
        None
    }

    fn is_shared_out(&self) -> bool {
        false
    }

    fn arrived(&self) -> u64 {
        self.0.lines()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let delivery = |line: lines::Line| Delivery {
            n: String::from_utf8(line.payload().unwrap())
                .unwrap()
                .trim_end()
                .parse()
                .unwrap(),
            id: line.id,
            key: line.key.unwrap(),
        };
        let lines = lines::read(self.0.path()).unwrap();
        lines.map(|line| delivery(line.unwrap())).collect()
    }
}

/// Relays that share an outbox.
pub(super) struct Fleet {
    postgres: Arc<Postgres>,
    target: Arc<dyn Target>,
    members: Vec<Member>,
}

struct Member {
    name: String,
    database: Proxy,
    relay: Relay,
    environment: Vec<(String, String)>,
    running: Option<Running>,
}

impl Fleet {
    /// So many relays; none runs yet.
    pub(super) fn new(
        server: &PostgresServer,
        postgres: &Arc<Postgres>,
        target: &Arc<dyn Target>,
        relays: usize,
        flags: &[&str],
    ) -> Self {
        let member = |number: usize| {
            let (name, database) = (
                format!("relay-{number}"),
                Proxy::to_local_port(server.port()).unwrap(),
            );
            let from = format!(
                "postgres://postgres@127.0.0.1:{}/{}",
                database.port(),
                postgres.name()
            );
            let relay = Relay::to_url(&from, &target.url(number))
                .flags(flags)
                .flags(&["--name", &name]);
            Member {
                name,
                database,
                relay,
                environment: Vec::new(),
                running: None,
            }
        };
        Self {
            postgres: Arc::clone(postgres),
            target: Arc::clone(target),
            members: (0..relays).map(member).collect(),
        }
    }

    /// Something that this relay finds in its environment from its next start on.
    pub(super) fn set_environment(&mut self, who: usize, name: &str, value: &str) {
        let variable = (name.to_owned(), value.to_owned());
        self.members[who].environment.push(variable);
    }

    pub(super) fn start(&mut self, who: usize) {
        let member = &mut self.members[who];
        let mut command: Command = member.relay.command();
        command.envs(member.environment.iter().cloned());
        member.running = Some(Running::start(&mut command));
    }

    pub(super) fn start_all(&mut self) {
        (0..self.members.len()).for_each(|who| self.start(who));
    }

    /// All of them, at the same time.
    pub(super) fn stop_all(&mut self) {
        let members = self.members.iter_mut();
        let running: Vec<Running> = members.filter_map(|m| m.running.take()).collect();
        running.iter().for_each(Running::terminate);
        for ended in running {
            assert_no_panic(&ended.wait(LIMIT).expect_status(0).stderr);
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    pub(super) fn name(&self, who: usize) -> &str {
        &self.members[who].name
    }

    pub(super) fn database_way(&self, who: usize) -> &Proxy {
        &self.members[who].database
    }

    pub(super) fn target(&self) -> Arc<dyn Target> {
        Arc::clone(&self.target)
    }

    pub(super) fn postgres(&self) -> Arc<Postgres> {
        Arc::clone(&self.postgres)
    }

    pub(super) fn running(&self, who: usize) -> &Running {
        self.members[who].running.as_ref().expect("it runs")
    }

    /// The process, for whoever ends it.
    pub(super) fn take(&mut self, who: usize) -> Running {
        self.members[who].running.take().expect("it runs")
    }

    pub(super) fn status(&self) -> Value {
        posthaste_json(&["status", "--store", &self.postgres.url()])
    }

    /// A running relay that owns partitions.
    pub(super) fn an_owner(&self) -> usize {
        let shares = self.shares();
        let owns = |who: &usize| {
            shares
                .iter()
                .any(|s| s.name == self.name(*who) && s.owned > 0)
        };
        let owners: Vec<usize> = (0..self.members.len()).filter(owns).collect();
        *owners.choose(&mut rand::rng()).expect("an owner")
    }

    /// Every partition is owned by a live relay, and each running relay is one; where several may deliver,
    /// each owns something.
    pub(super) async fn is_shared_out(&self) {
        let running = self.members.iter().filter(|m| m.running.is_some()).count();
        until("all partitions to be shared out", || {
            let shares = self.shares();
            let owners = shares.iter().filter(|share| share.owned > 0).count();
            let wanted = if self.target.is_shared_out() {
                running
            } else {
                1
            };
            let owned: u64 = shares.iter().map(|share| share.owned).sum();
            (shares.len(), owners, owned) == (running, wanted, PARTITIONS)
        })
        .await;
    }

    /// Every running relay owns its equal part.
    pub(super) async fn is_balanced(&self) {
        let running = self.members.iter().filter(|m| m.running.is_some()).count();
        until("equal shares", || {
            let shares = self.shares();
            let mut owned: Vec<u64> = shares.iter().map(|share| share.owned).collect();
            owned.sort_unstable();
            let apart = owned
                .last()
                .zip(owned.first())
                .map(|(most, least)| most - least);
            (owned.len(), owned.iter().sum()) == (running, PARTITIONS) && apart <= Some(1)
        })
        .await;
    }

    /// Other live relays own every partition.
    pub(super) async fn is_taken_over_from(&self, gone: &[usize]) {
        until("the others to own every partition", || {
            let shares = self.shares();
            let is_other = |share: &&Share| gone.iter().all(|&who| share.name != self.name(who));
            let others = shares.iter().filter(is_other);
            others.map(|share| share.owned).sum::<u64>() == PARTITIONS
        })
        .await;
    }

    /// Something new arrives.
    pub(super) async fn delivers(&self) {
        let before = self.target.arrived();
        until("delivery", || self.target.arrived() > before).await;
    }

    /// Nothing waits any more, nowhere, and nothing was set aside.
    pub(super) async fn is_drained(&self) {
        let since = Instant::now();
        loop {
            let status = self.status();
            if status["pending"] == 0 {
                for count in ["parked", "dead", "blocked_keys"] {
                    assert_eq!(status[count], 0, "{status:#}");
                }
                return;
            }
            assert!(since.elapsed() < LIMIT, "not drained: {status:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the live relays own, as `posthaste relays` tells it.
    fn shares(&self) -> Vec<Share> {
        let answer = posthaste_json(&["relays", "--store", &self.postgres.url()]);
        let relays = answer["relays"].as_array().unwrap().iter();
        let live = relays.filter(|relay| relay["state"] == "live");
        live.map(|relay| Share {
            name: relay["name"].as_str().unwrap().to_owned(),
            owned: relay["partitions"].as_u64().unwrap(),
        })
        .collect()
    }
}

struct Share {
    name: String,
    owned: u64,
}
