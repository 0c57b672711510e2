//! Faults of a run, and how they end after a while.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;

use super::World;
use crate::{
    broker::Kind,
    faults::Injection,
    process::{Process, is_shared},
    seed::Emphasis,
    seen::{DestinationIndex, Seen},
};

/// A fault that is to end.
pub(super) enum Undo {
    Thaw(String),
    Database(String),
    Broker(String),
    Outage(DestinationIndex),
    Full(DestinationIndex),
    Away,
    Pause(DestinationIndex),
}

/// How long a queue is full once its broker had trouble: for longer than its events may stay in a
/// relay's memory.
const FULL_FOR: Duration = Duration::from_secs(90);

/// Relays come, are killed, stopped or cut from the database; mostly nothing happens, and all
/// others are well.
const FOR_ZOMBIES: [u64; 16] = [0, 0, 9, 12, 14, 14, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39];

/// Relays come, end, are killed, stopped or cut from the database or the broker, and their clocks
/// are set.
const FOR_SHARING: [u64; 16] = [0, 0, 0, 7, 9, 12, 14, 14, 16, 16, 18, 39, 39, 39, 39, 39];

impl World {
    /// Something happens to somebody.
    pub(super) async fn trouble(&mut self) {
        let at = self.trace.roll(self.processes.len() as u64);
        let at = usize::try_from(at).unwrap_or_default();
        let any = !self.processes.is_empty();
        let what = match self.plan.emphasis {
            Emphasis::Zombies => self.one_of(&FOR_ZOMBIES),
            Emphasis::Sharing => self.one_of(&FOR_SHARING),
            Emphasis::Retention if !self.trace.one_in(8) => 39,
            _ => self.trace.roll(40),
        };
        match what {
            0..=6 if self.processes.len() < 4 => self.start(),
            7 | 8 if any => self.plan_a_stop(at),
            9..=11 if any => {
                self.trace.inject(Injection::RelayKilled);
                self.processes.swap_remove(at).kill(&self.trace);
            }
            12 | 13 if any => {
                self.trace.inject(Injection::RelayStopped);
                self.processes[at].freeze();
                self.later(12_000, Undo::Thaw(self.processes[at].name.clone()));
            }
            14 | 15 if any => {
                self.trace.inject(Injection::CutFromDatabase);
                self.processes[at].cut_from_database(true);
                self.later(9_000, Undo::Database(self.processes[at].name.clone()));
            }
            16 | 17 if any => {
                self.trace.inject(Injection::CutFromBroker);
                self.processes[at].cut_from_broker(true);
                self.later(9_000, Undo::Broker(self.processes[at].name.clone()));
            }
            18..=20 if any && self.plan.steps => {
                self.trace.inject(Injection::RelayClockStep);
                self.trace.see(&Seen::RepeatsMayShuffle);
                let set = self.trace.millis(0, 2_000_000).as_millis();
                self.processes[at].set_clock(-i64::try_from(set).unwrap_or_default());
            }
            21..=23 => self.trouble_the_broker(),
            24..=29 => self.trouble_the_database(),
            30..=33 => self.operate().await,
            34 | 35 => self.repartition(),
            _ => self.ask_for_the_status().await,
        }
    }

    fn one_of(&self, all: &[u64]) -> u64 {
        let at = usize::try_from(self.trace.roll(all.len() as u64));
        all[at.unwrap_or_default()]
    }

    fn plan_a_stop(&mut self, at: usize) {
        self.trace.inject(Injection::PlannedStop);
        let mut process = self.processes.swap_remove(at);
        self.trace
            .note(format_args!("{} is asked to end", process.name));
        process.ask_to_stop();
        self.stopping.push(process);
    }

    pub(super) fn any_place(&self) -> DestinationIndex {
        let place = self.trace.roll(self.brokers.len() as u64);
        usize::try_from(place).unwrap_or_default()
    }

    fn trouble_the_broker(&mut self) {
        let place = self.any_place();
        if self.trace.one_in(2) {
            self.trace.inject(Injection::BrokerCrash);
            self.brokers[place].crash();
        } else {
            self.trace.inject(Injection::BrokerOutage);
            self.brokers[place].set_away(true);
            self.later(8_000, Undo::Outage(place));
        }
        if matches!(
            self.brokers[place].kind,
            Kind::RabbitMq | Kind::KafkaIdempotent
        ) {
            self.brokers[place].set_full(true);
            let until = Instant::now() + FULL_FOR;
            self.undo.push((until, Undo::Full(place)));
        }
    }

    fn trouble_the_database(&mut self) {
        match self.trace.roll(14) {
            0..=2 => {
                self.trace.inject(Injection::DatabaseAway);
                self.database_away.store(true, Relaxed);
                self.database.set_up(false);
                self.later(6_000, Undo::Away);
            }
            3..=7 => self.fail_over(),
            // Settle times by that clock are as long as it pleases.
            8 | 9 if self.plan.emphasis == Emphasis::Zombies => {}
            8 | 9 => {
                let seconds = self.trace.roll(40);
                let seconds = i64::try_from(seconds).unwrap_or_default() - 20;
                if self.database.step_clock(seconds) {
                    self.trace.see(&Seen::RepeatsMayShuffle);
                    self.trace.inject(Injection::DatabaseClockStep);
                }
            }
            10 | 11 => {
                if self.database.cut_connections() {
                    self.trace.inject(Injection::ConnectionsEnded);
                }
            }
            _ => {
                self.trace.inject(Injection::DatabaseCrash);
                let lost = self.database.crash();
                self.died(&lost, false);
            }
        }
    }

    fn fail_over(&self) {
        // A receiver that compares epochs needs a database that does not forget them.
        let lags = !self.plan.kinds.contains(&Kind::Token) && self.trace.one_in(2);
        let Some(lost) = self.database.fail_over(!lags) else {
            return;
        };
        self.trace.inject(match lags {
            true => Injection::LaggingFailOver,
            false => Injection::FailOver,
        });
        self.died(&lost, lags);
    }

    pub(super) fn come_back(&self) {
        self.database_away.store(false, Relaxed);
        self.database.set_up(true);
    }

    fn died(&self, lost: &[uuid::Uuid], forgets: bool) {
        self.observer.life.fetch_add(1, Relaxed);
        self.trace.see(&Seen::DatabaseDied { forgets });
        self.late.note_again();
        for id in lost {
            self.trace.see(&Seen::LostByTheServer { id: *id });
        }
        if forgets {
            self.note_again_what_was_gone();
        }
    }

    fn repartition(&self) {
        let partitions = 1 << (3 + self.trace.roll(5));
        if is_shared(&self.plan.kinds) && self.database.repartition(partitions) {
            self.trace.inject(Injection::Repartition);
        }
    }

    pub(super) fn later(&mut self, at_most_ms: u64, undo: Undo) {
        let wait = self.trace.millis(100, at_most_ms);
        self.undo.push((Instant::now() + wait, undo));
    }

    pub(super) async fn undo_due(&mut self) {
        let now = Instant::now();
        let (due, rest) = std::mem::take(&mut self.undo)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.undo = rest;
        let due: Vec<(Instant, Undo)> = due;
        for (_, undo) in due {
            let find = |name: &str| self.processes.iter().find(|process| process.name == name);
            match undo {
                Undo::Thaw(name) => find(&name).into_iter().for_each(Process::thaw),
                Undo::Database(name) => {
                    find(&name)
                        .into_iter()
                        .for_each(|p| p.cut_from_database(false));
                }
                Undo::Broker(name) => {
                    find(&name)
                        .into_iter()
                        .for_each(|p| p.cut_from_broker(false));
                }
                Undo::Outage(place) => self.brokers[place].set_away(false),
                Undo::Full(place) => self.brokers[place].set_full(false),
                Undo::Away => self.come_back(),
                Undo::Pause(place) => {
                    self.set_paused(place, false).await;
                    self.set_topic_paused(place, false).await;
                }
            }
        }
    }
}
