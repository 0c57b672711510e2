//! The time for which a record may wait before it is sent.

use std::{future::pending, time::Duration};

use tokio::time::{Instant, sleep_until};

/// The patience with the records of a lane.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// When the first of those that wait has to be decided.
    due: Option<Instant>,
}

impl Patience {
    /// With records that have to be answered within this time: the sink needs half of it.
    pub(super) fn new(publish_timeout: Duration) -> Self {
        Self {
            limit: publish_timeout / 2,
            due: None,
        }
    }

    /// A round of steps begins.
    pub(super) fn begin(&mut self) {
        self.due = None;
    }

    /// Whether a record that has waited since then waits no longer; else it is waited for.
    pub(super) fn is_over(&mut self, since: Instant) -> bool {
        let due = since + self.limit;
        if Instant::now() >= due {
            return true;
        }
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
        false
    }

    /// Waits until it is over for some record. Cancel safe.
    pub(super) async fn ends(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => pending().await,
        }
    }
}
