//! Changes of the store: which one is next, and what its answer means.

use super::{
    Pipeline,
    change::Change,
    progress::UnderWay,
    ticket::{Group, Ticket},
};
use crate::{Due, DueAt, Moment};

/// Parked events that are in memory at once, and released keys that are looked for at once. Events
/// may be of any size: how many bytes of them come, the store bounds.
const DUE_EVENTS: usize = 2_500;

impl Pipeline {
    /// The change that the store is to make next; the caller answers with
    /// [`change_done`](Self::change_done), or drops the pipeline when it failed.
    pub fn next_change(&mut self, now: Moment, random: f64) -> Option<Change> {
        if self.progress.is_changing() {
            return None;
        }
        let may_send = !self.paused && !self.is_open(now);
        if !may_send && self.retries.leave_unsent() {
            self.waiting.look_anew();
        }
        self.leave_window(now);
        self.put_off_retries(random);
        if let Some(park) = self.next_parkings(random) {
            return Some(park);
        }
        // Before settlements, of which there may be thousands.
        let hurry = self.stop_behind.is_some() || self.side.holds_main();
        let Self {
            progress,
            main,
            limits,
            ..
        } = self;
        if let Some(advance) = progress.next_advance(main, limits, hurry, now) {
            return Some(advance);
        }
        if let Some((ticket, id, settlement)) = self.retries.take_settlement() {
            self.progress.begin(UnderWay::Settle(ticket));
            return Some(Change::Settle { id, settlement });
        }
        if let Some(report) = self.next_report(now) {
            self.progress.begin(UnderWay::Report);
            return Some(report);
        }
        // A look beside a join may see keys as released that have joined before it is answered.
        // They would be read apart a second time, without a marker.
        let may_look = self.stop_behind.is_none() && !self.side.is_joining();
        let is_of_use = may_send || !self.retries.has_looked();
        if may_look && is_of_use && self.retries.is_look_due(now) {
            self.progress.begin(UnderWay::Due);
            return Some(Change::Due { limit: DUE_EVENTS });
        }
        if may_look
            && may_send
            && self.retries.has_none()
            && let Some((after, limit)) = self.next_look(now)
        {
            self.progress.begin(UnderWay::PutOff(after));
            return Some(Change::PutOff { after, limit });
        }
        None
    }

    /// The next look at what was put off: behind which copy, and how many.
    fn next_look(&self, now: Moment) -> Option<(Option<DueAt>, usize)> {
        let of_places = self.waiting.next_look();
        of_places.or_else(|| self.may_have_caught_up(now).then_some((None, 1)))
    }

    fn next_report(&mut self, now: Moment) -> Option<Change> {
        let reached = self.lane.was_reached();
        let (state, error) = self.breaker(now);
        let error = error.map(str::to_owned);
        self.reports.next(state, error.as_deref(), reached, now)
    }

    /// The change under way was made, durably. `due` is the answer of [`Change::Due`]; that of
    /// [`Change::PutOff`], where there is one, goes to [`put_off_are`](Self::put_off_are).
    pub fn change_done(&mut self, due: Option<Due>, read_at_once: bool, now: Moment) {
        match self.progress.take_change() {
            Some(UnderWay::Park(tickets)) => self.parked(tickets, now),
            Some(UnderWay::Advance { events, bytes }) => {
                self.progress.advanced(events, bytes);
                let names = Group::Main.names(0..self.main.first());
                self.progress.behind_the_store(names);
                if read_at_once {
                    self.reading.hurry(now);
                }
            }
            // The next look sees what a settlement released or left due.
            Some(UnderWay::Settle(ticket)) => {
                if let Some(ticket) = ticket {
                    let number = ticket.number();
                    let names = ticket.group().names(number..number + 1);
                    self.progress.behind_the_store(names);
                }
                self.retries.look_again(now);
            }
            Some(UnderWay::Due) => {
                let due = due.unwrap_or_default();
                if !self.retries.has_looked() && due.next_in.is_some() {
                    self.waiting.look_for_former();
                }
                let released = self.retries.looked(due, self.limits.due_every, now);
                self.side.release(released);
            }
            Some(UnderWay::PutOff(after)) => self.looked(after, &[], now),
            Some(UnderWay::Report) | None => {}
        }
    }

    fn parked(&mut self, tickets: Vec<(Ticket, bool)>, now: Moment) {
        self.reports.counts.parked += tickets.len() as u64;
        for (ticket, skip) in tickets {
            let (group, number) = (ticket.group(), ticket.number());
            let Some(window) = self.window_of(group) else {
                continue;
            };
            let entry = window.entry_mut(number);
            let key = entry.and_then(|entry| entry.event.order_key().map(str::to_owned));
            window.finish(number, true);
            if let Some(key) = key.filter(|_| group == Group::Side && !skip) {
                self.side.parked(&key);
            }
        }
        self.retries.look_again(now);
    }
}
