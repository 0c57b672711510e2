//! How large the batches of a topic may be, where a broker refused large ones.
//!
//! The client knows one size for all topics. A topic that takes less is given no more at a time,
//! for each of its partitions, than fits into a batch of its own size.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The default of Kafka's brokers, `message.max.bytes`, less a batch's own head.
pub(super) const BATCH_BYTES_MAX: usize = 1_000_000;
/// Below this, a smaller batch no longer tells much.
const BATCH_BYTES_MIN: usize = 16 << 10;
/// When twice as much is tried after a refusal, which costs the destination a pause if the topic
/// still takes no more.
const GROW_AFTER: Duration = Duration::from_secs(10 * 60);
/// The longest wait: each further refusal doubles it.
const GROW_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const TOPICS_MAX: usize = 10_000;

/// The topics that do not take the largest batches.
#[derive(Default)]
pub(super) struct BatchLimits(HashMap<Box<str>, Limit>);

struct Limit {
    bytes: usize,
    grow_at: Instant,
    grow_after: Duration,
}

impl BatchLimits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How large a batch of the topic may be now.
    pub(super) fn bytes(&mut self, topic: &str, now: Instant) -> usize {
        let Some(limit) = self.0.get_mut(topic) else {
            return BATCH_BYTES_MAX;
        };
        if now >= limit.grow_at {
            limit.bytes *= 2;
            limit.grow_at = now + limit.grow_after;
        }
        let bytes = limit.bytes.min(BATCH_BYTES_MAX);
        if bytes == BATCH_BYTES_MAX {
            self.0.remove(topic);
        }
        bytes
    }

    /// Makes the topic's batches smaller than one of so many bytes that was refused as too large.
    /// Answers false when they are as small as they get.
    pub(super) fn shrink(&mut self, topic: &str, refused: usize, now: Instant) -> bool {
        let before = self.bytes(topic, now);
        let bytes = (before.min(refused) / 4).max(BATCH_BYTES_MIN);
        if bytes >= before {
            return false;
        }
        let known = self.0.get(topic).map(|known| known.grow_after * 2);
        let grow_after = known.map_or(GROW_AFTER, |twice| twice.min(GROW_AFTER_MAX));
        if self.0.len() >= TOPICS_MAX {
            self.0.clear();
        }
        let grow_at = now + grow_after;
        let limit = Limit {
            bytes,
            grow_at,
            grow_after,
        };
        self.0.insert(topic.into(), limit);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_one_topic_shrink_to_a_floor() {
        let mut limits = BatchLimits::default();
        let now = Instant::now();
        for (refused, left) in [
            (BATCH_BYTES_MAX, 250_000),
            (100_000, 25_000),
            (20_000, BATCH_BYTES_MIN),
        ] {
            assert!(limits.shrink("t", refused, now));
            assert_eq!(limits.bytes("t", now), left);
        }
        assert!(!limits.shrink("t", 10_000, now));
        assert_eq!(limits.bytes("other", now), BATCH_BYTES_MAX);
    }

    #[test]
    fn batches_grow_back_and_ever_more_slowly_where_that_is_refused() {
        let mut limits = BatchLimits::default();
        let mut now = Instant::now();
        limits.shrink("t", BATCH_BYTES_MAX, now);
        assert_eq!(limits.bytes("t", now), 250_000);
        now += GROW_AFTER;
        assert_eq!(limits.bytes("t", now), 500_000);
        assert_eq!(limits.bytes("t", now), 500_000);
        assert!(limits.shrink("t", 500_000, now));
        now += GROW_AFTER;
        assert_eq!(limits.bytes("t", now), 125_000);
        now += GROW_AFTER;
        assert_eq!(limits.bytes("t", now), 250_000);
        for expected in [500_000, BATCH_BYTES_MAX, BATCH_BYTES_MAX] {
            now += 2 * GROW_AFTER;
            assert_eq!(limits.bytes("t", now), expected);
        }
        assert!(limits.is_empty());
    }
}
