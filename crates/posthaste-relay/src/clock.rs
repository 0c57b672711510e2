use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste_engine::Moment;

/// Where a relay reads the time. Deadlines use [`now`](Self::now); the wall clock only measures
/// latencies for people.
pub trait Clock: Send + Sync {
    /// Time since boot, suspend included.
    fn now(&self) -> Moment;

    /// Microseconds since 1970-01-01 UTC.
    fn wall_micros(&self) -> i64;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        // Not CLOCK_MONOTONIC: it stands still while a machine is suspended, and then a deadline
        // that has passed for everybody else would never come here.
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Moment(Duration::new(seconds, nanos))
    }

    fn wall_micros(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}
