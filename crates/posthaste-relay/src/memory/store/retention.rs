use async_trait::async_trait;
use posthaste_engine::{
    AUDIT_RETENTION, DestinationState, Housekeeping, PARKED_RETENTION, ParkedState, Pin, PinKind,
    Registered, Retained, Retention, RetentionMode, StoreError, StoredEvent, audit,
};

use super::{DestinationRow, Inner, MemoryMode, MemoryStore, ParkedRow, wall_micros};

/// Events that one step looks at.
const STEP: usize = 1_000;

fn ago(window: std::time::Duration) -> i64 {
    wall_micros().saturating_sub(i64::try_from(window.as_micros()).unwrap_or(i64::MAX))
}

impl Inner {
    pub(super) fn kept_destinations(&self) -> impl Iterator<Item = &DestinationRow> {
        let rows = self.destinations.iter();
        rows.filter(|row| row.state != DestinationState::Removed)
    }

    fn may_go(&self, mode: MemoryMode, event: &StoredEvent) -> bool {
        self.kept_destinations().next().is_some()
            && self
                .kept_destinations()
                .all(|row| !row.is_pending(mode, event))
    }

    fn remove_delivered(&mut self, mode: MemoryMode, done: &mut Housekeeping) {
        let before = ago(self.retention);
        let is_old = |event: &StoredEvent| event.inserted_at() <= before;
        let going: Vec<i64> = self
            .log
            .iter()
            .filter(|event| is_old(event) && self.may_go(mode, event))
            .map(StoredEvent::seq)
            .take(STEP)
            .collect();
        self.log
            .retain(|event| going.binary_search(&event.seq()).is_err());
        done.events = going.len() as u64;
        done.more = going.len() == STEP;
    }

    /// As the other stores do it; here a follower of a blocked key keeps nothing but itself.
    fn evacuate(&mut self, mode: MemoryMode, by: Option<&str>, done: &mut Housekeeping) {
        let before = ago(self.retention);
        let mut copies = Vec::new();
        let rows = self.destinations.iter_mut();
        for row in rows.filter(|row| row.state != DestinationState::Removed) {
            let evacuated = done.evacuated;
            let mut reach = 0;
            let marked = row.markers.clone().into_iter();
            let held: Vec<_> = marked.filter(|(key, _)| row.holds(key)).collect();
            for (key, behind) in held {
                let followers = self
                    .log
                    .iter()
                    .filter(|event| event.key() == Some(&*key) && event.seq() > behind);
                let passed_over = |event: &&StoredEvent| {
                    let passed = row.partition_of(event.slot()).cursor;
                    mode == MemoryMode::Mark || event.seq() <= passed
                };
                let going: Vec<StoredEvent> = followers
                    .take_while(|event| event.inserted_at() <= before && passed_over(event))
                    .cloned()
                    .collect();
                for event in going {
                    row.markers.insert(key.clone(), event.seq());
                    reach = reach.max(event.seq());
                    if mode == MemoryMode::Mark && !row.finished.insert(event.seq()) {
                        continue;
                    }
                    row.parked.push(ParkedRow {
                        id: self.next_parked_id,
                        event,
                        state: ParkedState::Parked,
                        attempts: 0,
                        kind: "evacuated".into(),
                        reason: "waits for its turn behind an earlier event of its key".into(),
                        parked_at: wall_micros(),
                        settled_at: None,
                        tried_at: wall_micros(),
                        due: None,
                    });
                    self.next_parked_id += 1;
                    done.evacuated += 1;
                }
            }
            copies.push((row.name.clone(), done.evacuated - evacuated, reach));
        }
        for (name, copies, reach) in copies.iter().filter(|(_, copies, _)| *copies > 0) {
            self.note(audit::EVACUATE, by, Some(name), &[copies, reach]);
        }
    }

    fn remove_settled(&mut self, by: Option<&str>, done: &mut Housekeeping) {
        let before = ago(PARKED_RETENTION);
        let mut forgotten = Vec::new();
        for destination in &mut self.destinations {
            destination.parked.retain(|row| {
                let goes = row.settled().is_some_and(|at| at <= before);
                done.parked += u64::from(goes);
                if goes && row.state == ParkedState::Dead {
                    let (id, seq) = (row.event.id(), row.event.seq());
                    forgotten.push((destination.name.clone(), id, seq));
                }
                !goes
            });
        }
        for (name, id, seq) in &forgotten {
            self.note(audit::FORGET, by, Some(name), &[id, seq]);
        }
    }

    fn remove_audit(&mut self, done: &mut Housekeeping) {
        let (lines, before) = (self.audit.len(), ago(AUDIT_RETENTION));
        self.audit.retain(|line| line.at > before);
        done.audit = (lines - self.audit.len()) as u64;
    }

    pub(super) fn retained(&self, mode: MemoryMode) -> Retained {
        let before = ago(self.retention);
        let pinned: Vec<_> = self
            .log
            .iter()
            .filter(|event| event.inserted_at() <= before && !self.may_go(mode, event))
            .collect();
        let mut pins = Vec::new();
        if !pinned.is_empty() && self.kept_destinations().next().is_none() {
            pins.push(Pin {
                kind: PinKind::NoDestination,
                destination: None,
                key: None,
                detail: "there is no destination".into(),
            });
        }
        for row in self.kept_destinations() {
            let waits = pinned
                .iter()
                .copied()
                .filter(|event| row.is_pending(mode, event));
            let (blocked, behind): (Vec<&StoredEvent>, Vec<&StoredEvent>) = waits
                .partition(|event| event.key().is_some_and(|key| row.markers.contains_key(key)));
            if !behind.is_empty() {
                pins.push(row.pin(PinKind::Destination, None));
            }
            for key in row.markers.keys() {
                if blocked.iter().any(|event| event.key() == Some(key)) {
                    pins.push(row.pin(PinKind::Key, Some(key.clone())));
                }
            }
        }
        Retained {
            mode: RetentionMode::Delete,
            advice: None,
            configured_window: self.retention,
            window: self.retention,
            debt_events: pinned.len() as u64,
            debt_exact: true,
            pins,
        }
    }
}

impl ParkedRow {
    /// Since when nothing waits for it, and it was not attempted. A dead event that holds its key
    /// waits for an operator, however long.
    fn settled(&self) -> Option<i64> {
        match self.state {
            ParkedState::Parked => None,
            ParkedState::Dead if self.event.key().is_some() && self.holds_key() => None,
            ParkedState::Dead => {
                let settled_at = self.settled_at.unwrap_or(self.parked_at);
                Some(settled_at.max(self.tried_at))
            }
            ParkedState::Skipped | ParkedState::Discarded | ParkedState::Delivered => {
                self.settled_at
            }
        }
    }
}

impl DestinationRow {
    fn pin(&self, kind: PinKind, key: Option<String>) -> Pin {
        let detail = match (kind, self.state) {
            (PinKind::Key, _) => "it waits behind a parked event",
            (_, DestinationState::Paused) => "it is paused",
            _ => "it has not passed them yet",
        };
        Pin {
            kind,
            destination: Some(self.name.clone()),
            key,
            detail: detail.into(),
        }
    }
}

#[async_trait]
impl Retention for MemoryStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let (mut inner, mut done) = (self.lock(), Housekeeping::default());
        let by = by.map(|by| inner.name_of(by.registration));
        inner.evacuate(self.mode, by.as_deref(), &mut done);
        inner.remove_delivered(self.mode, &mut done);
        inner.remove_settled(by.as_deref(), &mut done);
        inner.remove_audit(&mut done);
        Ok(done)
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        Ok(self.lock().retained(self.mode))
    }
}
