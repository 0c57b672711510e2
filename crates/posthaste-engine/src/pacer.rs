use std::time::Duration;

use crate::Moment;

/// When to read again: adaptive polling.
///
/// At once after a page that was cut; soon when few rows come, later when many do (a poll per five
/// milliseconds beside a saturated group commit costs writers more than it gains), ever later when
/// nothing comes.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    busy: Duration,
    many: Duration,
    idle: Duration,
    empty_wait: Duration,
    next: Moment,
}

/// A poll that brings this many events is one of a busy outbox.
const MANY: usize = 100;

impl Pacer {
    /// Waits `busy` after a few events and up to `idle` when none come.
    pub(crate) fn new(busy: Duration, idle: Duration) -> Self {
        Self {
            busy,
            many: busy * 4,
            idle,
            empty_wait: busy,
            next: Moment::default(),
        }
    }

    /// A read brought `events` events and, if `caught_up`, all that there were.
    pub(crate) fn read(&mut self, events: usize, caught_up: bool, now: Moment) {
        let wait = match (caught_up, events) {
            (false, _) => Duration::ZERO,
            (true, 0) => self.empty_wait,
            (true, n) if n < MANY => self.busy,
            (true, _) => self.many,
        };
        self.empty_wait = if events == 0 && caught_up {
            (self.empty_wait * 2).min(self.idle)
        } else {
            self.busy
        };
        self.next = now.after(wait);
    }

    /// Something happened that makes an early read worth while.
    pub(crate) fn hint(&mut self, now: Moment) {
        self.empty_wait = self.busy;
        self.next = self.next.min(now.after(self.busy));
    }

    /// When the next read is due.
    pub(crate) fn next(&self) -> Moment {
        self.next
    }
}
