//! Where each key's records are going.

use std::collections::{HashMap, hash_map::Entry};

use super::topics::TopicPartition;

/// The places of the keys in flight. Records of one key that go to different places are not ordered
/// by the broker, so they are never under way together.
#[derive(Default)]
pub(super) struct KeyPartitions(HashMap<u64, (TopicPartition, usize)>);

impl KeyPartitions {
    /// Whether a record of this key would be under way to two places.
    pub(super) fn divides(&self, order_key: Option<u64>, place: TopicPartition) -> bool {
        order_key
            .and_then(|key| self.0.get(&key))
            .is_some_and(|&(known, _)| known != place)
    }

    /// A record of this key is under way to this place.
    pub(super) fn sent(&mut self, order_key: Option<u64>, place: TopicPartition) {
        if let Some(key) = order_key {
            self.0.entry(key).or_insert((place, 0)).1 += 1;
        }
    }

    /// A record of this key was answered.
    pub(super) fn answered(&mut self, order_key: Option<u64>) {
        if let Some(key) = order_key
            && let Entry::Occupied(mut entry) = self.0.entry(key)
        {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_under_way_to_one_place() {
        let mut places = KeyPartitions::default();
        let place = |partition| TopicPartition {
            topic: 0,
            partition,
        };
        places.sent(Some(1), place(0));
        places.sent(Some(1), place(0));
        places.sent(None, place(0));
        assert!(!places.divides(Some(1), place(0)));
        assert!(places.divides(Some(1), place(1)));
        assert!(!places.divides(Some(2), place(1)));
        assert!(!places.divides(None, place(1)));
        places.answered(Some(1));
        assert!(places.divides(Some(1), place(1)));
        places.answered(Some(1));
        assert!(!places.divides(Some(1), place(1)));
        places.answered(Some(1));
        places.answered(None);
    }
}
