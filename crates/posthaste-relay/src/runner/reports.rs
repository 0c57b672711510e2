//! Numbers, log lines and progress: what the pipeline has done, for operators.

use std::time::Duration;

use posthaste_engine::{BreakerState, Moment};
use tracing::{info, warn};

use super::Runner;

/// How old the report on places may be: it names and copies some.
const PLACES_EVERY: Duration = Duration::from_secs(1);

impl Runner<'_> {
    /// Notes that nothing is due before the next wake: an operator wants it so, or all that was
    /// read is finished. Without the lease neither is known.
    pub(super) fn report_idle(&mut self, now: Moment) {
        if self.lease.borrow().deadline > now && (self.paused || self.is_idle()) {
            let wake = now.after(self.next_wake(now));
            self.task.destination.counters.progressed(wake);
        }
    }

    /// A read that hangs may be about to bring something.
    fn is_idle(&mut self) -> bool {
        !self.reading.is_under_way() && self.pipeline.is_idle()
    }

    pub(super) fn measure(&mut self) {
        let now = self.task.clock.wall_micros();
        let counters = &self.task.destination.counters;
        for inserted_at in self.pipeline.take_accepted_inserted_at() {
            counters.latency(u64::try_from(now - inserted_at).unwrap_or_default());
        }
    }

    pub(super) fn count(&mut self) {
        let (name, counters) = (&self.claim.destination, &self.task.destination.counters);
        let counts = self.pipeline.counts();
        if counts != self.counted {
            if counts.unrouted > self.counted.unrouted && self.counted.unrouted == 0 {
                warn!(
                    destination = %name,
                    "some events match no route; add a catch-all route or one that drops them"
                );
            }
            counters.add(self.counted, counts);
            if counts.accepted > self.counted.accepted {
                self.across.share.reached();
            }
            let is_new = counts.accepted > self.counted.accepted && !self.across.repeats;
            if is_new || counts.parked > self.counted.parked {
                counters.progressed(self.task.clock.now());
            }
            self.counted = counts;
        }
        counters.blocked_keys(self.pipeline.blocked_keys());
        let now = self.task.clock.now();
        let refused = self.pipeline.take_refused();
        self.across.refused_events.say(name, refused, now);
        if self.places_at <= now {
            counters.places(|most| self.pipeline.held_places(most, now));
            self.places_at = now.after(PLACES_EVERY);
        }
        let (breaker, last_error) = self.pipeline.breaker(now);
        let changed = counters.breaker(breaker.as_str(), last_error);
        let words = match (breaker, last_error) {
            (BreakerState::Open { .. }, Some(reason)) if changed => format!(
                "destination `{name}` is unavailable: {reason}; trying again, and what it has not \
                 accepted is kept"
            ),
            (BreakerState::HalfOpen, Some(reason)) if changed && !self.across.is_away => {
                format!("destination `{name}` refuses events, and they wait: {reason}")
            }
            (BreakerState::Closed, Some(reason)) if changed => format!(
                "destination `{name}` puts off events of {reason}; all others are delivered, and \
                 these are kept"
            ),
            (BreakerState::Closed, None) if self.across.is_away => {
                info!(destination = %name, "delivering again");
                self.across.is_away = false;
                return;
            }
            _ => return,
        };
        self.across.is_away |= self.across.away.warn(now, || words);
    }
}
