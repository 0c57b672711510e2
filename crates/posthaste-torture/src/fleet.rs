//! Several relays on one outbox, each with ways of its own to database and broker.

use std::{
    fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_testkit::{
    process::{Running, assert_none_ended},
    proxy::Proxy,
    ways::resolving_by,
};
use rand::{rngs::SmallRng, seq::IndexedRandom};
use serde_json::Value;

use crate::{
    brokers::Target,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste_json, until},
    source::Source,
};

/// The number of partitions that a destination has unless told otherwise.
const PARTITIONS: u64 = 64;
/// As many events wait for a few seconds at the most.
const BACKLOG_EVENTS: u64 = 20_000;

/// Relays that share an outbox.
pub struct Fleet {
    source: Arc<Source>,
    target: Arc<dyn Target>,
    flags: Vec<String>,
    members: Vec<Member>,
    folder: tempfile::TempDir,
}

struct Member {
    name: String,
    from: String,
    database: Option<Proxy>,
    environment: Vec<(String, String)>,
    running: Option<Running>,
}

impl Fleet {
    /// So many relays; none runs yet.
    #[must_use]
    pub fn new(
        source: &Arc<Source>,
        target: &Arc<dyn Target>,
        relays: usize,
        flags: &[&str],
    ) -> Self {
        let member = |number: usize| {
            let name = format!("relay-{number}");
            let (from, database) = source.way();
            Member {
                name,
                from,
                database,
                environment: Vec::new(),
                running: None,
            }
        };
        Self {
            source: Arc::clone(source),
            target: Arc::clone(target),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            members: (0..relays).map(member).collect(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Something that this relay finds in its environment from its next start on.
    pub fn set_environment(&mut self, who: usize, name: &str, value: &str) {
        let variable = (name.to_owned(), value.to_owned());
        self.members[who].environment.push(variable);
    }

    /// Takes all of that away again.
    pub fn clear_environment(&mut self, who: usize) {
        self.members[who].environment.clear();
    }

    /// Starts it, with the target's present address.
    pub fn start(&mut self, who: usize) {
        let member = &mut self.members[who];
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let relay = RelayCommand::to_url(&member.from, &self.target.url(who))
            .flags(&flags)
            .flags(&["--name", &member.name]);
        let mut command: Command = relay.command();
        if let Some(hosts) = self.target.hosts(who) {
            let file = self.folder.path().join(&member.name);
            fs::write(&file, hosts).unwrap();
            command = resolving_by(&file, &command);
        }
        command.envs(member.environment.iter().cloned());
        member.running = Some(Running::start(&mut command).goes_on());
    }

    /// Starts those that do not run.
    pub fn start_all(&mut self) {
        for who in 0..self.members.len() {
            if self.members[who].running.is_none() {
                self.start(who);
            }
        }
    }

    /// All of them, at the same time.
    ///
    /// # Panics
    ///
    /// When one does not end well.
    pub fn stop_all(&mut self) {
        let members = self.members.iter_mut();
        let running: Vec<Running> = members.filter_map(|m| m.running.take()).collect();
        running.iter().for_each(Running::terminate);
        for ended in running {
            assert_no_panic(&ended.wait(LIMIT).expect_status(0).stderr);
        }
    }

    /// Nobody ends by itself, whatever happens.
    ///
    /// # Panics
    ///
    /// When one did.
    pub fn assert_nobody_ended(&mut self) {
        for member in &mut self.members {
            let alive = member.running.as_mut().is_none_or(Running::is_running);
            assert!(alive, "{} ended by itself", member.name);
        }
    }

    /// How many they are, running or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// As `--name` says.
    #[must_use]
    pub fn name(&self, who: usize) -> &str {
        &self.members[who].name
    }

    /// The proxy through which it reaches the database.
    ///
    /// # Panics
    ///
    /// When that cannot be cut off.
    #[must_use]
    pub fn database_way(&self, who: usize) -> &Proxy {
        let way = self.members[who].database.as_ref();
        way.expect("a database that can be cut off")
    }

    /// Where they deliver to.
    #[must_use]
    pub fn target(&self) -> Arc<dyn Target> {
        Arc::clone(&self.target)
    }

    /// The database under them.
    #[must_use]
    pub fn source(&self) -> Arc<Source> {
        Arc::clone(&self.source)
    }

    /// The process.
    ///
    /// # Panics
    ///
    /// When it does not run.
    #[must_use]
    pub fn running(&self, who: usize) -> &Running {
        self.members[who].running.as_ref().expect("it runs")
    }

    /// The process, for whoever ends it.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn take(&mut self, who: usize) -> Running {
        self.members[who].running.take().expect("it runs")
    }

    /// The answer of `posthaste status`.
    #[must_use]
    pub fn status(&self) -> Value {
        posthaste_json(&["status", "--store", &self.source.database().url()])
    }

    /// A running relay that owns partitions.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn an_owner(&self, random: &mut SmallRng) -> usize {
        let shares = self.shares();
        let owns = |who: &usize| {
            shares
                .iter()
                .any(|s| s.name == self.name(*who) && s.owned > 0)
        };
        let owners: Vec<usize> = (0..self.members.len()).filter(owns).collect();
        *owners.choose(random).expect("an owner")
    }

    /// Every partition is owned by a live relay, and each running relay is one; where several may
    /// deliver, each owns something.
    pub async fn is_shared_out(&self) {
        let running = self.members.iter().filter(|m| m.running.is_some()).count();
        until("all partitions to be shared out", || {
            let shares = self.shares();
            let owners = shares.iter().filter(|share| share.owned > 0).count();
            let wanted = if self.target.is_shared_out() && self.source.is_shared_out() {
                running
            } else {
                1
            };
            let owned: u64 = shares.iter().map(|share| share.owned).sum();
            (shares.len(), owners, owned) == (running, wanted, PARTITIONS)
        })
        .await;
    }

    /// No relay is shown as live.
    ///
    /// # Panics
    ///
    /// When one is.
    pub fn assert_none_is_live(&self) {
        assert_eq!(self.shares().len(), 0, "a relay is shown as live");
    }

    /// Every running relay owns its equal part.
    pub async fn is_balanced(&self) {
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
    pub async fn is_taken_over_from(&self, gone: &[usize]) {
        until("the others to own every partition", || {
            let shares = self.shares();
            let is_other = |share: &&Share| gone.iter().all(|&who| share.name != self.name(who));
            let others = shares.iter().filter(is_other);
            others.map(|share| share.owned).sum::<u64>() == PARTITIONS
        })
        .await;
    }

    /// Something new arrives.
    pub async fn delivers(&self) {
        let before = self.target.arrived();
        until("delivery", || self.target.arrived() > before).await;
    }

    /// Nothing waits any more, nowhere, and nothing is set aside. It may take long, as long as it
    /// goes on.
    ///
    /// # Panics
    ///
    /// When it stands still.
    pub async fn is_drained(&self) {
        let counts = ["pending", "parked", "dead", "blocked_keys"];
        self.goes_on_until(|status| counts.iter().all(|count| status[count] == 0))
            .await;
    }

    /// Only new events wait. It may take long, as long as it goes on.
    ///
    /// # Panics
    ///
    /// When it stands still.
    pub async fn catches_up(&self) {
        self.goes_on_until(|status| status["pending"].as_u64() < Some(BACKLOG_EVENTS))
            .await;
    }

    async fn goes_on_until(&self, so: impl Fn(&Value) -> bool) {
        let (mut since, mut arrived) = (Instant::now(), 0);
        loop {
            let status = self.status();
            if so(&status) {
                return;
            }
            let now = self.target.arrived();
            if now > arrived {
                (since, arrived) = (Instant::now(), now);
            }
            assert_none_ended();
            assert!(since.elapsed() < LIMIT, "it stands still: {status:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The shares of the live relays, as `posthaste relays` tells them.
    fn shares(&self) -> Vec<Share> {
        let answer = posthaste_json(&["relays", "--store", &self.source.database().url()]);
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
