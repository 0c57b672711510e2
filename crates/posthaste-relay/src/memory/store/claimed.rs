use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use posthaste_engine::{
    AdvanceOutcome, AfterFailure, Budget, Claim, ClaimMarkers, ClaimParking, ClaimProgress,
    ClaimReader, ClaimReports, Cursor, Due, DueAt, Marker, Page, Parking, PutOff, SetAside,
    Settlement, SideRead, StoreError, StoredEvent,
    rule::{Rule, left_out},
};
use uuid::Uuid;

use super::{
    Inner, MemoryMode, MemoryStore,
    handed_out::HandedOut,
    lock,
    ownership::Held,
    pages::{last, page, place, read},
    side_read::MemorySideRead,
    wall_micros,
};

/// A claim on a memory store.
#[derive(Debug)]
pub(super) struct MemoryClaimed {
    store: MemoryStore,
    held: Arc<Held>,
    /// Mark mode.
    handed_out: Arc<Mutex<HandedOut>>,
    /// Log mode: the last event that was handed out.
    read: Mutex<i64>,
    /// Log mode: where the foremost partitions stood. Those behind are read up to here first; in
    /// between they stand at several places, and no side read can join.
    foremost: i64,
}

impl MemoryClaimed {
    pub(super) fn open(store: &MemoryStore, claim: &Claim) -> Result<Self, StoreError> {
        let operation = "opening a claim";
        let held = Arc::clone(&claim.inner)
            .downcast::<Held>()
            .map_err(|_| StoreError::Bug {
                operation,
                reason: "the claim is of another store".into(),
            })?;
        let inner = store.lock();
        held.guard(&inner, operation)?;
        let rows = || inner.tables.cursors_of_claim(&held.claim);
        let places = || rows().map(|(_, row)| row.position);
        let (hindmost, foremost) = (places().min(), places().max());
        drop(inner);
        Ok(Self {
            store: store.clone(),
            held,
            handed_out: Arc::default(),
            read: Mutex::new(hindmost.unwrap_or_default()),
            foremost: foremost.unwrap_or_default(),
        })
    }

    /// The store, as long as this claim is the newest.
    fn lock(&self, operation: &'static str) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let inner = self.store.lock();
        self.held.guard(&inner, operation)?;
        Ok(inner)
    }

    fn handed_out(&self) -> MutexGuard<'_, HandedOut> {
        lock(&self.handed_out)
    }

    fn id(&self) -> i64 {
        self.held.claim.destination_id
    }

    fn owns(&self) -> impl Fn(u16) -> bool {
        |slot| self.held.owns(slot)
    }
}

/// Pages of the main group.
impl MemoryClaimed {
    fn next_of_log(&self, inner: &Inner, budget: Budget) -> Page {
        let mut place = lock(&self.read);
        // One pass in the order of commits serves every position: each partition's own cursor says
        // what of it is passed.
        let order = inner.tables.order_of(self.id());
        let (events, mut read_to) = read(&inner.log, order, (*place, i64::MAX), budget, |event| {
            self.held.owns(event.slot()) && !inner.is_passed(self.id(), event)
        });
        let caught_up = read_to >= last(&inner.log);
        if caught_up {
            // Rows that the foremost have passed may have been removed since.
            read_to = read_to.max(self.foremost);
        }
        *place = read_to;
        let joinable = read_to >= self.foremost;
        page(inner, &self.held, events, read_to, joinable, caught_up)
    }

    /// The events that are neither marked nor handed out, of keys that do not wait. Each place is
    /// joinable: its number is the greatest that was visible, and bounds a side read.
    async fn next_unfinished(&self, budget: Budget) -> Result<Page, StoreError> {
        let (rows, mut page) = {
            let inner = self.lock("reading events")?;
            let mut handed_out = self.handed_out();
            let id = self.id();
            let waits = |key: &str| inner.tables.is_marked(id, key);
            handed_out.main.begin_read(waits);
            let may_move = |event: &StoredEvent| {
                left_out(Rule::BlockedKeysFillNoPage) || !event.order_key().is_some_and(&waits)
            };
            let rows = inner.unfinished(id).filter(may_move);
            let rows = rows.filter(|event| self.held.owns(event.slot()));
            let rows: Vec<_> = rows.take(handed_out.main.rows(budget)).collect();
            let place = last(&inner.log);
            (
                rows,
                page(&inner, &self.held, Vec::new(), place, true, true),
            )
        };
        self.store.answer().await;
        (page.events, page.caught_up) = self.handed_out().main.take(rows, budget);
        Ok(page)
    }
}

#[async_trait]
impl ClaimReader for MemoryClaimed {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        {
            let inner = self.lock("reading events")?;
            if inner.mode == MemoryMode::Log {
                return Ok(self.next_of_log(&inner, budget));
            }
        }
        self.next_unfinished(budget).await
    }
}

#[async_trait]
impl ClaimProgress for MemoryClaimed {
    async fn advance(
        &self,
        up_to: &Cursor,
        finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        let mut inner = self.lock("advancing the cursor")?;
        match inner.mode {
            MemoryMode::Log => {
                let rows = inner.tables.cursors.values_mut();
                for row in rows.filter(|row| row.is_of(&self.held.claim)) {
                    row.position = row.position.max(place(up_to));
                }
            }
            MemoryMode::Mark => {
                inner.finish(self.id(), finished.iter().copied());
                self.handed_out().marked(finished);
            }
        }
        Ok(AdvanceOutcome::default())
    }
}

#[async_trait]
impl ClaimParking for MemoryClaimed {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        let inner = self.lock("reading what is set aside")?;
        let ours = inner.tables.cursors_of_claim(&self.held.claim);
        // Those of a mark store are marked.
        let ours = ours.filter(|_| inner.mode == MemoryMode::Log);
        let hindmost = ours.map(|(_, row)| row.position).min();
        Ok(inner.tables.set_aside(self.id(), hindmost, self.owns()))
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        let inner = &mut *self.lock("parking")?;
        if inner.mode == MemoryMode::Mark {
            let mut handed_out = self.handed_out();
            let mut done = Vec::new();
            for Parking { event, next, .. } in events {
                done.push(event.seq());
                let is_marked = |key| inner.tables.is_marked(self.id(), key);
                let marks = *next != AfterFailure::Skip || event.order_key().is_some_and(is_marked);
                if marks && event.key().is_some() {
                    // Nobody names them in an advance, if this relay dies now.
                    done.extend(handed_out.before(event));
                }
            }
            inner.finish(self.id(), done.iter().copied());
            handed_out.marked(&done);
        }
        for parking in events {
            let (at, now) = (place(&parking.at), wall_micros());
            inner.tables.park(self.held.of(), parking.clone(), at, now);
        }
        Ok(())
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let inner = self.lock("looking for due events")?;
        let now = wall_micros();
        Ok(inner.tables.due(self.id(), self.owns(), limit, now))
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        let inner = self.lock("looking for what was put off")?;
        let now = wall_micros();
        let tables = &inner.tables;
        Ok(tables.put_off(self.id(), self.owns(), after, limit, now))
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let (mut inner, now) = (self.lock("settling a parked event")?, wall_micros());
        inner.tables.settle(self.held.of(), id, settlement, now);
        Ok(())
    }
}

#[async_trait]
impl ClaimMarkers for MemoryClaimed {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        let inner = self.lock("reading block markers")?;
        let cursor = |at: &i64| Cursor::whole(Arc::new(*at));
        let tables = &inner.tables;
        Ok(tables.markers(self.id(), (after, limit), self.owns(), cursor))
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let inner = self.lock("asking for block markers")?;
        Ok(inner.tables.marked(self.id(), keys))
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        let operation = "beginning a side read";
        let inner = self.lock(operation)?;
        let ours = inner.tables.markers_of(self.id(), self.owns()).into_iter();
        let asked = ours.filter(|(key, _)| keys.iter().any(|asked| asked == key));
        let starts: BTreeMap<String, i64> = asked
            .map(|(key, row)| (key.to_owned(), row.position))
            .collect();
        let place = starts.values().copied().min();
        let place = place
            .filter(|_| starts.len() == keys.len())
            .ok_or(StoreError::Bug {
                operation,
                reason: "a key has no block marker".into(),
            })?;
        let (store, held) = (self.store.clone(), Arc::clone(&self.held));
        self.handed_out().side.forget(keys);
        Ok(Box::new(MemorySideRead {
            store,
            held,
            handed_out: Arc::clone(&self.handed_out),
            starts,
            place,
            touched: BTreeSet::new(),
            end: None,
        }))
    }

    async fn join(&self, keys: &[String], _at: &Cursor) -> Result<(), StoreError> {
        const OPERATION: &str = "joining released keys";
        let (mut inner, now) = (self.lock(OPERATION)?, wall_micros());
        let joined = inner.tables.join(self.held.of(), keys.to_vec(), now);
        if joined == keys.len() {
            self.handed_out().main.forget(keys);
            return Ok(());
        }
        Err(StoreError::Bug {
            operation: OPERATION,
            reason: "a key has no block marker, or a parked event still holds it".into(),
        })
    }
}

#[async_trait]
impl ClaimReports for MemoryClaimed {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let mut inner = self.lock("reporting the destination's state")?;
        inner.tables.report(self.held.of(), breaker, last_error);
        Ok(())
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let mut inner = self.lock("storing the destination's cluster")?;
        let now = wall_micros();
        Ok(inner.tables.reached(self.held.of(), cluster, now))
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        let mut inner = self.lock("recording fences that were taken")?;
        inner.tables.fences_taken(&self.held.claim, former);
        Ok(())
    }
}
