use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_engine::{
    AUDIT_RETENTION, DestinationState, Housekeeping, PARKED_RETENTION, Pin, PinKind, Registered,
    Retained, Retention, RetentionMode, StoreError, StoredEvent, memory_tables::micros,
};
use uuid::Uuid;

use super::{Inner, MemoryMode, MemoryStore, wall_micros};

/// Events that one step looks at.
const STEP: usize = 1_000;

fn ago(window: std::time::Duration) -> i64 {
    wall_micros().saturating_sub(micros(window))
}

impl Inner {
    fn has_destinations(&self) -> bool {
        self.tables.kept_destinations().next().is_some()
    }

    fn may_go(&self, event: &StoredEvent) -> bool {
        self.has_destinations() && self.pending_at(event).is_empty()
    }

    fn remove_delivered(&mut self, done: &mut Housekeeping) {
        let before = ago(self.retention);
        let is_old = |event: &StoredEvent| event.inserted_at() <= before;
        let going: Vec<i64> = self
            .log
            .values()
            .filter(|event| is_old(event) && self.may_go(event))
            .map(StoredEvent::seq)
            .take(STEP)
            .collect();
        self.log.retain(|seq, _| going.binary_search(seq).is_err());
        done.events = going.len() as u64;
        done.more = going.len() == STEP;
    }

    /// As the other stores do it; here a follower of a blocked key keeps nothing but itself.
    fn evacuate(&mut self, by: Option<Uuid>, done: &mut Housekeeping) {
        let (before, now) = (ago(self.retention), wall_micros());
        let mut followers: BTreeMap<i64, Vec<StoredEvent>> = BTreeMap::new();
        let markers = self.tables.markers.iter();
        let held = markers.filter(|((id, key), _)| self.tables.holds(*id, key));
        let held: Vec<_> = held.map(|(of, row)| (of.clone(), row.position)).collect();
        for (of, behind) in held {
            let id = of.0;
            let order = self.tables.order_of(id);
            let events = self.log.values();
            let events = events.map(|event| event.clone().ordered_by(order));
            let follows = |event: &StoredEvent| {
                event.order_key() == Some(&*of.1)
                    && match self.mode {
                        MemoryMode::Log => event.seq() > behind,
                        MemoryMode::Mark => !self.is_passed(id, event),
                    }
            };
            let going = events.filter(follows).take_while(|event| {
                event.inserted_at() <= before
                    && (self.mode == MemoryMode::Mark || self.is_passed(id, event))
            });
            let going: Vec<StoredEvent> = going.collect();
            let last = going.last().map(StoredEvent::seq);
            if let (Some(marker), Some(last)) = (self.tables.markers.get_mut(&of), last) {
                marker.position = last;
            }
            self.finish(id, going.iter().map(StoredEvent::seq));
            followers.entry(id).or_default().extend(going);
        }
        for (id, followers) in followers {
            done.evacuated += followers.len() as u64;
            let reach = followers.iter().map(StoredEvent::seq).max();
            self.tables
                .evacuate(id, followers, reach.unwrap_or_default(), by, now);
        }
    }

    pub(super) fn retained(&self) -> Retained {
        let before = ago(self.retention);
        let old = self
            .log
            .values()
            .filter(|event| event.inserted_at() <= before);
        let pinned: Vec<_> = old.filter(|event| !self.may_go(event)).collect();
        let mut pins = Vec::new();
        if !pinned.is_empty() && !self.has_destinations() {
            pins.push(Pin {
                kind: PinKind::NoDestination,
                destination: None,
                key: None,
                detail: "there is no destination".into(),
            });
        }
        for (id, row) in self.tables.kept_destinations() {
            let pin = |kind, key, detail: &str| Pin {
                kind,
                destination: Some(row.name.clone()),
                key,
                detail: detail.into(),
            };
            let waits = pinned
                .iter()
                .filter(|event| self.pending_at(event).contains(&id));
            let order = self.tables.order_of(id);
            let waits = waits.map(|event| (*event).clone().ordered_by(order));
            let markers = self.tables.markers_of(id, |_| true);
            let is_blocked = |event: &StoredEvent| {
                let mut markers = markers.iter();
                markers.any(|(key, _)| event.order_key() == Some(key))
            };
            let (blocked, behind): (Vec<StoredEvent>, Vec<StoredEvent>) =
                waits.partition(is_blocked);
            if !behind.is_empty() {
                let detail = match row.wanted.state {
                    DestinationState::Paused => "it is paused",
                    _ => "it has not passed them yet",
                };
                pins.push(pin(PinKind::Destination, None, detail));
            }
            for (key, _) in markers {
                if blocked.iter().any(|event| event.order_key() == Some(key)) {
                    let (key, detail) = (order.key_of(key), "it waits behind a parked event");
                    pins.push(pin(PinKind::Key, Some(key.to_owned()), detail));
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

#[async_trait]
impl Retention for MemoryStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let (inner, mut done) = (&mut *self.lock(), Housekeeping::default());
        let (by, now) = (by.map(|by| by.registration), wall_micros());
        inner.evacuate(by, &mut done);
        inner.remove_delivered(&mut done);
        let (tables, all) = (&mut inner.tables, usize::MAX);
        (done.parked, done.attempts) = tables.remove_parked(all, ago(PARKED_RETENTION), by, now);
        done.audit = tables.remove_audit(all, ago(AUDIT_RETENTION));
        Ok(done)
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        Ok(self.lock().retained())
    }
}
