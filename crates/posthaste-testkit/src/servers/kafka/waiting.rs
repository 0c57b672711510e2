//! Acts that a broker has confirmed, and does a moment later.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Asks until there is an answer; a try is told what is left of [`LIMIT`]. Panics with `what` and
/// the last error.
pub(super) fn answer<T, E: Display>(what: &str, ask: impl Fn(Duration) -> Result<T, E>) -> T {
    let asked = Instant::now();
    loop {
        match ask(LIMIT.saturating_sub(asked.elapsed())) {
            Ok(answer) => return answer,
            Err(_) if asked.elapsed() < LIMIT => thread::sleep(POLL),
            Err(e) => panic!("{what}: {e}"),
        }
    }
}

/// Panics with `what` when it does not come true within [`LIMIT`].
pub(super) fn until(what: &str, condition: impl Fn() -> bool) {
    answer(&format!("waited {LIMIT:?} until {what}"), |_| {
        condition().then_some(()).ok_or("not yet")
    });
}
