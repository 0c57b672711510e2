use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    AdvanceOutcome, AfterFailure, AuditWords, Budget, Claim, ClaimMarkers, ClaimParking,
    ClaimProgress, ClaimReader, ClaimReports, Cursor, DestinationState, Due, EventRef, Marker,
    Page, ParkedCopy, ParkedState, Parking, Settlement, SideRead, StoreError, StoredEvent, audit,
    was_never_tried,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    DestinationRow, Inner, MemoryMode, MemoryStore, ParkedRow, PartitionRow, ownership::Held,
    side_read::MemorySideRead, wall_micros,
};

/// A claim on a memory store.
#[derive(Debug)]
pub(super) struct MemoryClaimed {
    store: MemoryStore,
    held: Arc<Held>,
    /// The last event that was handed out.
    read: Mutex<i64>,
    /// Where the foremost partitions stood. Those behind are read up to here first; in between they
    /// stand at several places, and no side read can join.
    foremost: i64,
}

impl Held {
    /// The destination, if this claim is still the newest in this incarnation.
    pub(super) fn row<'a>(
        &self,
        inner: &'a mut Inner,
        operation: &'static str,
    ) -> Result<&'a mut DestinationRow, StoreError> {
        if inner.incarnation != self.incarnation {
            return Err(StoreError::IncarnationChanged { operation });
        }
        let owner_fenced = inner
            .relays
            .get(&self.registration)
            .is_none_or(|row| row.fenced);
        let row = &mut inner.destinations[self.destination];
        let removed = row.state == DestinationState::Removed;
        if owner_fenced || removed || !self.is_newest(row) {
            return Err(StoreError::Fenced { operation });
        }
        Ok(row)
    }

    /// An owner that lost one partition lost them all: its reads were for all of them.
    fn is_newest(&self, row: &DestinationRow) -> bool {
        let mut ours = self.owned(row);
        ours.all(|p| p.epoch == self.epoch && p.owner == Some(self.registration))
    }

    fn owned<'a>(&'a self, row: &'a DestinationRow) -> impl Iterator<Item = &'a PartitionRow> {
        let of_all = self.partitions.as_slice().iter().zip(&row.partitions);
        of_all.filter(|(owned, _)| **owned).map(|(_, row)| row)
    }

    fn owned_mut<'a>(
        &'a self,
        row: &'a mut DestinationRow,
    ) -> impl Iterator<Item = &'a mut PartitionRow> {
        let of_all = self.partitions.as_slice().iter().zip(&mut row.partitions);
        of_all.filter(|(owned, _)| **owned).map(|(_, row)| row)
    }

    fn owns_key(&self, key: &str) -> bool {
        self.partitions.contains_slot(posthaste::slot(key))
    }
}

pub(super) fn place(cursor: &Cursor) -> i64 {
    cursor
        .seq()
        .or_else(|| cursor.base::<i64>().copied())
        .unwrap_or_default()
}

/// The events of the log that `wanted` names, behind `after`, within the budget; and the place up
/// to which the log was looked at.
pub(super) fn read(
    log: &[StoredEvent],
    after: i64,
    until: i64,
    budget: Budget,
    wanted: impl Fn(&StoredEvent) -> bool,
) -> (Vec<StoredEvent>, i64) {
    // The rows there may have gone since.
    let all = after.max(until.min(last(log)));
    let (mut events, mut bytes, mut place) = (Vec::new(), 0, after);
    let from = log.partition_point(|event| event.seq() <= after);
    for event in log[from..].iter().take_while(|event| event.seq() <= until) {
        if wanted(event) {
            let size = event.footprint();
            let full = events.len() >= budget.events || bytes + size > budget.bytes;
            if full && !events.is_empty() {
                return (events, place);
            }
            bytes += size;
            events.push(event.clone());
        }
        place = event.seq();
    }
    (events, all)
}

pub(super) fn page(
    row: &DestinationRow,
    events: Vec<StoredEvent>,
    place: i64,
    joinable: bool,
    caught_up: bool,
) -> Page {
    Page {
        joinable,
        caught_up,
        shares_version: row.shares_version,
        ..Page::up_to(Arc::new(place), events)
    }
}

pub(super) fn last(log: &[StoredEvent]) -> i64 {
    log.last().map_or(0, StoredEvent::seq)
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
        let mut inner = store.lock();
        let row = held.row(&mut inner, operation)?;
        let places = || held.owned(row).map(|partition| partition.cursor);
        let (hindmost, foremost) = (places().min(), places().max());
        drop(inner);
        Ok(Self {
            store: store.clone(),
            held,
            read: Mutex::new(hindmost.unwrap_or_default()),
            foremost: foremost.unwrap_or_default(),
        })
    }

    fn with<T>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut DestinationRow) -> T,
    ) -> Result<T, StoreError> {
        let mut inner = self.store.lock();
        self.held.row(&mut inner, operation).map(act)
    }

    /// Writes a line of the audit about what the owner did.
    fn note(&self, inner: &mut Inner, words: AuditWords, values: &[&dyn Display]) {
        let relay = inner.name_of(self.held.registration);
        let name = inner.destinations[self.held.destination].name.clone();
        inner.note(words, Some(&relay), Some(&name), values);
    }

    fn read_place(&self) -> MutexGuard<'_, i64> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The meaning of these events' markers for others: everything of their keys up to there is done
/// with. Nobody names it in an advance, if its owner dies now.
fn done_before(log: &[StoredEvent], events: &[Parking]) -> Vec<i64> {
    let of = |parking: &Parking| {
        let (key, at) = (parking.event.key().map(str::to_owned), place(&parking.at));
        let marked = key.is_some() && parking.next != AfterFailure::Skip;
        log.iter()
            .filter(move |event| marked && event.seq() <= at && event.key() == key.as_deref())
    };
    let done = events.iter().flat_map(of);
    done.map(StoredEvent::seq).collect()
}

#[async_trait]
impl ClaimReader for MemoryClaimed {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        let mut inner = self.store.lock();
        self.held.row(&mut inner, "reading events")?;
        let mode = self.store.mode;
        let row = &inner.destinations[self.held.destination];
        let mut place = self.read_place();
        // One pass in the order of commits serves every position: each partition's own cursor says
        // what of it is passed.
        let (events, mut read_to) = read(&inner.log, *place, i64::MAX, budget, |event| {
            self.held.partitions.contains_slot(event.slot()) && !row.is_passed(mode, event)
        });
        let caught_up = read_to >= last(&inner.log);
        if caught_up {
            // Rows that the foremost have passed may have been removed since.
            read_to = read_to.max(self.foremost);
        }
        *place = read_to;
        let joinable = read_to >= self.foremost;
        Ok(page(row, events, read_to, joinable, caught_up))
    }
}

#[async_trait]
impl ClaimProgress for MemoryClaimed {
    async fn advance(
        &self,
        up_to: &Cursor,
        finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        let mode = self.store.mode;
        self.with("advancing the cursor", |row| {
            match mode {
                MemoryMode::Log => {
                    for partition in self.held.owned_mut(row) {
                        partition.cursor = partition.cursor.max(place(up_to));
                    }
                }
                MemoryMode::Mark => row.finished.extend(finished),
            }
            AdvanceOutcome::default()
        })
    }
}

#[async_trait]
impl ClaimParking for MemoryClaimed {
    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError> {
        self.with("reading what is set aside", |row| {
            let hindmost = self.held.owned(row).map(|partition| partition.cursor).min();
            let again = |parked: &&ParkedRow| Some(parked.event.seq()) > hindmost;
            let parked = row.parked.iter().filter(again);
            parked.map(|parked| parked.event.reference()).collect()
        })
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        let mut inner = self.store.lock();
        let mut next_id = inner.next_parked_id;
        let done = match self.store.mode {
            MemoryMode::Log => Vec::new(),
            MemoryMode::Mark => done_before(&inner.log, events),
        };
        let row = self.held.row(&mut inner, "parking")?;
        row.finished.extend(done);
        let mut lines = Vec::new();
        for parking in events {
            let state = parking.next.state();
            let (id, seq) = (parking.event.id(), parking.event.seq());
            lines.push((audit::parked_as(state), id, seq, parking.kind));
            row.parked.push(ParkedRow {
                id: next_id,
                event: parking.event.clone(),
                state,
                attempts: parking.attempts,
                kind: parking.kind.to_owned(),
                reason: parking.reason.clone(),
                parked_at: wall_micros(),
                settled_at: (!state.waits()).then(wall_micros),
                tried_at: wall_micros(),
                due: parking.next.retry_in().map(|wait| Instant::now() + wait),
            });
            next_id += 1;
            // A skipped event leaves no marker, but takes along one that stands.
            if let Some(key) = parking.event.key()
                && (parking.next != AfterFailure::Skip || row.markers.contains_key(key))
            {
                row.markers.insert(key.to_owned(), place(&parking.at));
            }
            if self.store.mode == MemoryMode::Mark {
                row.finished.insert(parking.event.seq());
            }
        }
        inner.next_parked_id = next_id;
        for (words, id, seq, kind) in &lines {
            self.note(&mut inner, *words, &[id, seq, kind]);
        }
        Ok(())
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        self.with("looking for due events", |row| due(row, &self.held, limit))
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let mut inner = self.store.lock();
        let row = self.held.row(&mut inner, "settling a parked event")?;
        let attempted = settlement.attempted();
        let copy = row.parked.iter_mut().find(|parked| parked.id == id);
        let Some(parked) = copy.filter(|parked| attempted.changes(parked.state)) else {
            return Ok(());
        };
        parked.attempts += 1;
        parked.tried_at = wall_micros();
        parked.state = attempted.state;
        parked.due = attempted.retry_in.map(|wait| Instant::now() + wait);
        if parked.state != ParkedState::Delivered {
            attempted.kind.clone_into(&mut parked.kind);
            attempted.reason.clone_into(&mut parked.reason);
        }
        if !parked.waits() {
            parked.settled_at = Some(wall_micros());
        }
        let (event, seq, attempts) = (parked.event.id(), parked.event.seq(), parked.attempts);
        if let Some(words) = audit::settled_as(parked.state) {
            self.note(
                &mut inner,
                words,
                &[&event, &seq, &attempts, &attempted.kind],
            );
        }
        Ok(())
    }
}

#[async_trait]
impl ClaimMarkers for MemoryClaimed {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        self.with("reading block markers", |row| {
            let marker = |(key, &at): (&String, &i64)| Marker {
                key: key.clone(),
                at: Cursor::whole(Arc::new(at)),
                released: !row.holds(key),
            };
            let all = row.markers.iter();
            let behind = all.filter(|(key, _)| after.is_none_or(|after| key.as_str() > after));
            let ours = behind.filter(|(key, _)| self.held.owns_key(key));
            ours.take(limit).map(marker).collect()
        })
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        self.with("asking for block markers", |row| {
            let marked = keys.iter().filter(|key| row.markers.contains_key(*key));
            marked.cloned().collect()
        })
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        let operation = "beginning a side read";
        let ours = keys.iter().filter(|key| self.held.owns_key(key));
        let starts: BTreeMap<String, i64> = self.with(operation, |row| {
            ours.filter_map(|key| row.markers.get(key).map(|&at| (key.clone(), at)))
                .collect()
        })?;
        let place = starts.values().copied().min();
        let place = place
            .filter(|_| starts.len() == keys.len())
            .ok_or(StoreError::Bug {
                operation,
                reason: "a key has no block marker".into(),
            })?;
        let (store, held) = (self.store.clone(), Arc::clone(&self.held));
        Ok(Box::new(MemorySideRead {
            store,
            held,
            starts,
            place,
            touched: BTreeSet::new(),
            end: None,
        }))
    }

    async fn join(&self, keys: &[String], _at: &Cursor) -> Result<(), StoreError> {
        let mut inner = self.store.lock();
        let row = self.held.row(&mut inner, "joining released keys")?;
        for key in keys {
            row.markers.remove(key);
        }
        self.note(&mut inner, audit::JOIN, &[&keys.len()]);
        Ok(())
    }
}

#[async_trait]
impl ClaimReports for MemoryClaimed {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        self.with("reporting the destination's state", |row| {
            breaker.clone_into(&mut row.breaker);
            row.last_error = last_error.map(str::to_owned);
            let reaches = match breaker {
                "open" => Some(false),
                "closed" => Some(true),
                // On trial: not known again yet.
                _ => return,
            };
            if let Some(member) = row.members.get_mut(&self.held.registration) {
                row.shares_version += i64::from(member.reaches != reaches);
                member.reaches = reaches;
                member.last_error = last_error.map(str::to_owned);
            }
        })
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let mut inner = self.store.lock();
        let row = self
            .held
            .row(&mut inner, "storing the destination's cluster")?;
        let former = row.cluster.replace(cluster.to_owned());
        let former = former.filter(|former| former != cluster);
        if let Some(former) = &former {
            self.note(&mut inner, audit::CLUSTER_CHANGED, &[former, &cluster]);
        }
        Ok(former)
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        self.with("recording fences that were taken", |row| {
            for partition in self.held.owned_mut(row) {
                // Our own is taken too: that is how a lane is opened.
                let taken = |id: &Uuid| former.contains(id) || *id == self.held.registration;
                partition.former.retain(|id| !taken(id));
            }
        })
    }
}

fn due(row: &DestinationRow, held: &Held, limit: usize) -> Due {
    let now = Instant::now();
    let mut waiting: Vec<&ParkedRow> = row
        .parked
        .iter()
        .filter(|parked| parked.waits() && (parked.due.is_some() || row.has_its_turn(parked)))
        .filter(|parked| held.partitions.contains_slot(parked.event.slot()))
        .collect();
    waiting.sort_by_key(|parked| (parked.due, parked.id));
    let copies = waiting
        .iter()
        .take_while(|parked| parked.due <= Some(now))
        .take(limit);
    let next = waiting
        .iter()
        .filter_map(|parked| parked.due)
        .find(|due| *due > now);
    Due {
        events: copies
            .map(|parked| ParkedCopy {
                id: parked.id,
                event: parked.event.clone(),
                attempts: parked.attempts,
                holds_key: parked.holds_key(),
                never_tried: was_never_tried(&parked.kind),
            })
            .collect(),
        released: row
            .markers
            .keys()
            .filter(|key| held.owns_key(key) && !row.holds(key))
            .cloned()
            .collect(),
        next_in: next.map(|due| {
            due.saturating_duration_since(now)
                .max(Duration::from_millis(1))
        }),
    }
}
