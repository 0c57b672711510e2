//! The destinations of a sequence.

use posthaste_engine::OrderBy;

pub(super) const DESTINATIONS: [&str; 2] = ["default", "second"];

pub(super) fn destination(number: u8) -> &'static str {
    DESTINATIONS[usize::from(number) % DESTINATIONS.len()]
}

/// The second one keeps the order of a key and a topic.
pub(super) fn order_by(destination: &str) -> OrderBy {
    match destination == DESTINATIONS[0] {
        true => OrderBy::Key,
        false => OrderBy::KeyAndTopic,
    }
}
