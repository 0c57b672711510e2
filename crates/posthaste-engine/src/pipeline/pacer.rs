use std::time::Duration;

use crate::Moment;

/// When to read again: adaptive polling.
///
/// At once after a page that was cut; soon when few rows come, later the more do (beside a
/// saturated group commit, many polls cost writers more than they gain), ever later when nothing
/// comes.
#[derive(Debug, Clone)]
pub(super) struct Pacer {
    busy: Duration,
    idle: Duration,
    empty_wait: Duration,
    next: Moment,
    /// Whether the last read brought nothing.
    idle_now: bool,
    /// A hint came while a read was under way, which may have been too early for it.
    hinted: bool,
    /// When a hint may bring about a read again: hints without end bring no more reads
    /// than a busy outbox has.
    hint_at: Moment,
}

/// From this many events on, the wait is so many times as long as after fewer, so that polls stay a
/// small part of a busy database's work.
const SOME: (usize, u32) = (10, 3);
const MANY: (usize, u32) = (100, 10);

impl Pacer {
    /// Waits `busy` after a few events and up to `idle` when none come.
    pub(super) fn new(busy: Duration, idle: Duration) -> Self {
        Self {
            busy,
            idle,
            empty_wait: busy,
            next: Moment::default(),
            idle_now: false,
            hinted: false,
            hint_at: Moment::default(),
        }
    }

    /// A read brought `events` events and, if `caught_up`, all that there were.
    pub(super) fn read(&mut self, events: usize, caught_up: bool, now: Moment) {
        let wait = match (caught_up, events) {
            (false, _) => Duration::ZERO,
            (true, 0) => self.empty_wait,
            (true, n) if n < SOME.0 => self.busy,
            (true, n) if n < MANY.0 => self.busy * SOME.1,
            (true, _) => self.busy * MANY.1,
        };
        self.empty_wait = if events == 0 && caught_up {
            (self.empty_wait * 2).min(self.idle)
        } else {
            self.busy
        };
        self.next = now.after(wait);
        self.idle_now = events == 0 && caught_up;
        if std::mem::take(&mut self.hinted) {
            self.hint(now, false);
        }
    }

    /// There may be something to read; `reading`: a read is under way. An idle outbox is read at
    /// once, any other will be soon enough.
    pub(super) fn hint(&mut self, now: Moment, reading: bool) {
        if reading {
            self.hinted = true;
        } else if self.idle_now {
            self.next = self.next.min(now.max(self.hint_at));
            self.hint_at = self.next.after(self.busy * SOME.1);
            // A hint that was not for us is followed by a few reads, not by many.
            self.empty_wait = self.empty_wait.min(self.busy * MANY.1);
        }
    }

    /// Something happened that makes an early read worth while.
    pub(super) fn hurry(&mut self, now: Moment) {
        self.empty_wait = self.busy;
        self.next = self.next.min(now.after(self.busy));
    }

    /// When the next read is due.
    pub(super) fn next(&self) -> Moment {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Duration = Duration::from_millis(2);
    const IDLE: Duration = Duration::from_millis(700);

    /// A pacer that has read nothing until it waits for the longest, and when that was.
    fn idle() -> (Pacer, Moment) {
        let mut pacer = Pacer::new(BUSY, IDLE);
        let mut now = Moment::default();
        while pacer.empty_wait < IDLE {
            pacer.read(0, true, now);
            now = pacer.next();
        }
        pacer.read(0, true, now);
        assert_eq!(now.until(pacer.next()), IDLE);
        (pacer, now)
    }

    #[test]
    fn a_hint_makes_an_idle_reader_read_at_once() {
        let (mut pacer, now) = idle();
        pacer.hint(now, false);
        assert_eq!(pacer.next(), now);
    }

    #[test]
    fn a_hint_that_comes_while_a_read_is_under_way_is_not_lost() {
        let (mut pacer, now) = idle();
        pacer.hint(now, true);
        pacer.read(0, true, now);
        assert_eq!(pacer.next(), now);
        // Once.
        pacer.read(0, true, now);
        assert!(pacer.next() > now);
    }

    #[test]
    fn hints_without_end_make_no_more_reads_than_a_busy_outbox() {
        let (mut pacer, start) = idle();
        let mut now = start;
        for _ in 0..10 {
            pacer.hint(now, false);
            pacer.hint(now, true);
            now = pacer.next();
            pacer.read(0, true, now);
        }
        assert!(
            start.until(now) >= BUSY * SOME.1 * 9,
            "{:?}",
            start.until(now)
        );
    }

    #[test]
    fn the_more_events_come_the_later_is_the_next_read() {
        let mut pacer = Pacer::new(BUSY, IDLE);
        let now = Moment::default();
        let waits = [1, 9, 10, 99, 100, 10_000].map(|events| {
            pacer.read(events, true, now);
            now.until(pacer.next()).as_millis()
        });
        assert_eq!(waits, [2, 2, 6, 6, 20, 20]);
        // There is more: at once.
        pacer.read(1, false, now);
        assert_eq!(pacer.next(), now);
    }

    #[test]
    fn a_busy_reader_takes_no_notice_of_hints() {
        let mut pacer = Pacer::new(BUSY, IDLE);
        let now = Moment::default();
        pacer.read(MANY.0, true, now);
        let next = pacer.next();
        pacer.hint(now, false);
        assert_eq!(pacer.next(), next);
    }
}
