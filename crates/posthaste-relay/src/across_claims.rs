use std::time::Duration;

use posthaste_engine::{Moment, Registered};

use crate::{refused_events::RefusedEvents, said_once::SaidOnce, share::Share};

/// Wait after a failed call to the store. The store's own connecting has its time-outs; this only
/// keeps a loop from spinning.
pub(crate) const AGAIN: Duration = Duration::from_millis(250);
/// An error that only an operator can mend is asked about less and less often, at last every half a
/// minute: the store is not to be kept busy with it, and delivery is to go on soon after the mend.
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// A relay that does not reach a broker that others reach stays away from it for two leases, then
/// for twice as long each time: it may have to give up again what it takes back.
const AWAY_MAX: Duration = Duration::from_secs(300);
/// The settle time of a receiver that fences exactly: none, but the next owner is to take the
/// fence.
const UNFENCED: Duration = Duration::from_micros(1);

/// The memory of a destination's task across claims.
pub(crate) struct AcrossClaims {
    /// The number of the newest lane: every lane gets a higher one.
    pub(crate) lane_number: u64,
    /// The store took a claim.
    pub(crate) was_answered: bool,
    /// A lane was opened.
    pub(crate) began: bool,
    /// A claim was lost and nothing has been stored since: the same events may be accepted again
    /// and again.
    pub(crate) repeats: bool,
    /// The last claim left nothing in flight, or left it to the relays that got the destination.
    pub(crate) clean: bool,
    /// The warning that the destination is away.
    pub(crate) away: SaidOnce,
    /// It was said, and that the destination is back was not.
    pub(crate) is_away: bool,
    pub(crate) refused_events: RefusedEvents,
    /// The warning that a claim, or a call to the store, failed.
    pub(crate) failed: SaidOnce,
    /// The warning that others own the destination, and for what this relay waits.
    pub(crate) stands_by: SaidOnce,
    /// Until then bytes of an aborted lane may still arrive.
    pub(crate) settled_at: Moment,
    /// A lane was aborted, and none has taken over since.
    pub(crate) unfenced: bool,
    pub(crate) share: Share,
    /// How long to stay away from the destination when other relays reach it and this one does not.
    away_for: Duration,
    refusals: Refusals,
}

/// The wait after the next refusal of the store. A minute without any, and it is short again.
struct Refusals {
    wait: Duration,
    last: Moment,
}

impl Refusals {
    fn next_wait(&mut self, now: Moment) -> Duration {
        if self.last.until(now) > self.wait + REFUSED_MAX * 2 {
            self.wait = AGAIN;
        }
        self.last = now;
        let wait = self.wait;
        self.wait = (wait * 2).min(REFUSED_MAX);
        wait
    }
}

impl AcrossClaims {
    /// Before the first claim. `together`: all partitions go to one relay.
    pub(crate) fn new(relay: Registered, lease: Duration, together: bool) -> Self {
        Self {
            lane_number: 0,
            was_answered: false,
            began: false,
            repeats: false,
            clean: true,
            away: SaidOnce::default(),
            is_away: false,
            refused_events: RefusedEvents::default(),
            failed: SaidOnce::default(),
            stands_by: SaidOnce::default(),
            settled_at: Moment::default(),
            unfenced: false,
            share: Share::new(relay, lease / 3, together),
            away_for: lease * 2,
            refusals: Refusals {
                wait: AGAIN,
                last: Moment::default(),
            },
        }
    }

    /// Nothing of earlier lanes can arrive any more where the receiver fences, and the destination
    /// is reached.
    pub(crate) fn lane_has_taken_over(&mut self, lease: Duration) {
        self.unfenced = false;
        self.away_for = lease * 2;
    }

    /// For how long bytes of an aborted lane may still arrive.
    pub(crate) fn unsettled(&self, now: Moment) -> Duration {
        let rest = now.until(self.settled_at);
        match self.unfenced {
            true => rest.max(UNFENCED),
            false => rest,
        }
    }

    /// How long to wait after the store has refused a call.
    pub(crate) fn wait_after_refusal(&mut self, now: Moment) -> Duration {
        self.refusals.next_wait(now)
    }

    /// How long to stay away from a destination that only other relays reach.
    pub(crate) fn wait_while_away(&mut self) -> Duration {
        let wait = self.away_for;
        self.away_for = (wait * 2).min(AWAY_MAX);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_asked_less_and_less_often_until_it_refuses_nothing_for_a_while() {
        let mut refusals = Refusals {
            wait: AGAIN,
            last: Moment::default(),
        };
        let mut now = Moment(Duration::from_secs(1_000));
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = refusals.next_wait(now);
            waits.push(wait);
            now = now.after(wait);
        }
        assert!(waits.is_sorted());
        assert_eq!((waits[0], waits[9]), (AGAIN, REFUSED_MAX));
        assert_eq!(refusals.next_wait(now.after(4 * REFUSED_MAX)), AGAIN);
    }
}
