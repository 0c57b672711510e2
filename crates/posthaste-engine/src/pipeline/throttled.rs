//! Topics of which a destination that is there refuses events for now: a queue behind them is full.
//!
//! A refusal is no proof that nothing has come of the event: an exchange that routes it into two
//! queues has given it to the one that takes it, and gives it again each time that it is tried. So
//! all of the topic is held back, others go first, and then one event is tried with nothing else in
//! flight, each time another one.

use std::{collections::VecDeque, time::Duration};

use crate::{Backoff, Moment};

/// Each is tried by itself, so there are not many: the latest.
const TOPICS_MAX: usize = 100;

/// A topic by its hash; where events of a key may follow each other at once, a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topic(pub(super) u64);

/// The topics that are held back, in the order in which they are tried.
#[derive(Debug, Clone, Default)]
pub(super) struct Throttled {
    topics: VecDeque<Topic>,
    refusals: u32,
    not_before: Moment,
}

impl Throttled {
    pub(super) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(super) fn holds(&self, topic: Topic) -> bool {
        self.topics.contains(&topic)
    }

    pub(super) fn first(&self) -> Option<Topic> {
        self.topics.front().copied()
    }

    /// When the next one may be tried although others flow.
    pub(super) fn not_before(&self) -> Option<Moment> {
        (!self.is_empty()).then_some(self.not_before)
    }

    /// The destination refused an event of this topic for now.
    pub(super) fn refused(
        &mut self,
        topic: Topic,
        wait: Option<Duration>,
        probe: Backoff,
        now: Moment,
        random: f64,
    ) {
        self.remove(topic);
        if self.topics.len() == TOPICS_MAX {
            self.topics.pop_front();
        }
        self.topics.push_back(topic);
        self.refusals = self.refusals.saturating_add(1);
        let probe = probe.delay(self.refusals, random);
        self.not_before = now.after(wait.map_or(probe, |wait| wait.max(probe)));
    }

    /// Nothing of this topic is left.
    pub(super) fn remove(&mut self, topic: Topic) {
        self.topics.retain(|&known| known != topic);
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        let Self {
            topics,
            // Only the length of a wait hangs on it, and no time passes.
            refusals: _,
            // Every moment is the first one.
            not_before: _,
        } = self;
        out(crate::model::number(topics.len()));
        for topic in topics {
            out(crate::model::Part::Number(topic.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_refused_again_is_tried_behind_the_others() {
        let mut throttled = Throttled::default();
        let probe = Backoff {
            first: Duration::from_secs(1),
            max: Duration::from_secs(4),
            jitter: 0.0,
        };
        let now = Moment::default();
        for topic in [1, 2, 1] {
            throttled.refused(Topic(topic), None, probe, now, 0.5);
        }
        assert_eq!(throttled.first(), Some(Topic(2)));
        assert_eq!(
            throttled.not_before(),
            Some(now.after(Duration::from_secs(4)))
        );
        for topic in 3..200 {
            throttled.refused(Topic(topic), None, probe, now, 0.5);
        }
        assert_eq!(throttled.topics.len(), TOPICS_MAX);
        assert!(!throttled.holds(Topic(2)) && throttled.holds(Topic(199)));
    }
}
