//! Reads what released keys have behind their markers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError, StoredEvent};

use super::{
    MemoryMode, MemoryStore,
    ownership::Held,
    pages::{last, page, place, read},
};

pub(super) struct MemorySideRead {
    pub(super) store: MemoryStore,
    pub(super) held: Arc<Held>,
    /// Where each key's marker stood.
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
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let inner = self.store.lock();
        self.held.guard(&inner, "reading a released key")?;
        let (id, until) = (self.held.claim.destination_id, place(until));
        // Not by the log's cursor: the main group has passed these keys' events over.
        let wanted = |event: &StoredEvent| {
            let marked = inner.mode == MemoryMode::Mark && inner.is_passed(id, event);
            let start = event.key().and_then(|key| self.starts.get(key));
            start.is_some_and(|&start| event.seq() > start) && !marked
        };
        let (events, read_to) = read(&inner.log, self.place, until, budget, wanted);
        self.place = read_to;
        let keys = events.iter().filter_map(StoredEvent::key);
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
        }
        if self.end.as_ref().is_some_and(|end| end.is(at)) {
            self.touched.clear();
        }
        Ok(())
    }
}
