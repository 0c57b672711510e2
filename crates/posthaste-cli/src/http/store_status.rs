//! The store's own numbers, asked for when somebody wants them, and no more often than is cheap.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{Status, Store};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tracing::debug;

/// Counting what waits costs the database; several watchers share one answer.
const EVERY: Duration = Duration::from_secs(5);
/// A scrape must not hang because the database does: scrapers give up after ten seconds.
const ANSWER_MAX: Duration = Duration::from_millis(1_500);

pub(super) struct StoreStatus {
    store: Arc<dyn Store>,
    /// When the store was asked last, and what it answered.
    last: Mutex<Option<(Instant, Option<Arc<Status>>)>>,
}

impl StoreStatus {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            last: Mutex::default(),
        }
    }

    /// The numbers, a few seconds old at the most; none when the store does not answer in time,
    /// since older ones would be taken for new.
    pub(super) async fn fresh(self: &Arc<Self>) -> Option<Arc<Status>> {
        let this = Arc::clone(self);
        // A task of its own: nobody's patience ends a question in the middle, and a store that
        // hangs is asked once.
        let asked = tokio::spawn(async move { this.shared().await });
        timeout(ANSWER_MAX, asked).await.ok()?.ok()?
    }

    async fn shared(&self) -> Option<Arc<Status>> {
        let mut last = self.last.lock().await;
        if let Some((asked, status)) = &*last
            && asked.elapsed() < EVERY
        {
            return status.clone();
        }
        let asked = Instant::now();
        let status = match self.store.status().await {
            Ok(status) => Some(Arc::new(status)),
            Err(error) => {
                debug!("no numbers of the store: {error}");
                None
            }
        };
        *last = Some((asked, status.clone()));
        status
    }
}
