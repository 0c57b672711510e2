//! Views and acts of operators.

use std::time::Duration;

use uuid::Uuid;

use super::{DestinationRow, ParkedRow, RelayRow, Tables, from_micros};
use crate::{
    DeadAction, DestinationState, DestinationStatus, ParkedEvent, ParkedFilter, ParkedState,
    RelayShare, RelayStatus, Retained, Status, StoreError, StoredEvent, audit, merge_places,
};

/// Relays that are gone for longer are not told of.
const GONE: i64 = 24 * 3_600 * 1_000_000;

impl<P> Tables<P> {
    /// As [`crate::Admin::status`]. `events`: those of the outbox, each with the destinations that
    /// have not finished it.
    pub fn status<'a>(
        &self,
        events: impl Iterator<Item = (&'a StoredEvent, Vec<i64>)>,
        retained: Retained,
        now: i64,
    ) -> Status {
        let told = self.kept_destinations();
        let mut status = Status {
            pending: 0,
            pending_exact: true,
            oldest_pending_age: None,
            destinations: told
                .clone()
                .map(|(id, row)| self.destination_status(id, row, now))
                .collect(),
            relays: Vec::new(),
            retained_bytes: 0,
            retained,
        };
        for (event, pending_at) in events {
            status.retained_bytes += event.footprint() as u64;
            let age = from_micros(now - event.inserted_at());
            let older =
                |than: &mut Option<Duration>| *than = Some(age.max(than.unwrap_or_default()));
            for ((id, _), destination) in told.clone().zip(&mut status.destinations) {
                if pending_at.contains(&id) {
                    destination.pending += 1;
                    older(&mut destination.oldest_pending_age);
                }
            }
            if !pending_at.is_empty() {
                status.pending += 1;
                older(&mut status.oldest_pending_age);
            }
        }
        status.destinations.sort_by(|a, b| a.name.cmp(&b.name));
        let relays = self
            .relays
            .iter()
            .filter(|(_, row)| row.lease_until > now - GONE);
        let relays = relays.map(|(registration, row)| self.relay_status(*registration, row, now));
        status.relays = relays.collect();
        status
            .relays
            .sort_by_key(|relay| (relay.started_at, relay.registration));
        status
    }

    fn relay_share(
        &self,
        relay: Uuid,
        id: i64,
        destination: &DestinationRow,
    ) -> Option<RelayShare> {
        let member = self.members.get(&(id, relay));
        let owned = || self.owned_by(id, relay);
        let partitions = owned().map(|(cursor, _)| self.partitions_of(id, cursor).len());
        let partitions: usize = partitions.sum();
        let epoch = owned().map(|(_, row)| row.epoch).max().unwrap_or(0);
        (member.is_some() || partitions > 0).then(|| RelayShare {
            destination: destination.name.clone(),
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            epoch: u64::try_from(epoch).unwrap_or(0),
            reaches: member.and_then(|row| row.reaches),
        })
    }

    fn relay_status(&self, registration: Uuid, row: &RelayRow, now: i64) -> RelayStatus {
        let kept = self.kept_destinations();
        let shares = kept.filter_map(|(id, of)| self.relay_share(registration, id, of));
        let mut shares: Vec<RelayShare> = shares.collect();
        shares.sort_by(|a, b| a.destination.cmp(&b.destination));
        let mut members = self.members.iter();
        RelayStatus {
            registration,
            name: row.name.clone(),
            host: row.host.clone(),
            started_at: row.started_at,
            version: row.version.clone(),
            state: match (row.fenced, row.is_live(now)) {
                (true, _) => "fenced",
                (false, true) => "live",
                (false, false) => "expired",
            }
            .to_owned(),
            lease_expires_at: row.lease_until,
            partitions: shares.iter().map(|share| share.partitions).sum(),
            leaving: members.any(|((_, relay), row)| *relay == registration && row.leaving),
            shares,
        }
    }

    /// `status_destinations.sql`. Events are counted elsewhere.
    fn destination_status(&self, id: i64, row: &DestinationRow, now: i64) -> DestinationStatus {
        let parked = |state| {
            let rows = self.parked.values();
            let of = rows.filter(|row| row.destination_id == id && row.state == state);
            of.count() as u64
        };
        let owners = self.owners(id);
        let owners = owners.into_iter().filter_map(|relay| self.live(relay, now));
        let mut names: Vec<&str> = owners.map(|relay| relay.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let live = self.relays.values().filter(|relay| relay.is_live(now));
        let told: Vec<_> = live.filter_map(|of| of.report.get(&row.name)).collect();
        let rates = told.iter().map(|told| told.accepted_per_second);
        let places = told.iter().map(|of| (of.places_held, of.places.clone()));
        let (places_held, places) = merge_places(places);
        DestinationStatus {
            name: row.name.clone(),
            address: row.address.clone(),
            state: row.wanted.state,
            paused_places: row.wanted.paused_places.clone(),
            pending: 0,
            pending_exact: true,
            parked: parked(ParkedState::Parked),
            dead: parked(ParkedState::Dead),
            blocked_keys: self.markers_of(id, |_| true).len() as u64,
            oldest_pending_age: None,
            breaker: self.breaker(id).to_owned(),
            last_error: self.last_error(id),
            relay: (!names.is_empty()).then(|| names.join(", ")),
            accepted_per_second: rates.reduce(|a, b| a + b),
            places_held,
            places,
        }
    }

    /// As [`crate::Admin::parked`].
    pub fn parked_events(&self, filter: &ParkedFilter, limit: usize) -> Vec<ParkedEvent> {
        let meant = self
            .parked
            .values()
            .filter(|row| self.is_meant(filter, row));
        let seen = meant.filter_map(|row| {
            Some(ParkedEvent {
                destination: self.name_of(row.destination_id)?,
                state: row.state,
                attempts: row.attempts,
                kind: row.kind.clone(),
                reason: row.reason.clone(),
                parked_at: row.parked_at,
                due_at: row.due_at,
                holds_key: row.event.key().is_some() && row.holds_key(),
                event: row.event.clone(),
            })
        });
        seen.take(limit).collect()
    }

    fn is_meant(&self, filter: &ParkedFilter, row: &ParkedRow) -> bool {
        let of = self.destinations.get(&row.destination_id);
        let state = filter.state.map_or(row.waits(), |state| row.state == state);
        let key = filter.key.as_deref();
        let name = filter.destination.as_ref();
        state
            && of.is_some_and(|of| name.is_none_or(|name| *name == of.name))
            && filter.id.is_none_or(|id| row.event.id() == id)
            && key.is_none_or(|key| row.event.key() == Some(key))
    }

    /// As [`crate::Admin::act`].
    pub fn act(&mut self, filter: &ParkedFilter, action: DeadAction, now: i64) -> u64 {
        if filter.undoes_skipping(action) {
            self.adopt(filter);
        }
        let meant = self
            .parked
            .iter()
            .filter(|(_, row)| self.is_acted_on(filter, action, row));
        let meant: Vec<i64> = meant.map(|(id, _)| *id).collect();
        for id in &meant {
            if let Some(row) = self.parked.get_mut(id) {
                row.act(action, now);
                let (of, id, seq) = (row.destination_id, row.event.id(), row.event.seq());
                self.note(now, None, audit::acted(action), Some(of), &[&id, &seq]);
            }
        }
        meant.len() as u64
    }

    /// `dead_act.sql`. A copy that waits for its turn is meant by its id alone: its key is to go on
    /// with it.
    fn is_acted_on(&self, filter: &ParkedFilter, action: DeadAction, row: &ParkedRow) -> bool {
        let marker = row
            .event
            .order_key()
            .map(|key| (row.destination_id, key.to_owned()));
        let has_gone_on = marker.is_none_or(|marker| !self.markers.contains_key(&marker));
        let of = self.destinations.get(&row.destination_id);
        let is_kept = of.is_some_and(DestinationRow::is_kept);
        let by_id = filter.id.is_some() && action != DeadAction::Retry;
        self.is_meant(filter, row)
            && filter.acts_on(action, row.state, is_kept, has_gone_on)
            && (by_id || !row.waits_for_its_turn())
    }

    /// `dead_adopt.sql`.
    fn adopt(&mut self, filter: &ParkedFilter) {
        let names = |id| self.destinations.get(&id).map(|of| of.name.as_str());
        let adopted: Vec<(i64, i64)> = self
            .parked
            .iter()
            .filter(|(_, row)| self.is_meant(filter, row))
            .filter_map(|(id, row)| {
                let (name, seq) = (names(row.destination_id)?, row.event.seq());
                let named = self.destination_id(name)?;
                let is_newest = !self.parked.iter().any(|(other, copy)| {
                    copy.event.seq() == seq
                        && names(copy.destination_id) == Some(name)
                        && (copy.destination_id == named || other > id)
                });
                is_newest.then_some((*id, named))
            })
            .collect();
        for (id, named) in adopted {
            let order = self.order_of(named);
            if let Some(row) = self.parked.get_mut(&id) {
                row.destination_id = named;
                row.event = row.event.clone().ordered_by(order);
            }
        }
    }

    /// `place_set.sql`.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] as [`crate::Admin::set_place`].
    pub fn set_place(
        &mut self,
        name: &str,
        (place, paused): (&str, bool),
        now: i64,
    ) -> Result<bool, StoreError> {
        let id = self.destination_id(name);
        let row = id.and_then(|id| Some((id, self.destinations.get_mut(&id)?)));
        let Some((id, row)) = row else {
            return Ok(false);
        };
        if row.wanted.set_place(place, paused, "pause a place")? {
            self.note(now, None, audit::place_set(paused), Some(id), &[&place]);
        }
        Ok(true)
    }

    /// `destination_set.sql`, then `destination_held.sql` where that changed nothing.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] as [`crate::Admin::set_destination`].
    pub fn set_destination(
        &mut self,
        name: &str,
        state: DestinationState,
        now: i64,
    ) -> Result<bool, StoreError> {
        let Some(id) = self.destination_id(name) else {
            return Ok(false);
        };
        let (removes, mut closed) = (state == DestinationState::Removed, 0);
        let holder = self
            .members_of(id)
            .find_map(|(relay, _)| self.live(relay, now));
        if let Some(relay) = holder.filter(|_| removes) {
            return Err(StoreError::is_held(
                "set the destination",
                name,
                &relay.name,
                0,
            ));
        }
        let row = self.destinations.get_mut(&id);
        if row.is_none_or(|row| std::mem::replace(&mut row.wanted.state, state) == state) {
            return Ok(true);
        }
        if removes {
            self.cursors.retain(|_, row| row.destination_id != id);
            self.members.retain(|(of, _), _| *of != id);
            self.markers.retain(|(of, _), _| *of != id);
            let parked = self.parked.values_mut();
            for row in parked.filter(|row| row.destination_id == id && row.waits()) {
                row.close(ParkedState::Skipped, now);
                closed += 1;
            }
        }
        self.note(
            now,
            None,
            audit::destination_set(state),
            Some(id),
            &[&closed],
        );
        Ok(true)
    }
}
