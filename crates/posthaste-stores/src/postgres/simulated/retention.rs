//! Housekeeping: what is due, and the statements, each under the locks that it decides under.

use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    DestinationState, Housekeeping, PARKED_RETENTION, Pin, PinKind, Registered, Retained,
    Retention, RetentionMode, StoreError, audit,
    rule::{Rule, left_out},
};

use super::{
    SimulatedPostgres,
    database::Database,
    evacuate::evacuate,
    server::Connection,
    tables::{CursorRow, OutboxRow, floor, passed},
};
use crate::postgres::{
    micros::{from_micros, micros},
    retention::{
        AUDIT_A_STEP, HousekeepingStatements, PARKED_A_STEP, ROWS_A_DELETE, Truncated,
        script::{ANOTHER, StepOutcome},
        step,
        survey::{Leaf, Survey},
    },
};

const OPERATION: &str = "housekeeping";
const LEAVES: i64 = 16;
/// Looks at a leaf that is in use, before the lock's time is out.
const LOOKS_AT_A_LEAF: u32 = 20;
/// `sql/retention_pins.sql`.
const PINS_MAX: usize = 20;

/// Keeps house for a relay.
struct Housekeeper {
    connection: Connection,
    by: Option<Registered>,
    /// As the last look saw it, without any lock.
    floor: Mutex<Option<i64>>,
}

impl Database {
    /// Rows that a new snapshot sees, behind `seq`.
    pub(super) fn visible_behind(&self, seq: i64) -> impl DoubleEndedIterator<Item = &OutboxRow> {
        let rows = self.now.mvcc.rows.range(seq.saturating_add(1)..);
        rows.map(|(_, row)| row)
            .filter(|row| self.is_completed(row.xid))
    }

    /// `sql/retention_past_window.sql`.
    pub(super) fn is_past_window(&self, row: &OutboxRow, leaf_bits: u8) -> bool {
        let kept = Duration::from_secs(self.now.retention_seconds);
        row.event.inserted_at() <= self.clock() - micros(kept)
            || row.event.seq() <= self.sequence() - (12 << leaf_bits)
    }

    /// `sql/retention_survey.sql`.
    fn survey(&self, leaf_bits: u8) -> Survey {
        let (tables, now) = (&self.now.tables, self.clock());
        let mut leaves: Vec<Leaf> = Vec::new();
        for row in self.visible_behind(i64::MIN) {
            let (seq, number) = (row.event.seq(), leaf_of(row.event.seq(), leaf_bits));
            let age = from_micros(now - row.event.inserted_at());
            match leaves.iter_mut().find(|leaf| leaf.number == number) {
                Some(leaf) => (leaf.greatest, leaf.greatest_age) = (seq, age),
                None => leaves.push(Leaf {
                    number,
                    least: seq,
                    greatest: seq,
                    least_age: age,
                    greatest_age: age,
                }),
            }
        }
        leaves.sort_by_key(|leaf| leaf.number);
        Survey {
            sequence: self.sequence(),
            floor: floor(tables),
            passed: passed(tables),
            leaf_bits: leaf_bits.into(),
            window: Duration::from_secs(self.now.retention_seconds),
            mode: self.now.retention_mode,
            parked_due: tables
                .parked
                .values()
                .any(|row| row.is_settled(kept_until(now))),
            audit_due: tables
                .audit
                .first()
                .is_some_and(|row| row.line.at <= kept_until(now)),
            leaves,
        }
    }

    /// `sql/retention_truncate.sql` under its locks; none: the leaf is in use.
    fn truncate(
        &mut self,
        number: usize,
        leaf_bits: u8,
        by: Option<Registered>,
        floor: Option<i64>,
    ) -> Option<StepOutcome<Truncated>> {
        if self.now.retention_mode == RetentionMode::Delete {
            return Some(StepOutcome::NothingDue);
        }
        let is_of = |seq: i64| leaf_of(seq, leaf_bits) == number;
        if self.reading > 0 || self.is_being_written(is_of) {
            return None;
        }
        let Some(greatest) = self.due(is_of, leaf_bits, floor) else {
            return Some(StepOutcome::NothingDue);
        };
        let mut least = greatest;
        let mut bytes = 0;
        self.now.mvcc.rows.retain(|seq, row| {
            if is_of(*seq) {
                least = least.min(*seq);
                bytes += row.event.footprint() as u64;
            }
            !is_of(*seq)
        });
        let blocked = !self.now.tables.markers.is_empty();
        self.counters.truncations += 1;
        self.counters.truncations_beside_a_blocked_key += u64::from(blocked);
        let now = self.clock();
        let (by, leaf) = (by.map(|by| by.registration), format!("outbox_{number:02}"));
        let values: [&dyn Display; 4] = [&leaf, &least, &greatest, &bytes];
        self.now
            .tables
            .note(now, by, audit::TRUNCATE, None, &values);
        Some(StepOutcome::Done(Truncated {
            least,
            greatest,
            bytes,
        }))
    }

    /// The floor of retention. `before`: as it was before the lock, and must not be taken.
    fn floor(&self, before: Option<i64>) -> Option<i64> {
        if left_out(Rule::TruncationChecksUnderLock) {
            return Some(i64::MAX);
        }
        let before = before.filter(|_| left_out(Rule::FloorReadUnderLock));
        before.or_else(|| floor(&self.now.tables))
    }

    /// The greatest `seq` of a leaf that nobody needs any more, and that is past its time.
    fn due(&self, is_of: impl Fn(i64) -> bool, leaf_bits: u8, floor: Option<i64>) -> Option<i64> {
        let floor = self.floor(floor)?;
        let mut rows = self.visible_behind(i64::MIN);
        let greatest = rows.rfind(|row| is_of(row.event.seq()))?;
        let seq = greatest.event.seq();
        (seq <= floor && self.is_past_window(greatest, leaf_bits)).then_some(seq)
    }

    /// `sql/retention_delete.sql`.
    fn delete(&mut self, number: usize, leaf_bits: u8, floor: Option<i64>) -> u64 {
        let Some(floor) = self.floor(floor) else {
            return 0;
        };
        let rows = self.visible_behind(i64::MIN);
        let of_leaf = rows.filter(|row| leaf_of(row.event.seq(), leaf_bits) == number);
        let passed = of_leaf.take_while(|row| row.event.seq() <= floor);
        let first = passed.take(usize::try_from(ROWS_A_DELETE).unwrap_or(usize::MAX));
        let going: Vec<i64> = first
            .filter(|row| self.is_past_window(row, leaf_bits))
            .map(|row| row.event.seq())
            .collect();
        for seq in &going {
            self.take_back(*seq);
        }
        going.len() as u64
    }

    pub(super) fn retained(&self, leaf_bits: u8) -> Retained {
        let (survey, now) = (self.survey(leaf_bits), self.clock());
        let age = |row: &OutboxRow| from_micros(now - row.event.inserted_at());
        let mut window = survey.window;
        if survey.ring_edge() > 0 {
            let oldest = self.visible_behind(survey.ring_edge()).next();
            window = window.min(oldest.map_or(window, age));
        }
        let behind = self.visible_behind(survey.floor.unwrap_or(0));
        let debt = behind.filter(|row| age(row) >= window).count() as u64;
        let pins = match (survey.floor, debt) {
            (_, 0) => Vec::new(),
            (None, _) => vec![Pin {
                kind: PinKind::NoDestination,
                destination: None,
                key: None,
                detail: "there is no destination: nothing has been delivered".to_owned(),
            }],
            (Some(_), _) => self.pins(window),
        };
        Retained {
            mode: survey.mode,
            advice: None,
            configured_window: survey.window,
            window,
            debt_events: debt,
            debt_exact: true,
            pins,
        }
    }

    /// `sql/retention_pins.sql`.
    fn pins(&self, window: Duration) -> Vec<Pin> {
        let (tables, now) = (&self.now.tables, self.clock());
        let mut places: Vec<(i64, Pin)> = Vec::new();
        for (id, destination) in &tables.destinations {
            let rows = tables.cursors_of(*id);
            let behind = rows.min_by_key(|(id, row)| (row.position.floors.floor_min, *id));
            if let Some((_, row)) = behind {
                let (kind, detail) = self.why(row, destination.wanted.state);
                let pin = Pin {
                    kind,
                    destination: Some(destination.name.clone()),
                    key: None,
                    detail,
                };
                places.push((row.position.floors.floor_min, pin));
            }
        }
        for ((id, key), row) in &tables.markers {
            let pin = Pin {
                kind: PinKind::Key,
                destination: tables.name_of(*id),
                key: Some(tables.order_of(*id).key_of(key).to_owned()),
                detail: "it waits behind a parked event".to_owned(),
            };
            places.push((row.position.floors.floor_min, pin));
        }
        places.sort_by(|(a, pin), (b, other)| a.cmp(b).then_with(|| pin.key.cmp(&other.key)));
        let keeps = |floor_min: i64| {
            let first = self.visible_behind(floor_min).next();
            first.is_some_and(|row| row.event.inserted_at() <= now - micros(window))
        };
        places.retain(|(floor_min, _)| keeps(*floor_min));
        places
            .into_iter()
            .map(|(_, pin)| pin)
            .take(PINS_MAX)
            .collect()
    }

    fn why(&self, row: &CursorRow, state: DestinationState) -> (PinKind, String) {
        let (tables, now) = (&self.now.tables, self.clock());
        let live = row
            .relay
            .is_some_and(|relay| tables.live(relay, now).is_some());
        let mut stragglers = row.position.low.xip().iter();
        if let Some(xid) = stragglers.find(|xid| !self.is_completed(**xid)) {
            return (PinKind::Transaction, format!("transaction {xid} is open"));
        }
        let detail = match (state, live) {
            (DestinationState::Paused, _) => "it is paused",
            (_, false) => "no relay delivers to it",
            _ => "it has not passed them yet",
        };
        (PinKind::Destination, detail.to_owned())
    }
}

fn leaf_of(seq: i64, leaf_bits: u8) -> usize {
    usize::try_from((seq >> leaf_bits).rem_euclid(LEAVES)).unwrap_or(0)
}

/// `sql/retention_parked_due.sql` and `sql/retention_audit.sql`: older rows go.
fn kept_until(now: i64) -> i64 {
    now - micros(PARKED_RETENTION)
}

impl Housekeeper {
    fn looked(&self) -> Option<i64> {
        *self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A deed under the retention lock; none: another one has it.
    async fn locked<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        self.connection.server.step().await;
        let retention = Arc::clone(&self.connection.server.retention);
        let Ok(locked) = retention.try_lock_owned() else {
            return Ok(None);
        };
        let deed = self.connection.change(OPERATION, move |database| {
            let _locked = locked;
            deed(database)
        });
        deed.await.map(Some)
    }
}

fn another<T>() -> StepOutcome<T> {
    StepOutcome::InTheWay(ANOTHER.to_owned())
}

#[async_trait]
impl HousekeepingStatements for Housekeeper {
    async fn survey(&self) -> Result<Survey, StoreError> {
        let leaf_bits = self.connection.server.leaf_bits;
        let look = self
            .connection
            .look(OPERATION, |database| database.survey(leaf_bits));
        let survey = look.await?;
        *self.floor.lock().unwrap_or_else(PoisonError::into_inner) = survey.floor;
        Ok(survey)
    }

    async fn evacuate(&self) -> Result<StepOutcome<u64>, StoreError> {
        let (by, leaf_bits) = (self.by, self.connection.server.leaf_bits);
        let copied = self.locked(move |database| Ok(evacuate(database, leaf_bits, by)));
        Ok(match copied.await? {
            None => another(),
            Some(None) => StepOutcome::NothingDue,
            Some(Some(copied)) => StepOutcome::Done(copied),
        })
    }

    async fn truncate(&self, leaf: &Leaf) -> Result<StepOutcome<Truncated>, StoreError> {
        let (number, by, before) = (leaf.number, self.by, self.looked());
        let leaf_bits = self.connection.server.leaf_bits;
        for _ in 0..LOOKS_AT_A_LEAF {
            let deed =
                move |database: &mut Database| Ok(database.truncate(number, leaf_bits, by, before));
            match self.locked(deed).await? {
                None => return Ok(another()),
                Some(None) => {}
                Some(Some(went)) => return Ok(went),
            }
        }
        Ok(StepOutcome::InTheWay(format!("leaf {number} is in use")))
    }

    async fn delete(&self, leaf: &Leaf) -> Result<StepOutcome<u64>, StoreError> {
        let (number, before) = (leaf.number, self.looked());
        let leaf_bits = self.connection.server.leaf_bits;
        let gone = self.locked(move |database| Ok(database.delete(number, leaf_bits, before)));
        Ok(gone.await?.map_or_else(another, StepOutcome::Done))
    }

    async fn remove_parked(&self) -> Result<(u64, u64), StoreError> {
        let by = self.by.map(|by| by.registration);
        let limit = usize::try_from(PARKED_A_STEP).unwrap_or(usize::MAX);
        let remove = self.connection.change(OPERATION, move |database| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            Ok(tables.remove_parked(limit, kept_until(now), by, now))
        });
        remove.await
    }

    async fn remove_audit(&self) -> Result<u64, StoreError> {
        let remove = self.connection.change(OPERATION, |database| {
            let limit = usize::try_from(AUDIT_A_STEP).unwrap_or(usize::MAX);
            let before = kept_until(database.clock());
            Ok(database.now.tables.remove_audit(limit, before))
        });
        remove.await
    }
}

#[async_trait]
impl Retention for SimulatedPostgres {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let connection = self.connect();
        let turn = self.server.turn.fetch_add(1, Relaxed);
        let keeper = Housekeeper {
            connection,
            by,
            floor: Mutex::default(),
        };
        step(&keeper, turn).await
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        let (connection, leaf_bits) = (self.connect(), self.server.leaf_bits);
        let look = connection.look(OPERATION, |database| database.retained(leaf_bits));
        look.await
    }
}
