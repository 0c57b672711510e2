//! A transaction that is slow has its topics asked for again.
//!
//! One of them may have been made anew with fewer partitions. The broker adds none of the others to
//! a transaction; the client, for which such a partition may be about to come, asks it again and
//! again, and does not look the topic up. It hears the cluster's answer to us, too, and gives up
//! the records of partitions that are gone.

use std::{
    future,
    time::{Duration, Instant},
};

use super::{Records, TransactionalPublisher};

/// How long a transaction may last before its topics are asked for; then again after twice the
/// time. A commit takes some milliseconds.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// When the topics of the open transaction are to be asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slow {
    since: Instant,
    at: Instant,
}

impl Slow {
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            since: now,
            at: now + SLOW_AFTER,
        }
    }

    /// Waits until it is time.
    pub(super) async fn is_due(transaction: Option<Self>) {
        match transaction {
            Some(Self { at, .. }) => tokio::time::sleep_until(at.into()).await,
            None => future::pending().await,
        }
    }
}

impl TransactionalPublisher {
    /// Asks for the topics of the open transaction, when it is time.
    pub(super) fn ask_if_slow(&mut self, records: &Records, now: Instant) {
        let Some(slow) = self.slow.as_mut().filter(|slow| slow.at <= now) else {
            return;
        };
        slow.at = now + now.duration_since(slow.since);
        let topics = records.in_flight().filter_map(|record| record.topic);
        self.topics.ask_again(&topics.collect());
    }
}
