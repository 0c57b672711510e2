//! Topics of which a destination that is there refuses events for now: a queue behind them is full.
//!
//! A refusal is no proof that nothing has come of the event: an exchange that routes it into two
//! queues has given it to the one that takes it, and gives it again each time that it is tried. So
//! all of the topic is held back, others go first, and then one event is tried with nothing else in
//! flight, each time another one.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use crate::{Backoff, Moment};

/// Each is tried by itself, so there are not many: the latest.
const TOPICS_MAX: usize = 100;

/// Names of what is held back together, in the order in which it is tried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throttled {
    topics: VecDeque<u64>,
    /// Turns of events that were tried since the last one was accepted, or all had been.
    tried: HashSet<u64>,
    refusals: u32,
    not_before: Moment,
}

impl Throttled {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(crate) fn holds(&self, topic: u64) -> bool {
        self.topics.contains(&topic)
    }

    /// Whether this event of a topic that is tried had its turn.
    pub(crate) fn was_tried(&self, turn: u64) -> bool {
        self.tried.contains(&turn)
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.topics.front().copied()
    }

    /// When the next one may be tried although others flow.
    pub(crate) fn not_before(&self) -> Option<Moment> {
        (!self.is_empty()).then_some(self.not_before)
    }

    /// The destination refused this event for now.
    pub(crate) fn refused(
        &mut self,
        topic: u64,
        turn: u64,
        wait: Option<Duration>,
        probe: Backoff,
        now: Moment,
        random: f64,
    ) {
        self.topics.retain(|&known| known != topic);
        if self.topics.len() == TOPICS_MAX {
            self.topics.pop_front();
        }
        self.topics.push_back(topic);
        self.tried.insert(turn);
        self.refusals = self.refusals.saturating_add(1);
        let probe = probe.delay(self.refusals, random);
        self.not_before = now.after(wait.map_or(probe, |wait| wait.max(probe)));
    }

    /// All events of a topic had their turn: each may have another one.
    pub(crate) fn begin_again(&mut self) -> bool {
        let had_turns = !self.tried.is_empty();
        self.tried.clear();
        had_turns
    }

    /// Nothing of this topic is left.
    pub(crate) fn remove(&mut self, topic: u64) {
        self.topics.retain(|&known| known != topic);
    }

    /// The destination took one: whatever was held back flows, as slowly at first as behind any
    /// probe. Answers the turns of events that were tried in vain, which may come last.
    pub(crate) fn end(&mut self) -> HashSet<u64> {
        std::mem::take(self).tried
    }

    #[cfg(feature = "model")]
    pub(crate) fn describe(&self, out: crate::model::Out<'_>) {
        let mut tried: Vec<u64> = self.tried.iter().copied().collect();
        tried.sort_unstable();
        for names in [self.topics.iter().copied().collect(), tried] {
            out(crate::model::number(names.len()));
            names
                .iter()
                .for_each(|&name| out(crate::model::Part::Number(name)));
        }
    }
}
