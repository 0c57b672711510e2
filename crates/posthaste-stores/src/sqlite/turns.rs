//! The turns of this process's writers, and the pauses between them.
//!
//! SQLite gives its lock to whoever asks at the right moment, and tells nobody that it is free: an
//! application that waits for it asks again after 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, and then
//! each 100 milliseconds (`sqliteDefaultBusyCallback`). Beside transactions that follow one another
//! without a pause it may ask in vain until its time-out. So the lock is left alone for as long as
//! it was held: those steps are short enough that one of them falls into such a pause.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, sleep_until},
};

/// The longest step with which an application asks: a longer pause lets nobody in who would not
/// have come in.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Gives all who write to one file their turns, in the order in which they asked.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Mutex<Instant>>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

/// The turn of one transaction; dropping it ends it.
#[derive(Debug)]
pub(super) struct Turn(OwnedMutexGuard<Instant>);

impl Turns {
    pub(super) async fn next(&self) -> Turn {
        let free_at = Arc::clone(&self.0).lock_owned().await;
        sleep_until(*free_at).await;
        Turn(free_at)
    }
}

impl Turn {
    /// The lock, which was held since `since`, is free again.
    pub(super) fn held_since(mut self, since: Instant) {
        *self.0 = Instant::now() + since.elapsed().min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_lock_is_left_alone_for_as_long_as_it_was_held() {
        let turns = Turns::default();
        let began = Instant::now();
        let turn = turns.next().await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let others = turns.clone();
        let next = tokio::spawn(async move { others.next().await });
        turn.held_since(began);
        let held = began.elapsed();
        let next = next.await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(60), "{held:?}");
        // A turn that took no lock makes nobody wait longer.
        drop(next);
        let turn = turns.next().await;
        turn.held_since(Instant::now() - Duration::from_secs(5));
        let pause = turns.0.lock().await.duration_since(Instant::now());
        assert!(pause <= PAUSE_MAX, "{pause:?}");
    }
}
