//! What a broker has answered, and does a moment later.

use std::thread;
use std::time::{Duration, Instant};

pub(super) const LIMIT: Duration = Duration::from_secs(60);
pub(super) const POLL: Duration = Duration::from_millis(2);

/// Panics with `what` when it does not come true within [`LIMIT`].
pub(super) fn until(what: &str, condition: impl Fn() -> bool) {
    let asked = Instant::now();
    while !condition() {
        assert!(asked.elapsed() < LIMIT, "waited {LIMIT:?} until {what}");
        thread::sleep(POLL);
    }
}
