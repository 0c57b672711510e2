//! How large a message the broker takes.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_engine::{Outcome, Record};

use super::fault::too_large;

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
    /// The broker said that it takes no more bytes than this.
    pub(super) fn learn(&self, limit: u64) {
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
