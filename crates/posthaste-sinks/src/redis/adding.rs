//! The scripts of a lane: one that opens it, and one that adds events to a stream.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Cmd, cmd};
use posthaste_engine::LaneSpec;
use tokio::time::{sleep, timeout};

use super::{
    connection::Client,
    entry::Entry,
    fault::{Blame, ServerFault},
    keys::{self, Keys},
    target::Target,
};

/// A stream forgets the ids of its latest events when it had none for so long: a relay that was
/// down for days repeats its window.
const IDS_KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

static ADD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("add.lua")));

/// A script, which the server may know already by its hash.
struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        let hash = ::redis::Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }

    fn command(&self, by_hash: bool) -> Cmd {
        let (name, script) = match by_hash {
            true => ("EVALSHA", &*self.hash),
            false => ("EVAL", self.text),
        };
        let mut command = cmd(name);
        command.arg(script);
        command
    }
}

/// A lane, as the server knows it. It is opened already.
#[derive(Clone)]
pub(super) struct OpenLane {
    client: Client,
    keys: Keys,
    name: String,
    wait: Option<u64>,
    maxlen: (&'static str, u64),
    known_ids: u64,
    /// How long an answer may take.
    limit: Duration,
    /// An idle connection is used after this time. Servers (`timeout`) and firewalls close idle
    /// ones, commonly after a minute at the earliest, and some firewalls without a word: the next
    /// event would wait for its answer in vain.
    idle_limit: Duration,
}

/// The server's answer for a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// For each event that was taken, whether the stream knew it.
    pub(super) known: Vec<bool>,
    /// Why those behind were not.
    pub(super) stopped: Option<ServerFault>,
}

impl OpenLane {
    /// Opens the lane on this connection. From then on nothing of older lanes is added.
    ///
    /// # Errors
    /// Why the server does not.
    pub(super) async fn open(
        client: Client,
        spec: &LaneSpec,
        target: &Target,
    ) -> Result<Self, ServerFault> {
        let mut lane = Self {
            client,
            keys: Keys::of(&spec.scope, &target.stream),
            name: keys::lane_name(spec),
            wait: target.wait,
            maxlen: target.maxlen,
            known_ids: target.known_ids,
            // A little less than the relay waits for any answer: it could not say what is missing.
            limit: spec.publish_timeout * 9 / 10,
            idle_limit: spec.publish_timeout * 3,
        };
        let mut open = cmd("EVAL");
        open.arg(include_str!("open.lua"))
            .arg(1)
            .arg(&lane.keys.lanes);
        open.arg(&lane.name)
            .arg(keys::ranges(&spec.scope.partitions));
        let refusal: String = lane.client.ask(&open).await?;
        if !refusal.is_empty() {
            return Err(ServerFault::at_own_key(&refusal, &lane.keys.lanes));
        }
        lane.wait_for_replicas().await?;
        Ok(lane)
    }

    /// Adds these to a stream.
    ///
    /// # Errors
    /// Why nobody knows whether it did, or why it did not.
    pub(super) async fn add(
        &mut self,
        stream: &str,
        entries: &[Entry],
    ) -> Result<Added, ServerFault> {
        let limit = self.limit;
        let added = timeout(limit, self.add_in_time(stream, entries)).await;
        added.map_err(|_| ServerFault::slow("adding events", limit))?
    }

    async fn add_in_time(&mut self, stream: &str, entries: &[Entry]) -> Result<Added, ServerFault> {
        let by_hash = self.command(true, stream, entries);
        let mut answer = self.client.ask(&by_hash).await;
        if let Err(fault) = &answer
            && fault.code.as_deref() == Some("NOSCRIPT")
        {
            // It did nothing. It knows the hash once it has seen the text.
            let with_text = self.command(false, stream, entries);
            answer = self.client.ask(&with_text).await;
        }
        if let Err(fault) = &answer
            && fault.blame == Blame::StreamDenied
        {
            self.try_own_keys().await?;
        }
        let (taken, stopped, at_key): (Vec<u8>, String, u8) = answer?;
        let lanes = &self.keys.lanes;
        let stopped = match (&*stopped, at_key) {
            ("", _) => None,
            ("FENCED", _) => return Err(ServerFault::fenced(lanes)),
            (words, 1) => return Err(ServerFault::at_own_key(words, lanes).of_all_streams()),
            (words, 2) => Some(ServerFault::at_own_key(words, &self.keys.ids(stream))),
            (words, _) => Some(ServerFault::of_script(words)),
        };
        if taken.len() + usize::from(stopped.is_some()) > entries.len()
            || (stopped.is_none() && taken.len() < entries.len())
        {
            return Err(ServerFault::strange("adding events"));
        }
        // Those that were taken before it are known when they come again.
        if let Some(fault) = &stopped
            && let Blame::Server(_) = fault.blame
        {
            return Err(fault.clone());
        }
        self.wait_for_replicas().await?;
        let known = taken.into_iter().map(|added| added == 0).collect();
        Ok(Added { known, stopped })
    }

    /// Uses the connection from time to time, until it is lost. Answers why.
    pub(super) async fn lost_while_idle(&mut self) -> ServerFault {
        loop {
            sleep(self.idle_limit).await;
            let answer = timeout(self.limit, self.client.ask::<()>(&cmd("PING"))).await;
            match answer {
                // The user may not ask; the connection is there.
                Ok(Err(fault)) if fault.code.is_some() => {}
                Ok(Err(fault)) => return fault,
                Ok(Ok(())) => {}
                Err(_) => return ServerFault::slow("using an idle connection", self.limit),
            }
        }
    }

    /// The server does not say which key is forbidden: where the lanes' is, no stream is at fault.
    async fn try_own_keys(&mut self) -> Result<(), ServerFault> {
        let mut nothing = cmd("EVAL");
        nothing.arg("return 1").arg(1).arg(&self.keys.lanes);
        let answer = self.client.ask::<()>(&nothing).await;
        answer.map_err(ServerFault::of_all_streams)
    }

    /// Waits until so many replicas as the address asks for have what this connection has sent.
    /// That covers what the stream knew already, since replicas take everything in its order.
    async fn wait_for_replicas(&mut self) -> Result<(), ServerFault> {
        let Some(wanted) = self.wait else {
            return Ok(());
        };
        let limit = self.limit / 2;
        let mut wait = cmd("WAIT");
        wait.arg(wanted).arg(limit.as_millis().to_string());
        match self.client.ask::<u64>(&wait).await? {
            found if found >= wanted => Ok(()),
            found => Err(ServerFault::few_replicas(found, wanted, limit)),
        }
    }

    fn command(&self, by_hash: bool, stream: &str, entries: &[Entry]) -> Cmd {
        let mut command = ADD.command(by_hash);
        let (trim, length) = self.maxlen;
        command
            .arg(3)
            .arg(&self.keys.lanes)
            .arg(self.keys.ids(stream))
            .arg(stream)
            .arg(&self.name)
            .arg(self.known_ids)
            .arg(IDS_KNOWN_FOR.as_secs())
            .arg(trim)
            .arg(length);
        for entry in entries {
            entry.write(&mut command);
        }
        command
    }
}
