//! Reads what released keys have behind their markers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError, StoredEvent};

use super::{
    Inner, MemoryMode, MemoryStore,
    handed_out::HandedOut,
    lock,
    ownership::Held,
    pages::{last, page, place, read},
};

pub(super) struct MemorySideRead {
    pub(super) store: MemoryStore,
    pub(super) held: Arc<Held>,
    /// Mark mode.
    pub(super) handed_out: Arc<Mutex<HandedOut>>,
    /// Where each key's marker stood: in log mode it reads on there.
    pub(super) starts: BTreeMap<String, i64>,
    pub(super) place: i64,
    /// The keys of the pages since the last advance.
    pub(super) touched: BTreeSet<String>,
    /// Where the last of them ends.
    pub(super) end: Option<Cursor>,
}

#[async_trait]
impl SideRead for MemorySideRead {
    fn leave(&mut self, keys: &[String]) {
        for key in keys {
            self.starts.remove(key);
            self.touched.remove(key);
        }
        lock(&self.handed_out).side.forget(keys);
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let until = place(until);
        if self.guarded()?.mode == MemoryMode::Mark {
            return self.next_unfinished(budget, until).await;
        }
        let inner = self.store.lock();
        // Not by the log's cursor: the main group has passed these keys' events over.
        let wanted = |event: &StoredEvent| {
            let start = event.order_key().and_then(|key| self.starts.get(key));
            start.is_some_and(|&start| event.seq() > start)
        };
        let order = inner.tables.order_of(self.held.claim.destination_id);
        let (events, read_to) = read(&inner.log, order, (self.place, until), budget, wanted);
        self.place = read_to;
        let keys = events.iter().filter_map(StoredEvent::order_key);
        self.touched.extend(keys.map(str::to_owned));
        let caught_up = read_to >= until.min(last(&inner.log));
        let page = page(&inner, &self.held, events, read_to, true, caught_up);
        self.end = Some(page.end.clone());
        Ok(page)
    }

    async fn advance(&mut self, at: &Cursor, finished: &[i64]) -> Result<(), StoreError> {
        let mut inner = self.store.lock();
        self.held.guard(&inner, "advancing a block marker")?;
        let id = self.held.claim.destination_id;
        for key in &self.touched {
            if let Some(marker) = inner.tables.markers.get_mut(&(id, key.clone())) {
                marker.position = marker.position.max(place(at));
            }
        }
        if inner.mode == MemoryMode::Mark {
            inner.finish(id, finished.iter().copied());
            lock(&self.handed_out).marked(finished);
        }
        if self.end.as_ref().is_some_and(|end| end.is(at)) {
            self.touched.clear();
        }
        Ok(())
    }
}

impl MemorySideRead {
    /// The store, as long as the claim is the newest.
    fn guarded(&self) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let inner = self.store.lock();
        self.held.guard(&inner, "reading a released key")?;
        Ok(inner)
    }

    /// The events of the keys that are not marked, up to a number.
    async fn next_unfinished(&mut self, budget: Budget, until: i64) -> Result<Page, StoreError> {
        let (rows, mut page) = {
            let inner = self.guarded()?;
            let mut handed_out = lock(&self.handed_out);
            handed_out.side.begin_read(|_| false);
            let reads = |key: &str| self.starts.contains_key(key);
            let rows = inner.unfinished(self.held.claim.destination_id);
            let rows = rows
                .take_while(|event| event.seq() <= until)
                .filter(|event| event.order_key().is_some_and(reads));
            let rows: Vec<_> = rows.take(handed_out.side.rows(budget)).collect();
            (
                rows,
                page(&inner, &self.held, Vec::new(), until, true, true),
            )
        };
        self.store.answer().await;
        (page.events, page.caught_up) = lock(&self.handed_out).side.take(rows, budget);
        Ok(page)
    }
}
