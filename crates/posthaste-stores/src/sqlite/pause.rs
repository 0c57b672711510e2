//! The pause between the transactions of this process.
//!
//! SQLite gives its lock to whoever asks at the right moment, and tells nobody that it is free: an
//! application that waits for it asks again after 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, and then
//! each 100 milliseconds (`sqliteDefaultBusyCallback`). Beside transactions that follow one another
//! without a pause it may ask in vain until its time-out. So the lock is left alone for as long as
//! it was held: those steps are short enough that one of them falls into such a pause.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The longest step with which an application asks: a longer pause lets nobody in who would not
/// have come in.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When all who write to one file may ask for its lock again. Nobody waits for it in a queue: who
/// waits for an application's lock would keep the others, a lease's renewal too, from asking.
#[derive(Debug, Clone)]
pub(super) struct Pause(Arc<Mutex<Instant>>);

impl Default for Pause {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Pause {
    fn end(&self) -> Instant {
        // Nothing panics while it holds the lock.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn wait(&self) {
        sleep_until(self.end()).await;
    }

    /// Whether it lasts still: another writer has had the lock meanwhile.
    pub(super) fn lasts(&self) -> bool {
        Instant::now() < self.end()
    }

    /// The lock, which was held since `since`, is free again.
    pub(super) fn begin(&self, since: Instant) {
        let end = Instant::now() + since.elapsed().min(PAUSE_MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_lock_is_left_alone_for_as_long_as_it_was_held() {
        let pause = Pause::default();
        assert!(!pause.lasts());
        let began = Instant::now();
        tokio::time::sleep(Duration::from_millis(30)).await;
        pause.begin(began);
        pause.clone().wait().await;
        let past = began.elapsed();
        assert!(past >= Duration::from_millis(60), "{past:?}");
        assert!(!pause.lasts());
        pause.begin(Instant::now() - Duration::from_secs(5));
        assert!(pause.lasts());
        let left = pause.end().duration_since(Instant::now());
        assert!(left <= PAUSE_MAX, "{left:?}");
    }
}
