//! Events that were in a batch which the broker refused without saying whose fault it was. They are
//! sent alone, on later lanes too, until they are accepted: the one at fault is tried again after
//! it was rejected, and must not end a lane each time.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::batch_limits::BatchLimits;

/// More than all lanes of a relay have in flight to one destination; beyond it the oldest are
/// forgotten, and found again when their batch is refused.
const EVENTS_MAX: usize = 50_000;
const TOPICS_MAX: usize = 10_000;

/// How long a topic that the broker denied us is denied without asking.
const DENIED_FOR: Duration = Duration::from_secs(1);

/// Shared by the lanes of a sink.
#[derive(Default)]
pub(super) struct Refusals {
    known: Mutex<KnownRefusals>,
}

#[derive(Default)]
struct KnownRefusals {
    events: HashSet<u128>,
    by_age: VecDeque<u128>,
    /// When the broker denied us the topic.
    denied: HashMap<Box<str>, Instant>,
    limits: BatchLimits,
}

/// How a record may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendMode {
    /// With others, in batches of so many bytes at the most.
    WithOthers(usize),
    /// With nothing else in flight.
    Alone,
    /// Not at all, for the moment: its topic is denied.
    Denied,
}

impl Refusals {
    fn known(&self) -> MutexGuard<'_, KnownRefusals> {
        // Nothing panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is known, so that no record need be asked for.
    pub(super) fn is_empty(&self) -> bool {
        let known = self.known();
        known.events.is_empty() && known.denied.is_empty() && known.limits.is_empty()
    }

    pub(super) fn mode(&self, event: u128, topic: &str, now: Instant) -> SendMode {
        let known = &mut *self.known();
        match known.denied.get(topic) {
            Some(&at) if now.duration_since(at) < DENIED_FOR => SendMode::Denied,
            Some(_) => SendMode::Alone,
            None if known.events.contains(&event) => SendMode::Alone,
            None => SendMode::WithOthers(known.limits.bytes(topic, now)),
        }
    }

    pub(super) fn add_event(&self, event: u128) {
        let known = &mut *self.known();
        if known.events.insert(event) {
            known.by_age.push_back(event);
        }
        if known.by_age.len() > EVENTS_MAX
            && let Some(oldest) = known.by_age.pop_front()
        {
            known.events.remove(&oldest);
        }
    }

    pub(super) fn deny_topic(&self, topic: &str, now: Instant) {
        let denied = &mut self.known().denied;
        if denied.len() >= TOPICS_MAX {
            denied.clear();
        }
        denied.insert(topic.into(), now);
    }

    /// The event was accepted alone.
    pub(super) fn accepted_alone(&self, event: u128, topic: &str) {
        let known = &mut *self.known();
        if known.events.remove(&event) {
            known.by_age.retain(|&known| known != event);
        }
        known.denied.remove(topic);
    }

    /// Makes the topic's batches smaller than one of so many bytes that was refused as too large.
    /// Answers false when they are as small as they get.
    pub(super) fn shrink(&self, topic: &str, refused: usize, now: Instant) -> bool {
        self.known().limits.shrink(topic, refused, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::kafka::batch_limits::BATCH_BYTES_MAX;

    const FULL: SendMode = SendMode::WithOthers(BATCH_BYTES_MAX);

    #[test]
    fn a_refused_event_goes_alone_until_it_is_accepted() {
        let refusals = Refusals::default();
        let now = Instant::now();
        assert!(refusals.is_empty());
        refusals.add_event(1);
        refusals.add_event(1);
        assert!(!refusals.is_empty());
        assert_eq!(refusals.mode(1, "t", now), SendMode::Alone);
        assert_eq!(refusals.mode(2, "t", now), FULL);
        refusals.accepted_alone(1, "t");
        assert_eq!(refusals.mode(1, "t", now), FULL);
        assert!(refusals.is_empty());
    }

    #[test]
    fn a_denied_topic_is_tried_alone_after_a_moment() {
        let refusals = Refusals::default();
        let now = Instant::now();
        refusals.deny_topic("t", now);
        assert_eq!(refusals.mode(1, "t", now), SendMode::Denied);
        assert_eq!(refusals.mode(1, "other", now), FULL);
        let later = now + DENIED_FOR;
        assert_eq!(refusals.mode(1, "t", later), SendMode::Alone);
        refusals.accepted_alone(1, "t");
        assert!(refusals.is_empty());
    }

    #[test]
    fn the_oldest_events_are_forgotten() {
        let refusals = Refusals::default();
        for event in 0..=EVENTS_MAX as u128 {
            refusals.add_event(event);
        }
        let now = Instant::now();
        assert_eq!(refusals.mode(0, "t", now), FULL);
        assert_eq!(refusals.mode(1, "t", now), SendMode::Alone);
    }
}
