//! The sink's own keys, and what they say of lanes.

use posthaste_engine::{LaneScope, LaneSpec, Partitions};
use uuid::Uuid;

use super::stream_name::{OURS, StreamPattern};

/// Partitions are told by ranges of cells, since their numbers change their meaning when a
/// destination is cut anew. No partition is smaller than a cell.
const CELLS: u32 = Partitions::COUNT_MAX as u32;

/// Keys that belong to a destination of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    /// The hash of the lanes that may add.
    pub(super) lanes: String,
}

impl Keys {
    /// Those of a lane's destination, in the slot of the pattern's streams if they have one.
    pub(super) fn of(scope: &LaneScope, pattern: &StreamPattern) -> Self {
        let LaneScope {
            store_id,
            destination_id,
            ..
        } = scope;
        Self::named(&format!("{store_id}:{destination_id}"), pattern)
    }

    /// Those under this name.
    pub(super) fn named(name: &str, pattern: &StreamPattern) -> Self {
        let lanes = match pattern.hash_tag() {
            Some(tag) => format!("{OURS}{{{tag}}}:{name}"),
            None => format!("{OURS}{name}"),
        };
        Self { lanes }
    }

    /// The sorted set of the ids that a stream knows.
    pub(super) fn ids(&self, stream: &str) -> String {
        format!("{}:ids:{stream}", self.lanes)
    }
}

/// The name of a lane, which no other has.
pub(super) fn lane_name(spec: &LaneSpec) -> String {
    let (epoch, number) = spec.token();
    format!("{epoch}.{number}.{}", Uuid::new_v4())
}

/// The cells of these partitions: `0-63,128-191`.
pub(super) fn ranges(partitions: &Partitions) -> String {
    let cells = CELLS / u32::from(partitions.count());
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for partition in partitions.iter().map(u32::from) {
        let (first, last) = (partition * cells, (partition + 1) * cells - 1);
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => ranges.push((first, last)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| format!("{first}-{last}"));
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: u16, of: &[u16]) -> Partitions {
        let mut partitions = Partitions::none_of(count).unwrap();
        assert!(of.iter().all(|&partition| partitions.insert(partition)));
        partitions
    }

    #[test]
    fn partitions_are_ranges_of_cells() {
        for (partitions, expected) in [
            (some(1, &[0]), "0-4095"),
            (some(64, &[0, 1, 3, 63]), "0-127,192-255,4032-4095"),
            (some(4096, &[0, 2, 3]), "0-0,2-3"),
            (some(64, &[]), ""),
        ] {
            assert_eq!(ranges(&partitions), expected);
        }
    }

    #[test]
    fn keys_are_in_the_slot_of_their_streams() {
        for (pattern, lanes) in [
            ("{topic}", "posthaste:s:1"),
            ("orders", "posthaste:{orders}:s:1"),
            ("{{outbox}}:{topic}", "posthaste:{outbox}:s:1"),
        ] {
            let keys = Keys::named("s:1", &StreamPattern::new(pattern).unwrap());
            assert_eq!(keys.lanes, lanes);
            assert_eq!(keys.ids("a"), format!("{lanes}:ids:a"));
        }
    }
}
