//! The end of a lane while requests are under way.

use posthaste_engine::Unavailability;
use tokio::time::Instant;

/// Why a lane ends. Requests under way are waited for, since each that is given up is sent again;
/// but no longer than until an answered event has to have its verdict.
#[derive(Debug, Default)]
pub(crate) struct Ending(Option<Due>);

#[derive(Debug)]
struct Due {
    fault: Unavailability,
    at: Instant,
    is_over: bool,
}

impl Ending {
    /// The lane ends at this time at the latest. The first fault is told.
    pub(crate) fn begin(&mut self, fault: Unavailability, at: Instant) {
        let due = self.0.get_or_insert(Due {
            fault,
            at,
            is_over: false,
        });
        due.at = due.at.min(at);
    }

    /// Whether nothing more is sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Until when requests under way are waited for.
    pub(crate) fn at(&self) -> Option<Instant> {
        let due = self.0.as_ref().filter(|due| !due.is_over);
        due.map(|due| due.at)
    }

    /// The fault with which the lane ends now, once.
    pub(crate) fn take_due(&mut self, is_anything_under_way: bool) -> Option<Unavailability> {
        let due = self.0.as_mut().filter(|due| !due.is_over)?;
        due.is_over = !is_anything_under_way || due.at <= Instant::now();
        due.is_over.then(|| due.fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posthaste_engine::Cause;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lane_ends_once_with_its_first_fault() {
        let mut ending = Ending::default();
        assert!(!ending.has_begun() && ending.take_due(false).is_none());
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let fault = |reason: &str| Unavailability::new(Cause::Connection, reason);
        ending.begin(fault("first"), at(3));
        ending.begin(fault("second"), at(2));
        assert!(ending.has_begun() && ending.take_due(true).is_none());
        assert_eq!(ending.at(), Some(at(2)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(ending.take_due(true), Some(fault("first")));
        assert_eq!((ending.take_due(false), ending.at()), (None, None));
    }
}
