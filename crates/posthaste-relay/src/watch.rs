//! A value that tasks watch. As tokio's channel of this name, but who waits first is woken first:
//! that one wakes in a random order that no caller can seed, and a simulated run could not be
//! replayed.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use tokio::sync::Notify;

#[derive(Debug)]
struct Inner<T> {
    value: RwLock<T>,
    /// Raised by every change.
    version: AtomicU64,
    changed: Notify,
}

impl<T> Inner<T> {
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes the value. Clones change the same.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Inner<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Watches the value.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    inner: Arc<Inner<T>>,
    seen: u64,
}

impl<T> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Inner {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            changed: Notify::new(),
        }))
    }

    /// A receiver for whom the present value is no news.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver {
            inner: Arc::clone(&self.0),
            seen: self.0.version.load(SeqCst),
        }
    }

    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.read()
    }

    pub(crate) fn send_replace(&self, value: T) {
        self.send_modify(|old| *old = value);
    }

    pub(crate) fn send_modify(&self, change: impl FnOnce(&mut T)) {
        {
            let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut value);
            self.0.version.fetch_add(1, SeqCst);
        }
        self.0.changed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read()
    }

    /// The value, which is no news from now on.
    pub(crate) fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.inner.read();
        self.seen = self.inner.version.load(SeqCst);
        value
    }

    /// Waits for news. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let version = self.inner.version.load(SeqCst);
            if version != self.seen {
                self.seen = version;
                return;
            }
            changed.await;
        }
    }

    /// Waits until the value is as wanted. Cancel safe.
    pub(crate) async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        while !wanted(&self.borrow_and_update()) {
            self.changed().await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            seen: self.seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use super::*;

    #[tokio::test]
    async fn news_is_told_once_and_a_clone_knows_what_it_was_cloned_from() {
        let sender = Sender::new(1);
        let mut receiver = sender.subscribe();
        sender.send_replace(2);
        let mut clone = receiver.clone();
        receiver.changed().await;
        assert_eq!((*receiver.borrow(), *clone.borrow_and_update()), (2, 2));
        for receiver in [&mut receiver, &mut clone] {
            let again = tokio::time::timeout(Duration::from_millis(1), receiver.changed());
            assert!(again.await.is_err());
        }
        sender.send_modify(|value| *value += 1);
        clone.wait_for(|value| *value == 3).await;
    }

    #[tokio::test]
    async fn who_waits_first_is_woken_first() {
        let (sender, woken) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
                tokio::spawn(async move {
                    receiver.changed().await;
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_replace(1);
        for task in tasks {
            task.await.unwrap();
        }
        let woken = woken.lock().unwrap();
        assert!(woken.is_sorted() && woken.len() == 20, "{woken:?}");
    }
}
