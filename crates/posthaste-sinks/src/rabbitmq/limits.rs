//! How large a message the broker takes.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_engine::{Outcome, Record};

use super::fault::{BrokerFault, EventsAtFault, too_large};

/// How long a limit that the broker named counts: somebody may raise it there.
const LEARNED_FOR: Duration = Duration::from_secs(300);

/// The limit that the broker turned out to have; shared by all lanes.
///
/// The broker names its limit only by closing the channel over a message, which costs a lane: once
/// is enough.
#[derive(Debug, Default)]
pub(super) struct SizeLimit {
    learned: Mutex<Option<(u64, Instant)>>,
}

impl SizeLimit {
    /// The broker may have said here how many bytes it takes.
    pub(super) fn learn(&self, fault: &BrokerFault) {
        let Some(EventsAtFault::LargerThan(limit)) = fault.at_fault else {
            return;
        };
        *self.learned.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((limit, Instant::now()));
    }

    /// The outcome of a record that is too large.
    pub(super) fn refuses(&self, record: &Record) -> Option<Outcome> {
        let learned = *self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, _) = learned.filter(|(_, at)| at.elapsed() < LEARNED_FOR)?;
        too_large(record, limit)
    }
}
