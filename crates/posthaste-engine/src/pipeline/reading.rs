//! Reading of the main group: when it reads, and where what it has read ends.

use std::{collections::HashSet, time::Duration};

use super::pacer::Pacer;
use crate::{Cursor, EventRef, Moment, Page, StoredEvent};

/// At most one read is under way.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pacer: Pacer,
    is_under_way: bool,
    /// The last read brought all that there was.
    caught_up: bool,
    /// The newest place that was read up to and at which keys can join.
    joinable: Option<Cursor>,
    /// The last read ended there.
    is_joinable: bool,
    /// How many events had been read when all that was visible at the claim was.
    drain_target: Option<u64>,
    /// Events with a parked copy of an earlier claim, which may be read again: the copy stands for
    /// them.
    copied: HashSet<EventRef>,
}

impl Reading {
    /// Waits `busy` after a few events and up to `idle` when none come.
    pub(super) fn new(busy: Duration, idle: Duration) -> Self {
        Self {
            pacer: Pacer::new(busy, idle),
            is_under_way: false,
            caught_up: false,
            joinable: None,
            is_joinable: false,
            drain_target: None,
            copied: HashSet::new(),
        }
    }

    /// Copies of these stand for them.
    pub(super) fn pass_over(&mut self, copied: impl IntoIterator<Item = EventRef>) {
        self.copied.extend(copied);
    }

    /// Whether a copy stands for this event. It is asked once.
    pub(super) fn take_copied(&mut self, event: &StoredEvent) -> bool {
        !self.copied.is_empty() && self.copied.remove(&event.reference())
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        !self.is_under_way && self.pacer.next() <= now
    }

    pub(super) fn next(&self) -> Moment {
        self.pacer.next()
    }

    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// There may be something to read.
    pub(super) fn hint(&mut self, now: Moment) {
        self.pacer.hint(now, self.is_under_way);
    }

    /// An early read is worth while.
    pub(super) fn hurry(&mut self, now: Moment) {
        self.pacer.hurry(now);
    }

    /// The read was answered; `read` events have been read with it.
    pub(super) fn answered(&mut self, page: &Page, read: u64, now: Moment) {
        self.is_under_way = false;
        self.pacer.read(page.events.len(), page.caught_up, now);
        self.caught_up = page.caught_up;
        self.is_joinable = page.joinable;
        if page.joinable {
            self.joinable = Some(page.end.clone());
        }
        if page.caught_up && self.drain_target.is_none() {
            self.drain_target = Some(read);
        }
    }

    pub(super) fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// How many events had been read when all that was visible at the claim was; none: it is not
    /// yet.
    pub(super) fn drain_target(&self) -> Option<u64> {
        self.drain_target
    }

    pub(super) fn joinable(&self) -> Option<&Cursor> {
        self.joinable.as_ref()
    }

    /// Whether the last read ended where keys can join.
    pub(super) fn is_joinable(&self) -> bool {
        self.is_joinable
    }

    /// `rejects`: events may be rejected for good.
    #[cfg(feature = "model")]
    pub(super) fn describe(&self, rejects: bool, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            // Every moment is the first one, and nobody hints.
            pacer: _,
            is_under_way,
            // Only an idle relay is asked.
            caught_up: _,
            joinable,
            is_joinable,
            drain_target,
            copied,
        } = self;
        out(Part::Number((*is_under_way).into()));
        if !rejects {
            // Nothing joins, and no copy stands for an event.
            return;
        }
        for is in [drain_target.is_some(), *is_joinable, joinable.is_some()] {
            out(Part::Number(is.into()));
        }
        if let Some(joinable) = joinable {
            joinable.describe(out);
        }
        // The model emits no id twice, and numbers of its own would part states that are alike.
        let mut copied: Vec<String> = copied.iter().map(|of| of.id.to_string()).collect();
        copied.sort();
        out(number(copied.len()));
        copied.iter().for_each(|of| out(Part::Text(of)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn page(joinable: bool, caught_up: bool) -> Page {
        Page {
            joinable,
            caught_up,
            ..Page::up_to(Arc::new(()), Vec::new())
        }
    }

    #[test]
    fn the_first_read_that_catches_up_sets_what_the_claim_has_to_deliver() {
        let mut reading = Reading::new(Duration::ZERO, Duration::ZERO);
        let now = Moment::default();
        let mut read = |page: Page, read| {
            assert!(reading.is_due(now));
            reading.begin();
            assert!(!reading.is_due(now), "one read at a time");
            reading.answered(&page, read, now);
            (reading.drain_target(), reading.is_joinable())
        };
        assert_eq!(read(page(true, false), 5), (None, true));
        assert_eq!(read(page(false, true), 7), (Some(7), false));
        assert_eq!(read(page(true, true), 9), (Some(7), true));
        assert!(reading.joinable().is_some());
    }
}
