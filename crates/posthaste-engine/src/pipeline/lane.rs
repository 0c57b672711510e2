//! The lane as the engine sees it: whether there is one, what is in flight on it, how much more may
//! be.

use std::time::Duration;

use crate::{Batches, Moment};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    None,
    Open,
    /// To be aborted by the runner.
    Failed,
}

/// The lane of one claim, and those before it: at most one is open.
#[derive(Debug, Clone)]
pub(super) struct LaneUse {
    state: State,
    /// No lane is opened before: bytes of an aborted one may be under way.
    not_before: Moment,
    /// Records that were handed to it and not answered.
    in_flight: usize,
    batches: Batches<Moment>,
    /// Records in flight at the most, while a destination that was away resumes.
    ramp: Option<usize>,
    /// A lane was opened once: the destination is reached.
    reached: bool,
    /// How many events had been read when the lane was opened.
    read_before: u64,
    /// The lane was told that it has caught up.
    told_caught_up: bool,
    /// The number of the main group's last event that was sent.
    highest_sent: Option<u64>,
}

impl LaneUse {
    pub(super) fn new() -> Self {
        Self {
            state: State::None,
            not_before: Moment::default(),
            in_flight: 0,
            batches: Batches::default(),
            ramp: None,
            reached: false,
            read_before: 0,
            told_caught_up: false,
            highest_sent: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Whether one may be opened.
    pub(super) fn may_open(&self, now: Moment) -> bool {
        self.state == State::None && self.not_before <= now
    }

    /// When one may be opened; none: there is one.
    pub(super) fn opens_at(&self) -> Option<Moment> {
        (self.state == State::None).then_some(self.not_before)
    }

    /// None is opened before `until`.
    pub(super) fn wait_until(&mut self, until: Moment) {
        self.not_before = self.not_before.max(until);
    }

    /// One was opened when so many events had been read.
    pub(super) fn opened(&mut self, read: u64) {
        self.state = State::Open;
        self.reached = true;
        self.read_before = read;
        self.told_caught_up = false;
    }

    /// The open lane has to go. False: none is open.
    pub(super) fn fail(&mut self) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.state = State::Failed;
        }
        was_open
    }

    /// It was aborted, and nothing is in flight any more. `settle`: how long the next one waits.
    pub(super) fn ended(&mut self, now: Moment, settle: Option<Duration>) {
        self.state = State::None;
        self.in_flight = 0;
        self.batches.clear();
        if let Some(settle) = settle {
            self.not_before = now.after(settle);
        }
    }

    pub(super) fn was_reached(&self) -> bool {
        self.reached
    }

    /// How many records may be added to what is in flight, of a sink that takes so many at once.
    pub(super) fn room(&self, in_flight_max: usize) -> usize {
        in_flight_max
            .min(self.ramp.unwrap_or(in_flight_max))
            .saturating_sub(self.in_flight)
    }

    /// A probe: so many records at the most until something is accepted.
    pub(super) fn limit(&mut self, records: usize) {
        self.ramp = Some(records);
    }

    /// The destination accepted events: more may follow than before, up to the sink's own limit.
    /// Doubling from a probe on spares a destination that has just come back.
    pub(super) fn ramp_up(&mut self, accepted: u64, in_flight_max: usize) {
        let accepted = usize::try_from(accepted).unwrap_or(usize::MAX);
        self.ramp = self
            .ramp
            .map(|ramp| ramp.saturating_add(accepted))
            .filter(|&ramp| ramp < in_flight_max);
    }

    /// The number that the next batch gets.
    pub(super) fn next_batch(&self) -> u64 {
        self.batches.next()
    }

    /// A batch of so many records is handed over.
    pub(super) fn submitted(&mut self, records: usize, now: Moment) {
        self.in_flight += records;
        self.batches.begin(now, records);
    }

    /// A record of this batch was answered.
    pub(super) fn answered(&mut self, batch: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.batches.answered(batch);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// When the oldest batch that owes an answer was handed over.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.batches.oldest()
    }

    /// The main group's event of this number is handed over.
    pub(super) fn sends(&mut self, number: u64) {
        self.highest_sent = self.highest_sent.max(Some(number));
    }

    /// The first number of the main group behind all that were ever sent.
    pub(super) fn first_unsent(&self) -> u64 {
        self.highest_sent.map_or(0, |number| number + 1)
    }

    /// Whether the open lane is to be told that it has caught up: once, when so many events are
    /// stored and nothing else waits.
    pub(super) fn tell_caught_up(&mut self, stored: u64) -> bool {
        let tell = self.may_have_caught_up(stored);
        self.told_caught_up |= tell;
        tell
    }

    pub(super) fn may_have_caught_up(&self, stored: u64) -> bool {
        self.is_open() && !self.told_caught_up && stored >= self.read_before
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            state,
            not_before,
            in_flight,
            // Only the age of a batch is asked, and every moment is the first one.
            batches: _,
            ramp,
            // A lane is opened with the memory.
            reached: _,
            // The model tells a lane nothing.
            read_before: _,
            told_caught_up: _,
            // Only a relay that stops asks.
            highest_sent: _,
        } = self;
        out(number(*in_flight));
        out(Part::Text(&format!("{state:?} {not_before:?} {ramp:?}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_ended_leaves_nothing_in_flight() {
        let (mut lane, now) = (LaneUse::new(), Moment::default());
        lane.opened(0);
        let batch = lane.next_batch();
        lane.submitted(3, now);
        lane.answered(batch);
        assert_eq!((lane.in_flight(), lane.oldest()), (2, Some(now)));
        assert!(lane.fail() && !lane.fail());
        lane.ended(now, Some(Duration::from_secs(1)));
        assert_eq!((lane.in_flight(), lane.oldest()), (0, None));
        assert!(!lane.may_open(now) && lane.may_open(now.after(Duration::from_secs(1))));
        // An answer that comes late says nothing of the next lane's records.
        lane.opened(0);
        lane.submitted(1, now);
        lane.batches.answered(batch);
        assert_eq!(lane.oldest(), Some(now));
    }

    #[test]
    fn a_destination_that_returns_gets_twice_as_much_each_time() {
        let mut lane = LaneUse::new();
        assert_eq!(lane.room(100), 100);
        lane.limit(10);
        let mut rooms = Vec::new();
        while lane.ramp.is_some() {
            let room = lane.room(100);
            rooms.push(room);
            lane.ramp_up(room as u64, 100);
        }
        assert_eq!(rooms, [10, 20, 40, 80]);
        assert_eq!(lane.room(100), 100);
    }

    #[test]
    fn each_lane_is_told_once_that_it_has_caught_up() {
        let mut lane = LaneUse::new();
        assert!(!lane.tell_caught_up(9));
        lane.opened(7);
        assert!(!lane.tell_caught_up(6));
        assert!(lane.tell_caught_up(7) && !lane.tell_caught_up(7));
        lane.opened(7);
        assert!(lane.tell_caught_up(7));
    }
}
