//! How large a message may be.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_engine::{Outcome, Record, RejectionKind};

use super::fault::too_large;

/// How long a limit that the broker named counts: somebody may raise it there.
const LEARNED_FOR: Duration = Duration::from_secs(300);

/// The limit of the address, and the one that the broker turned out to have; shared by all lanes.
///
/// The broker names its limit only by closing the channel over a message, which costs a lane: once
/// is enough.
#[derive(Debug)]
pub(super) struct SizeLimit {
    configured: u64,
    learned: Mutex<Option<(u64, Instant)>>,
}

impl SizeLimit {
    pub(super) fn new(configured: u64) -> Self {
        Self {
            configured,
            learned: Mutex::new(None),
        }
    }

    /// The broker said that it takes no more bytes than this.
    pub(super) fn learn(&self, limit: u64) {
        *self.learned.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((limit, Instant::now()));
    }

    /// The outcome of a record that is too large.
    pub(super) fn refuses(&self, record: &Record) -> Option<Outcome> {
        let size = record.value().map_or(0, <[u8]>::len) as u64;
        if size > self.configured {
            return Some(Outcome::rejected(
                RejectionKind::TooLarge,
                format!(
                    "payload of {size} bytes, over max_event_bytes={} of this destination",
                    self.configured
                ),
            ));
        }
        let learned = *self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, _) = learned.filter(|(_, at)| at.elapsed() < LEARNED_FOR)?;
        too_large(record, limit)
    }
}
