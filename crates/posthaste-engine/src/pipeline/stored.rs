//! What a lane learns of the store: events that will not be submitted again.

use std::ops::Range;

use super::{LaneState, Pipeline};

impl Pipeline {
    pub(super) fn behind_the_store(&mut self, tickets: Range<u64>) {
        self.behind_the_store.push(tickets);
    }

    /// Tickets of events that went behind what the store holds since the last call ([`crate::Lane::stored`]).
    pub fn take_behind_the_store(&mut self) -> std::vec::Drain<'_, Range<u64>> {
        self.behind_the_store.drain(..)
    }

    /// Once for each lane: everything that was visible at the claim, or read before the lane was opened, is behind
    /// what the store holds ([`crate::Lane::caught_up`]).
    pub fn take_caught_up(&mut self) -> bool {
        let caught_up = self.lane == LaneState::Open
            && !self.told_caught_up
            && self.none_is_due
            && self.is_drained()
            && self.stored >= self.read_before_lane;
        self.told_caught_up |= caught_up;
        caught_up
    }
}
