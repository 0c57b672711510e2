//! The outbox at a glance.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use mysql_async::params;
use posthaste_engine::{
    DestinationStatus, OrderBy, Partitions, RelayShare, RelayStatus, Status, StoreError,
};

use super::{
    bits,
    connection::{Fields, Work, clock, micros, until},
    destination::with_breaker,
    error::unexpected,
    marker_rows::place,
    place::Place,
    retention::retained,
    row,
    settings::uuid,
    shares::host,
};
use crate::{held_places, wanted::wanted};

/// Up to here pending events are counted one by one.
const PENDING_EXACT_MAX: u64 = 100_000;
/// Rows that one count looks at.
const ROWS_LOOKED_AT_MAX: u64 = 200_000;
/// A relay whose lease ended longer ago is not shown.
const RELAYS_SHOWN: Duration = Duration::from_secs(24 * 3_600);

/// The outbox at a glance, in one snapshot.
pub(super) async fn status(work: &mut Work) -> Result<Status, StoreError> {
    let now = clock(work).await?;
    let live = live(work, now).await?;
    let mut progresses = Vec::new();
    let mut destinations = Vec::new();
    let sql = with_breaker(include_str!("sql/status_destinations.sql"));
    let rows = work.rows(&sql, params! { "now" => now }).await?;
    for row in &rows {
        let (id, partitions): (i64, u16) = (row.get(0)?, row.get(11)?);
        let destination = destination(work.operation(), row, &live)?;
        let of = (id, &*destination.address);
        progresses.push(Progress::read(work, of, partitions).await?);
        destinations.push(destination);
    }
    let last = last_seq(work).await?;
    let rows = Rows::read(work, &progresses, last).await?;
    for (destination, progress) in destinations.iter_mut().zip(&progresses) {
        let own = rows.pending(std::slice::from_ref(progress));
        destination.pending = own.events;
        destination.pending_exact = own.exact;
        destination.oldest_pending_age = own.oldest_inserted_at.map(|at| until(at, now));
    }
    let together = rows.pending(&progresses);
    Ok(Status {
        pending: together.events,
        pending_exact: together.exact,
        oldest_pending_age: together.oldest_inserted_at.map(|at| until(at, now)),
        destinations,
        relays: relays(work, now).await?,
        retained_bytes: retained_bytes(work).await?,
        retained: retained(work).await?,
    })
}

async fn last_seq(work: &mut Work) -> Result<u64, StoreError> {
    let sql = "select coalesce(max(seq), 0) from posthaste_outbox";
    work.one(sql, ()).await?.get(0)
}

/// The words of live relays.
struct Live {
    rates: Vec<serde_json::Value>,
    places: Vec<String>,
}

async fn live(work: &mut Work, now: i64) -> Result<Live, StoreError> {
    let sql = "select rates, places from posthaste_relays \
               where fenced_at is null and lease_expires_at > :now";
    let rows = work.rows(sql, params! { "now" => now }).await?;
    let mut live = Live {
        rates: Vec::new(),
        places: Vec::new(),
    };
    for row in &rows {
        // For people alone: a text that cannot be read tells nothing.
        live.rates
            .extend(serde_json::from_str::<serde_json::Value>(&row.text(0)?).ok());
        live.places
            .extend(Some(row.text(1)?).filter(|places| !places.is_empty()));
    }
    Ok(live)
}

fn destination(
    operation: &'static str,
    row: &Fields,
    live: &Live,
) -> Result<DestinationStatus, StoreError> {
    let name = row.text(1)?;
    let wanted = wanted(operation, &row.text(3)?, &row.text(4)?)?;
    let (places_held, places) = held_places::read(&name, &live.places);
    let rates = live
        .rates
        .iter()
        .filter_map(|rates| rates.get(&name)?.as_f64());
    let rates: Vec<f64> = rates.collect();
    Ok(DestinationStatus {
        address: row.text(2)?,
        state: wanted.state,
        paused_places: wanted.paused_places,
        pending: 0,
        pending_exact: true,
        parked: row.get(7)?,
        dead: row.get(8)?,
        blocked_keys: row.get(9)?,
        oldest_pending_age: None,
        breaker: row.text(5)?,
        last_error: row.text_opt(6)?,
        relay: row.text_opt(10)?,
        accepted_per_second: (!rates.is_empty()).then(|| rates.iter().sum()),
        places_held,
        places,
        name,
    })
}

/// A destination's progress, which decides whether an event is finished.
struct Progress {
    groups: Vec<(Partitions, Place)>,
    order_by: OrderBy,
    markers: HashMap<String, Place>,
    /// Parked, but not passed by the cursor yet.
    parked_ahead: HashSet<u64>,
}

impl Progress {
    async fn read(
        work: &mut Work,
        (id, target): (i64, &str),
        count: u16,
    ) -> Result<Self, StoreError> {
        let of = params! { "id" => id };
        let sql =
            "select partitions, high, holes from posthaste_cursors where destination_id = :id";
        let rows = work.rows(sql, of).await?;
        let operation = work.operation();
        let mut groups = Vec::new();
        for row in &rows {
            let partitions = bits::partitions(operation, &row.get::<Vec<u8>>(0)?, count)?;
            groups.push((partitions, place(row, 1, 2)?));
        }
        let of = params! { "id" => id };
        let sql = "select `key`, high, holes from posthaste_markers where destination_id = :id";
        let rows = work.rows(sql, of).await?;
        let marker = |row: &Fields| Ok((row.text(0)?, place(row, 1, 2)?));
        let markers = rows.iter().map(marker).collect::<Result<_, StoreError>>()?;
        let floor = groups.iter().map(|(_, place)| place.floor()).min();
        let of = params! { "id" => id, "floor" => floor.unwrap_or(0) };
        let sql = "select seq from posthaste_parked where destination_id = :id and seq > :floor";
        let rows = work.rows(sql, of).await?;
        let ahead = rows.iter().map(|row| row.get(0));
        Ok(Self {
            groups,
            order_by: OrderBy::of_target(target).0,
            markers,
            parked_ahead: ahead.collect::<Result<_, _>>()?,
        })
    }

    fn has_pending(&self, row: &Row) -> bool {
        let Row {
            seq, slot, topic, ..
        } = row;
        let (seq, slot) = (*seq, *slot);
        let group = self
            .groups
            .iter()
            .find(|(partitions, _)| partitions.contains_slot(slot));
        if !group.is_some_and(|(_, place)| place.has_seen(seq)) {
            return !self.parked_ahead.contains(&seq);
        }
        let key = row.key.as_deref();
        let key = key.map(|key| self.order_by.order_key(topic, key));
        let marker = key.and_then(|key| self.markers.get(&*key));
        marker.is_some_and(|marker| !marker.has_seen(seq)) && !self.parked_ahead.contains(&seq)
    }

    /// Everything up to here is finished.
    fn lowest(&self) -> u64 {
        let places = self.groups.iter().map(|(_, place)| place);
        let places = places.chain(self.markers.values());
        places.map(Place::floor).min().unwrap_or(0)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Pending {
    events: u64,
    exact: bool,
    oldest_inserted_at: Option<i64>,
}

/// A row of the outbox.
struct Row {
    seq: u64,
    slot: u16,
    topic: String,
    key: Option<String>,
    inserted_at: i64,
}

/// The rows behind everything that all destinations have finished.
struct Rows {
    rows: Vec<Row>,
    /// Numbers behind the last one that was looked at, at the most.
    rest: u64,
}

impl Rows {
    async fn read(work: &mut Work, all: &[Progress], last: u64) -> Result<Self, StoreError> {
        let after = all.iter().map(Progress::lowest).min().unwrap_or(last);
        let sql = format!(
            "select o.seq, o.slot, o.topic, o.`key`, \
             coalesce(timestampdiff(microsecond, '1970-01-01', o.inserted_at), 0) \
             from posthaste_outbox as o where o.seq > {after} order by o.seq \
             limit {ROWS_LOOKED_AT_MAX}"
        );
        let operation = work.operation();
        let mut rows = Vec::new();
        work.query_each(&sql, |row| {
            let (seq, slot) = row::place(operation, &row)?;
            let row = Fields::of(operation, row);
            rows.push(Row {
                seq,
                slot,
                topic: row.text(2)?,
                key: row.text_opt(3)?,
                inserted_at: row.get(4)?,
            });
            Ok(())
        })
        .await?;
        let looked_at: u64 = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let end = rows.last().map_or(last, |row| row.seq);
        let rest = match looked_at < ROWS_LOOKED_AT_MAX {
            true => 0,
            false => last.saturating_sub(end),
        };
        Ok(Self { rows, rest })
    }

    /// Events that at least one of the destinations has not finished; without any, none.
    fn pending(&self, destinations: &[Progress]) -> Pending {
        let mut pending = Pending {
            exact: true,
            ..Pending::default()
        };
        if destinations.is_empty() {
            return pending;
        }
        for (at, row) in self.rows.iter().enumerate() {
            if pending.events >= PENDING_EXACT_MAX {
                let left = u64::try_from(self.rows.len() - at).unwrap_or(u64::MAX);
                pending.events += left + self.rest;
                pending.exact = false;
                return pending;
            }
            if destinations.iter().any(|one| one.has_pending(row)) {
                pending.events += 1;
                pending.oldest_inserted_at.get_or_insert(row.inserted_at);
            }
        }
        pending.events += self.rest;
        pending.exact = self.rest == 0;
        pending
    }
}

async fn relays(work: &mut Work, now: i64) -> Result<Vec<RelayStatus>, StoreError> {
    let of = params! { "now" => now, "since" => now.saturating_sub(micros(RELAYS_SHOWN)) };
    let rows = work.rows(include_str!("sql/status_relays.sql"), of).await?;
    let mut relays = Vec::new();
    for row in &rows {
        let registration = row.text(0)?;
        let shares = relay_shares(work, &registration).await?;
        relays.push(RelayStatus {
            registration: uuid(work.operation(), &registration)?,
            name: row.text(1)?,
            host: host(row, 2)?,
            started_at: row.get(6)?,
            version: row.text(7)?,
            state: row.text(8)?,
            lease_expires_at: row.get(9)?,
            leaving: row.flag(10)?,
            partitions: shares.iter().map(|share| share.partitions).sum(),
            shares,
        });
    }
    Ok(relays)
}

async fn relay_shares(work: &mut Work, registration: &str) -> Result<Vec<RelayShare>, StoreError> {
    let of = params! { "registration" => registration };
    let rows = work.rows(include_str!("sql/status_shares.sql"), of).await?;
    let mut shares: Vec<RelayShare> = Vec::new();
    for row in &rows {
        let destination = row.text(0)?;
        let bytes: Option<Vec<u8>> = row.get(1)?;
        let own = BTreeSet::from_iter(bits::decode(&bytes.unwrap_or_default())).len();
        let own = u32::try_from(own).unwrap_or(u32::MAX);
        let epoch = row.get::<Option<i64>>(2)?.unwrap_or(0);
        let epoch =
            u64::try_from(epoch).map_err(|_| unexpected(work.operation(), "a negative epoch"))?;
        match shares
            .last_mut()
            .filter(|last| last.destination == destination)
        {
            Some(last) => {
                last.partitions += own;
                last.epoch = last.epoch.max(epoch);
            }
            None => shares.push(RelayShare {
                destination,
                partitions: own,
                epoch,
                reaches: row.get::<Option<i64>>(3)?.map(|reaches| reaches != 0),
            }),
        }
    }
    Ok(shares)
}

async fn retained_bytes(work: &mut Work) -> Result<u64, StoreError> {
    let sql = include_str!("sql/retained_bytes.sql");
    work.one(sql, ()).await?.get(0)
}
