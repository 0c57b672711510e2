use std::time::Duration;

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, DestinationStatus, HAND_OVERS, PageBuilder,
    ParkedEvent, ParkedFilter, ParkedState, RelayShare, RelayStatus, Status, StoreError,
    StoredEvent, StoredFields, audit,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    DestinationRow, Inner, MemberRow, MemoryMode, MemoryStore, ParkedRow, RelayRow, wall_after,
    wall_micros,
};

impl DestinationRow {
    /// Whether this event is still to be delivered: not passed, or passed over because its key
    /// waits.
    pub(super) fn is_pending(&self, mode: MemoryMode, event: &StoredEvent) -> bool {
        let blocked = event.key().and_then(|key| self.markers.get(key));
        match (mode, blocked) {
            (MemoryMode::Log, Some(&at)) => event.seq() > at,
            _ => !self.is_passed(mode, event),
        }
    }

    /// The word of the owners counts, then that of another one that has tried, then what was said
    /// last.
    pub(super) fn breaker(&self) -> &str {
        let owners = self.owners();
        let is_cut_off = |(relay, member): (&Uuid, &MemberRow)| {
            member.reaches == Some(false) && owners.contains(relay)
        };
        match (self.members.iter().any(is_cut_off), self.breaker.as_str()) {
            (true, "closed") => "open",
            (false, _) if self.is_reached() => "closed",
            (_, stored) => stored,
        }
    }

    fn is_reached(&self) -> bool {
        let mut members = self.members.values();
        members.any(|member| member.reaches == Some(true))
    }

    /// Of one who does not reach it, or what was said last unless somebody does.
    fn last_error(&self) -> Option<String> {
        let mut cut_off = self.members.values();
        let told =
            cut_off.find(|member| member.reaches == Some(false) && member.last_error.is_some());
        let said_last = self.breaker() != "closed" || !self.is_reached();
        told.and_then(|member| member.last_error.clone())
            .or_else(|| self.last_error.clone().filter(|_| said_last))
    }

    fn relay_share(&self, relay: Uuid) -> RelayShare {
        let owned = || self.partitions.iter().filter(|p| p.owner == Some(relay));
        RelayShare {
            destination: self.name.clone(),
            partitions: u32::from(self.owned(relay)),
            epoch: owned().map(|partition| partition.epoch).max().unwrap_or(0),
            reaches: self.members.get(&relay).and_then(|member| member.reaches),
        }
    }
}

impl ParkedRow {
    fn act(&mut self, action: DeadAction) -> Result<(), StoreError> {
        match action {
            DeadAction::Retry => {
                self.state = ParkedState::Parked;
                self.attempts = 0;
                self.due = Some(Instant::now());
            }
            DeadAction::Skip => self.skip(),
            DeadAction::Discard => {
                self.skip();
                self.state = ParkedState::Discarded;
                self.event = without_payload(&self.event)?;
            }
        }
        Ok(())
    }

    fn skip(&mut self) {
        self.state = ParkedState::Skipped;
        self.due = None;
        self.settled_at = Some(wall_micros());
    }
}

impl Means<'_> {
    fn means(&self, destination: &str, row: &ParkedRow) -> bool {
        let Self(filter) = self;
        let state = match filter.state {
            Some(state) => row.state == state,
            None => row.waits(),
        };
        state
            && filter
                .destination
                .as_ref()
                .is_none_or(|name| name == destination)
            && filter.id.is_none_or(|id| row.event.id() == id)
            && filter
                .key
                .as_deref()
                .is_none_or(|key| row.event.key() == Some(key))
    }
}

/// Gives a filter its meaning here.
struct Means<'a>(&'a ParkedFilter);

fn age(oldest: Option<i64>) -> Option<Duration> {
    let micros = wall_micros().saturating_sub(oldest?);
    Some(Duration::from_micros(
        u64::try_from(micros).unwrap_or_default(),
    ))
}

fn count(rows: impl Iterator) -> u64 {
    rows.count() as u64
}

impl Inner {
    fn destination_status(&self, mode: MemoryMode, row: &DestinationRow) -> DestinationStatus {
        let pending: Vec<_> = self
            .log
            .iter()
            .filter(|event| row.is_pending(mode, event))
            .collect();
        let parked = |state| count(row.parked.iter().filter(|parked| parked.state == state));
        let owners: Vec<&RelayRow> = self.live(row.owners()).collect();
        DestinationStatus {
            name: row.name.clone(),
            address: row.address.clone(),
            state: row.state,
            pending: count(pending.iter()),
            pending_exact: true,
            parked: parked(ParkedState::Parked),
            dead: parked(ParkedState::Dead),
            blocked_keys: row.markers.len() as u64,
            oldest_pending_age: age(pending.first().map(|event| event.inserted_at())),
            breaker: row.breaker().to_owned(),
            last_error: row.last_error(),
            relay: owners.first().map(|relay| relay.name.clone()),
            accepted_per_second: self
                .live(self.relays.keys().copied())
                .filter_map(|relay| relay.rates.get(&row.name).copied())
                .reduce(|a, b| a + b),
        }
    }

    /// Skipped copies that a removed destination left go to the one that has its name now. Not those
    /// whose event that one reads in the log, or has a copy of: it sends them itself.
    fn adopt(&mut self, filter: &ParkedFilter) {
        for index in (0..self.destinations.len()).rev() {
            let name = self.destinations[index].name.clone();
            let Some(named) = self.find(&name).filter(|&named| named != index) else {
                continue;
            };
            let left = std::mem::take(&mut self.destinations[index].parked);
            let copies = &self.destinations[named].parked;
            let is_known = |event: &StoredEvent| {
                let mut known = copies.iter().map(|copy| &copy.event).chain(&self.log);
                known.any(|other| other.seq() == event.seq())
            };
            let goes = |row: &ParkedRow| Means(filter).means(&name, row) && !is_known(&row.event);
            let (gone, left): (Vec<_>, _) = left.into_iter().partition(goes);
            self.destinations[index].parked = left;
            self.destinations[named].parked.extend(gone);
        }
    }

    fn live(&self, relays: impl IntoIterator<Item = Uuid>) -> impl Iterator<Item = &RelayRow> {
        let relays = relays
            .into_iter()
            .filter_map(|relay| self.relays.get(&relay));
        relays.filter(|relay| relay.is_live())
    }

    fn relay_status(&self, registration: Uuid, row: &RelayRow) -> RelayStatus {
        let destinations = self.destinations.iter();
        let served = destinations.filter(|d| d.members.contains_key(&registration));
        let mut shares: Vec<RelayShare> = served.map(|d| d.relay_share(registration)).collect();
        shares.sort_by(|one, other| one.destination.cmp(&other.destination));
        RelayStatus {
            registration,
            name: row.name.clone(),
            host: row.host.clone(),
            started_at: row.started_at,
            version: row.version.clone(),
            state: match (row.fenced, row.is_live()) {
                (true, _) => "fenced",
                (false, true) => "live",
                (false, false) => "expired",
            }
            .to_owned(),
            lease_expires_at: row.lease_until_wall,
            partitions: shares.iter().map(|share| share.partitions).sum(),
            leaving: row.leaving,
            shares,
        }
    }
}

#[async_trait]
impl Admin for MemoryStore {
    async fn status(&self) -> Result<Status, StoreError> {
        let (inner, mode) = (self.lock(), self.mode);
        let destinations: Vec<_> = inner
            .destinations
            .iter()
            .filter(|row| row.state != DestinationState::Removed)
            .collect();
        let pending: Vec<_> = inner
            .log
            .iter()
            .filter(|event| destinations.iter().any(|row| row.is_pending(mode, event)))
            .collect();
        let relays = inner.relays.iter();
        let relays = relays.map(|(registration, row)| inner.relay_status(*registration, row));
        Ok(Status {
            pending: count(pending.iter()),
            pending_exact: true,
            oldest_pending_age: age(pending.first().map(|event| event.inserted_at())),
            destinations: destinations
                .iter()
                .map(|row| inner.destination_status(mode, row))
                .collect(),
            relays: relays.collect(),
            retained_bytes: inner.log.iter().map(|event| event.footprint() as u64).sum(),
            retained: inner.retained(mode),
        })
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        let inner = self.lock();
        let lines = inner.audit.iter().rev();
        let lines = lines.filter(|line| HAND_OVERS.contains(&line.action.as_str()));
        Ok(lines.take(limit).cloned().collect())
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let inner = self.lock();
        let destinations = inner.destinations.iter();
        let all = destinations.flat_map(|d| d.parked.iter().map(move |row| (d, row)));
        let meant = all.filter(|(destination, row)| Means(filter).means(&destination.name, row));
        let seen = meant.take(limit).map(|(destination, row)| ParkedEvent {
            destination: destination.name.clone(),
            state: row.state,
            attempts: row.attempts,
            kind: row.kind.clone(),
            reason: row.reason.clone(),
            parked_at: row.parked_at,
            due_at: row
                .due
                .map(|due| wall_after(due.saturating_duration_since(Instant::now()))),
            holds_key: row.event.key().is_some() && row.holds_key(),
            event: row.event.clone(),
        });
        Ok(seen.collect())
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        let (mut inner, mut acted) = (self.lock(), Vec::new());
        if filter.undoes_skipping(action) {
            inner.adopt(filter);
        }
        for destination in &mut inner.destinations {
            let (name, markers) = (&destination.name, &destination.markers);
            let is_kept = destination.state != DestinationState::Removed;
            for row in &mut destination.parked {
                let key = row.event.key();
                let has_gone_on = key.is_none_or(|key| !markers.contains_key(key));
                let is_open = filter.acts_on(action, row.state, is_kept, has_gone_on);
                // A copy that waits for its turn only by its id, since its key is to go on with it.
                let by_id = filter.id.is_some() && action != DeadAction::Retry;
                let is_acted_on = is_open && (by_id || !row.waits_for_its_turn());
                if is_acted_on && Means(filter).means(name, row) {
                    acted.push((name.clone(), row.event.id(), row.event.seq()));
                    row.act(action)?;
                }
            }
        }
        for (name, id, seq) in &acted {
            inner.note(audit::acted(action), None, Some(name), &[id, seq]);
        }
        Ok(count(acted.iter()))
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        let mut inner = self.lock();
        let Some(index) = inner.find(name) else {
            return Ok(false);
        };
        let members = inner.destinations[index].members.keys().copied();
        let served_by = inner.live(members).next();
        if let (DestinationState::Removed, Some(relay)) = (state, served_by) {
            return Err(StoreError::Misconfigured {
                operation: "removing a destination",
                reason: format!("relay `{}` delivers to `{name}`; stop it first", relay.name),
            });
        }
        let row = &mut inner.destinations[index];
        if std::mem::replace(&mut row.state, state) == state {
            return Ok(true);
        }
        let closed = match state {
            DestinationState::Removed => {
                row.members.clear();
                let waiting = row.parked.iter_mut().filter(|parked| parked.waits());
                waiting.map(ParkedRow::skip).count()
            }
            DestinationState::Active | DestinationState::Paused => 0,
        };
        let words = audit::destination_set(state);
        inner.note(words, None, Some(name), &[&closed]);
        Ok(true)
    }
}

fn without_payload(event: &StoredEvent) -> Result<StoredEvent, StoreError> {
    use posthaste_engine::Field::{
        CausationId, ContentType, CorrelationId, Key, TenantId, Topic, Traceparent, Tracestate,
        Type,
    };
    let fields = [
        Topic,
        Key,
        Type,
        ContentType,
        CorrelationId,
        CausationId,
        TenantId,
        Traceparent,
        Tracestate,
    ];
    let fields = StoredFields {
        seq: event.seq(),
        id: event.id(),
        occurred_at: event.occurred_at(),
        inserted_at: event.inserted_at(),
        slot: event.slot(),
        texts: fields.map(|field| event.text(field)),
        payload: None,
    };
    let mut page = PageBuilder::default();
    let pushed = page.push(&fields, event.headers());
    pushed
        .ok()
        .and_then(|()| page.finish().pop())
        .ok_or_else(|| StoreError::Bug {
            operation: "erasing a payload",
            reason: "the event does not fit a page".into(),
        })
}
