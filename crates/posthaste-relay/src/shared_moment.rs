use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use posthaste_engine::Moment;

/// A moment that tasks share, in microseconds since boot.
#[derive(Debug, Default)]
pub(crate) struct SharedMoment(AtomicU64);

impl SharedMoment {
    pub(crate) fn get(&self) -> Moment {
        Moment(Duration::from_micros(self.0.load(Relaxed)))
    }

    pub(crate) fn set(&self, moment: Moment) {
        self.0.store(micros(moment), Relaxed);
    }

    /// Moves it on; a moment that has passed already changes nothing.
    pub(crate) fn raise(&self, moment: Moment) {
        self.0.fetch_max(micros(moment), Relaxed);
    }
}

fn micros(moment: Moment) -> u64 {
    u64::try_from(moment.0.as_micros()).unwrap_or(u64::MAX)
}
