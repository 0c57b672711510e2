//! Times that another clock has written.
//!
//! SQLite has no clock but the machine's, which may be set back: a lease that was given before it
//! was would then last as long as the step. Nothing is given for longer than a known length, so
//! that what seems to last longer is waited for by a clock that is never set.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::connection::until;

/// Times that lie too far ahead, as one process has seen them.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<HashMap<String, Seen>>);

#[derive(Debug)]
struct Seen {
    at: i64,
    since: Instant,
}

impl Watch {
    /// Whether the time `at`, which `what` ends at, is past: by the store's clock `now`, or because
    /// it is further ahead than `length`, the longest that it was ever given for, and has stood
    /// there for that long.
    pub(super) fn is_past(&self, what: &str, at: i64, now: i64, length: Duration) -> bool {
        let left = until(now, at);
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if left <= length {
            seen.remove(what);
            return left.is_zero();
        }
        let since = Instant::now();
        let seen = seen.entry(what.to_owned()).or_insert(Seen { at, since });
        if seen.at != at {
            *seen = Seen { at, since };
        }
        seen.since.elapsed() >= length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_too_far_ahead_is_waited_for_once() {
        let (watch, length) = (Watch::default(), Duration::from_millis(20));
        let hour = 3_600_000_000;
        assert!(!watch.is_past("a", 5, 4, length));
        assert!(watch.is_past("a", 5, 5, length));
        assert!(!watch.is_past("a", hour, 0, length));
        assert!(!watch.is_past("b", hour, 0, length));
        std::thread::sleep(length);
        assert!(watch.is_past("a", hour, 0, length));
        // It was renewed.
        assert!(!watch.is_past("b", hour + 1, 0, length));
        // The clock was set forward again meanwhile.
        assert!(!watch.is_past("a", hour, hour - 1, length));
        assert!(!watch.is_past("a", hour, 0, length));
    }
}
