use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use posthaste_engine::{Counts, HeldPlace, Moment, PLACES_NAMED};

use crate::shared_moment::SharedMoment;

/// Upper bounds of the latency histogram's buckets, in microseconds; one more bucket takes the
/// rest.
pub const LATENCY_BUCKETS_MICROS: [u64; 20] = [
    500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 25_000, 50_000, 75_000, 100_000,
    250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The state of the breaker while nobody here asks it.
pub(crate) const WAITING: &str = "waiting";

/// Counts of one destination of a running relay; shared with those who watch.
#[derive(Debug, Default)]
pub struct Counters {
    accepted: AtomicU64,
    duplicates: AtomicU64,
    rejected: AtomicU64,
    later: AtomicU64,
    unavailable: AtomicU64,
    parked: AtomicU64,
    unrouted: AtomicU64,
    read: AtomicU64,
    repeated: AtomicU64,
    blocked_keys: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS_MICROS.len() + 1],
    latency_sum: AtomicU64,
    progress: SharedMoment,
    state: Mutex<(&'static str, Option<String>)>,
    store_failure: Mutex<Option<(Moment, String)>>,
    places: Mutex<(usize, Vec<HeldPlace>)>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct CountersSnapshot {
    /// Events accepted by the broker.
    pub accepted: u64,
    /// Those among them that the broker had already, and keeps no second time.
    pub duplicates: u64,
    /// Rejections, each attempt counted.
    pub rejected: u64,
    /// Events that their place refused for now, each time counted.
    pub later: u64,
    /// Failures of the destination.
    pub unavailable: u64,
    /// Events parked.
    pub parked: u64,
    /// Events that no route takes.
    pub unrouted: u64,
    /// Events read.
    pub read: u64,
    /// Events sent again although the fate of an earlier sending is unknown: each may be a repeat.
    pub repeated: u64,
    /// Keys that wait behind a parked event.
    pub blocked_keys: u64,
    /// Events by the time from insert to accepted, a count for each bucket of
    /// [`LATENCY_BUCKETS_MICROS`] and one for the rest. It compares the database's clock with this
    /// machine's, so it is as good as they agree.
    pub latency: Vec<u64>,
    /// All those times together, in microseconds.
    pub latency_sum_micros: u64,
    /// The breaker: `closed`, `open` or `half_open`; `waiting` while this relay does not hold the
    /// destination.
    pub breaker: &'static str,
    /// Why the breaker is open, or why the destination was let go; else how the store failed since
    /// the last progress.
    pub last_error: Option<String>,
    /// Places of the destination that take nothing for now, or not everything yet.
    pub places_held: usize,
    /// Of these the twenty that were held back first, as they were within the last second.
    pub places: Vec<HeldPlace>,
}

impl Counters {
    /// Events accepted by the broker.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> CountersSnapshot {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (places_held, places) = self.held_places();
        CountersSnapshot {
            accepted: self.accepted(),
            duplicates: self.duplicates.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            later: self.later.load(Relaxed),
            unavailable: self.unavailable.load(Relaxed),
            parked: self.parked.load(Relaxed),
            unrouted: self.unrouted.load(Relaxed),
            read: self.read.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            blocked_keys: self.blocked_keys.load(Relaxed),
            latency: self
                .latency
                .iter()
                .map(|bucket| bucket.load(Relaxed))
                .collect(),
            latency_sum_micros: self.latency_sum.load(Relaxed),
            breaker: if state.0.is_empty() { WAITING } else { state.0 },
            last_error: state.1.clone().or_else(|| self.store_failure()),
            places_held,
            places,
        }
    }

    /// Adds what a claim has counted since `before`.
    pub(crate) fn add(&self, before: Counts, now: Counts) {
        self.accepted
            .fetch_add(now.accepted - before.accepted, Relaxed);
        self.duplicates
            .fetch_add(now.duplicates - before.duplicates, Relaxed);
        self.rejected
            .fetch_add(now.rejected - before.rejected, Relaxed);
        self.later.fetch_add(now.later - before.later, Relaxed);
        self.unavailable
            .fetch_add(now.unavailable - before.unavailable, Relaxed);
        self.parked.fetch_add(now.parked - before.parked, Relaxed);
        self.unrouted
            .fetch_add(now.unrouted - before.unrouted, Relaxed);
        self.read.fetch_add(now.read - before.read, Relaxed);
        self.repeated
            .fetch_add(now.repeated - before.repeated, Relaxed);
    }

    pub(crate) fn latency(&self, micros: u64) {
        let bucket = LATENCY_BUCKETS_MICROS.partition_point(|&bound| bound < micros);
        self.latency[bucket].fetch_add(1, Relaxed);
        self.latency_sum.fetch_add(micros, Relaxed);
    }

    pub(crate) fn blocked_keys(&self, keys: usize) {
        self.blocked_keys.store(keys as u64, Relaxed);
    }

    /// Notes that the destination stands nowhere still before this moment: it made progress then,
    /// or has nothing to do until then.
    pub(crate) fn progressed(&self, at: Moment) {
        self.progress.raise(at);
    }

    /// The last moment of progress; later than now when nothing is due before.
    pub(crate) fn progress(&self) -> Moment {
        self.progress.get()
    }

    /// This relay holds the destination no longer, or not yet: what it knew of it is not so any
    /// more.
    pub(crate) fn let_go(&self, why: Option<&str>) {
        self.blocked_keys(0);
        self.breaker(WAITING, why);
        *self.locked_places() = (0, Vec::new());
    }

    /// A call to the store failed, which ended the claim. A new claim is no sign that the next such
    /// call succeeds: only progress is.
    pub(crate) fn store_failed(&self, at: Moment, why: &str) {
        self.let_go(Some(why));
        *self.locked_store_failure() = Some((at, why.to_owned()));
    }

    fn store_failure(&self) -> Option<String> {
        let failure = self.locked_store_failure();
        let (at, why) = failure.as_ref()?;
        (*at >= self.progress()).then(|| why.clone())
    }

    fn locked_store_failure(&self) -> MutexGuard<'_, Option<(Moment, String)>> {
        self.store_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_places(&self) -> MutexGuard<'_, (usize, Vec<HeldPlace>)> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places that are held back, as they were noted last.
    pub(crate) fn held_places(&self) -> (usize, Vec<HeldPlace>) {
        self.locked_places().clone()
    }

    /// Notes the places that are held back, which `first` names as far as it is asked to.
    pub(crate) fn places(&self, first: impl FnOnce(usize) -> (usize, Vec<HeldPlace>)) {
        *self.locked_places() = first(PLACES_NAMED);
    }

    /// Notes the breaker's state; answers whether it changed.
    pub(crate) fn breaker(&self, breaker: &'static str, last_error: Option<&str>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = state.0 != breaker || state.1.as_deref() != last_error;
        if changed {
            *state = (breaker, last_error.map(str::to_owned));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failure_of_the_store_stays_the_reason_through_new_claims_until_progress() {
        let counters = Counters::default();
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let reason = || counters.snapshot().last_error;
        counters.progressed(at(1));
        counters.store_failed(at(2), "no answer");
        counters.breaker("closed", None);
        assert_eq!(reason().as_deref(), Some("no answer"));
        counters.breaker("open", Some("refused"));
        assert_eq!(reason().as_deref(), Some("refused"));
        counters.breaker("closed", None);
        counters.progressed(at(3));
        assert_eq!(reason(), None);
    }
}
