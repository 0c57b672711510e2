//! Whether each destination *makes progress*: that a process lives says nothing of its events.
//!
//! A destination makes progress when something is accepted, parked, passed or stored. It stands
//! still with good reason while it has nothing to do (the last read of the store brought all there
//! is, and everything read is finished), while an operator has paused it, or while another live
//! relay holds it; who finds such a reason notes the moment up to which it holds. Only what is at
//! hand is weighed, so that watching costs the database nothing, and what cannot be known (the
//! store is away) is no reason.

use std::{sync::Arc, time::Duration};

use crate::{Clock, Counters, CountersSnapshot, counters::WAITING, shared_moment::SharedMoment};

/// A destination without progress for this long stands still. Longer than a take-over with its
/// settle time and than the longest wait between probes, and short enough that an alarm comes
/// within a minute.
pub const STANDSTILL: Duration = Duration::from_secs(30);

/// Answers those who watch a relay, for as long as they like; a clone asks the same relay.
#[derive(Clone)]
pub struct Health {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) destinations: Arc<[(String, Arc<Counters>)]>,
    pub(crate) lease_end: Arc<SharedMoment>,
}

/// One destination of a relay, as it is now.
#[derive(Debug, Clone)]
pub struct DestinationHealth {
    /// Its name.
    pub name: String,
    /// Time since its last progress; zero while it has a good reason to stand still.
    pub since_progress: Duration,
    /// Whether that is shorter than [`STANDSTILL`].
    pub is_ready: bool,
    /// Its counters so far.
    pub counted: CountersSnapshot,
}

impl DestinationHealth {
    /// The destination stands still, this relay holds it, and nothing says why: a fault of the
    /// relay itself, which a new start may mend.
    ///
    /// Waiting for a share needs no limit here: it consists of calls to the store, which have a
    /// deadline each, and of settle times, which may be longer than [`STANDSTILL`].
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let has_reason = self.counted.last_error.is_some() || self.counted.breaker == WAITING;
        !self.is_ready && !has_reason
    }
}

impl Health {
    /// Each destination, in the order in which the relay was given them.
    #[must_use]
    pub fn destinations(&self) -> Vec<DestinationHealth> {
        let now = self.clock.now();
        let of = |(name, counters): &(String, Arc<Counters>)| {
            let since_progress = counters.progress().until(now);
            DestinationHealth {
                name: name.clone(),
                since_progress,
                is_ready: since_progress < STANDSTILL,
                counted: counters.snapshot(),
            }
        };
        self.destinations.iter().map(of).collect()
    }

    /// For how long the relay may go on without renewing its lease; zero when it has none.
    #[must_use]
    pub fn lease_left(&self) -> Duration {
        self.clock.now().until(self.lease_end.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_standstill_of_ours_that_nothing_explains_is_stuck() {
        let of = |breaker, is_ready, last_error: Option<&str>| DestinationHealth {
            name: "d".to_owned(),
            since_progress: STANDSTILL,
            is_ready,
            counted: CountersSnapshot {
                breaker,
                last_error: last_error.map(str::to_owned),
                ..CountersSnapshot::default()
            },
        };
        assert!(of("closed", false, None).is_stuck());
        for known in [
            of("closed", true, None),
            of("open", false, Some("connection refused")),
            of(WAITING, false, None),
        ] {
            assert!(!known.is_stuck(), "{known:?}");
        }
    }
}
