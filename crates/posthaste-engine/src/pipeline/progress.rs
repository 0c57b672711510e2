//! How far the store is: what was read and is not behind the stored cursor, and the change under
//! way.

use std::ops::Range;

use super::{
    change::Change,
    limits::PipelineLimits,
    ticket::Ticket,
    window::{Passed, Window},
};
use crate::{DueAt, Moment};

/// The change under way, as its answer will need it.
#[derive(Debug, Clone)]
pub(super) enum UnderWay {
    /// Tickets, and whether the key goes on without the event.
    Park(Vec<(Ticket, bool)>),
    /// The ticket of the attempt; none where the copy was not sent.
    Settle(Option<Ticket>),
    Report,
    Advance {
        events: usize,
        bytes: usize,
    },
    Due,
    /// Behind this copy.
    PutOff(Option<DueAt>),
}

/// At most one change is under way; the cursor moves in the order of reading.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// Events and bytes read and not behind the stored cursor.
    unstored: (usize, usize),
    /// Done, and to be stored by the next advance.
    passed: Option<Passed>,
    change: Option<UnderWay>,
    advanced_at: Moment,
    /// Events behind the stored cursor.
    stored: u64,
    /// Lane's names of events that went behind the stored cursor since the lane was last told.
    behind_the_store: Vec<Range<u64>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            unstored: (0, 0),
            passed: None,
            change: None,
            advanced_at: Moment::default(),
            stored: 0,
            behind_the_store: Vec::new(),
        }
    }

    /// How many events may be read; none: too few. A read that could bring only a few events waits
    /// for room: small pages cost more than they gain.
    pub(super) fn room(&self, limits: &PipelineLimits) -> Option<usize> {
        let events = limits.window_events.saturating_sub(self.unstored.0);
        let bytes = limits.window_bytes.saturating_sub(self.unstored.1);
        let room = events >= limits.batch_events.min(limits.window_events / 2)
            && (bytes >= limits.batch_bytes.min(limits.window_bytes / 2) || self.unstored.0 == 0);
        room.then_some(events)
    }

    /// Events were read.
    pub(super) fn read(&mut self, (events, bytes): (usize, usize)) {
        self.unstored.0 += events;
        self.unstored.1 += bytes;
    }

    /// Events and bytes that were read and are not behind the stored cursor.
    pub(super) fn unstored(&self) -> (usize, usize) {
        self.unstored
    }

    pub(super) fn is_all_stored(&self) -> bool {
        self.unstored.0 == 0
    }

    /// Events behind the stored cursor, since the claim.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    pub(super) fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    pub(super) fn begin(&mut self, change: UnderWay) {
        debug_assert!(self.change.is_none(), "one change at a time");
        self.change = Some(change);
    }

    /// The change under way was made.
    pub(super) fn take_change(&mut self) -> Option<UnderWay> {
        self.change.take()
    }

    /// The next advance, where one is due. `hurry`: what is done is to be stored at once.
    pub(super) fn next_advance(
        &mut self,
        main: &mut Window,
        limits: &PipelineLimits,
        hurry: bool,
        now: Moment,
    ) -> Option<Change> {
        let done = main.done_prefix();
        let half_full = 2 * done >= limits.window_events
            || (done > 0 && 2 * self.unstored.1 >= limits.window_bytes);
        let time = now >= self.advanced_at.after(limits.advance_every);
        if !(half_full || time || hurry) {
            return None;
        }
        if let Some(newer) = main.take_passed() {
            self.passed = Some(match self.passed.take() {
                None => newer,
                Some(older) => older.and(newer),
            });
        }
        let passed = self.passed.take_if(|passed| passed.wanted)?;
        self.begin(UnderWay::Advance {
            events: passed.events,
            bytes: passed.bytes,
        });
        self.advanced_at = now;
        Some(Change::Advance {
            up_to: passed.up_to,
            finished: passed.finished,
        })
    }

    /// When something that is done is to be stored by itself.
    pub(super) fn next_advance_at(
        &self,
        main: &mut Window,
        limits: &PipelineLimits,
    ) -> Option<Moment> {
        (main.done_prefix() > 0 || self.passed.is_some())
            .then(|| self.advanced_at.after(limits.advance_every))
    }

    /// The cursor was advanced past so many.
    pub(super) fn advanced(&mut self, events: usize, bytes: usize) {
        self.stored += events as u64;
        self.unstored.0 = self.unstored.0.saturating_sub(events);
        self.unstored.1 = self.unstored.1.saturating_sub(bytes);
    }

    /// Whether nothing that was taken out of the window waits for its advance.
    pub(super) fn owes_no_advance(&self) -> bool {
        self.passed.as_ref().is_none_or(|passed| !passed.wanted)
    }

    /// These events will not be submitted again.
    pub(super) fn behind_the_store(&mut self, names: Range<u64>) {
        self.behind_the_store.push(names);
    }

    pub(super) fn take_behind_the_store(&mut self) -> std::vec::Drain<'_, Range<u64>> {
        self.behind_the_store.drain(..)
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            unstored,
            passed,
            change,
            // Every moment is the first one.
            advanced_at: _,
            // Only a drained relay is asked, and a lane that is told.
            stored: _,
            behind_the_store: _,
        } = self;
        out(number(unstored.0));
        out(number(unstored.1));
        match change {
            None => out(Part::Number(0)),
            Some(UnderWay::Advance { events, bytes }) => {
                out(Part::Number(1));
                out(number(*events));
                out(number(*bytes));
            }
            Some(other) => out(Part::Text(&format!("{other:?}"))),
        }
        out(Part::Number(passed.is_some().into()));
        if let Some(passed) = passed {
            passed.describe(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> PipelineLimits {
        PipelineLimits {
            window_events: 100,
            window_bytes: 1_000,
            batch_events: 10,
            batch_bytes: 100,
            retry: crate::Backoff::default(),
            probe: crate::Backoff::default(),
            blocked_keys_max: 1,
            blocked_keys_kept: 1,
            rejections_max: 1,
            advance_every: Duration::from_secs(1),
            settle: Duration::ZERO,
            poll_busy: Duration::ZERO,
            poll_idle: Duration::ZERO,
            due_every: Duration::ZERO,
        }
    }

    #[test]
    fn a_read_waits_until_there_is_room_for_a_page() {
        let (mut progress, limits) = (Progress::new(), limits());
        assert_eq!(progress.room(&limits), Some(100));
        progress.read((90, 0));
        assert_eq!(progress.room(&limits), Some(10));
        progress.read((1, 0));
        assert_eq!(progress.room(&limits), None);
        progress.advanced(91, 0);
        assert!(progress.is_all_stored());
        // A single event may be larger than the window.
        progress.read((0, 5_000));
        assert_eq!(progress.room(&limits), Some(100));
        progress.read((1, 0));
        assert_eq!(progress.room(&limits), None);
    }
}
