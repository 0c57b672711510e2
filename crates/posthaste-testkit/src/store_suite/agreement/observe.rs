//! The view of operators and other relays, without a store's own affairs: ids, times, and
//! the order in which unrelated things come.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use posthaste_engine::{
    DestinationStatus, Field, ParkedEvent, ParkedFilter, ParkedState, RelayStatus, Shares,
};

use super::{
    destinations::DESTINATIONS,
    state::{Driver, Label, World},
};

/// More than any sequence has.
pub(super) const ALL: usize = 100_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) relays: BTreeMap<String, RelaySeen>,
    destinations: BTreeMap<String, DestinationSeen>,
    parked: BTreeMap<(String, Option<String>), Vec<ParkedSeen>>,
    shares: BTreeMap<String, SharesSeen>,
    hand_overs: Vec<(String, Option<String>, Option<String>, String)>,
    /// The least and the most that may be told, of all and of each destination.
    pending: BTreeMap<Option<String>, (u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RelaySeen {
    pub(super) state: String,
    partitions: u32,
    leaving: bool,
    /// Destination, partitions, whether it has an epoch, whether it reaches the broker.
    shares: Vec<(String, u32, bool, Option<bool>)>,
}

#[derive(Debug, PartialEq, Eq)]
struct DestinationSeen {
    address: String,
    state: &'static str,
    paused_places: BTreeSet<String>,
    pending_exact: bool,
    parked: u64,
    dead: u64,
    blocked_keys: u64,
    /// Whether there is an oldest pending event just when there is one.
    has_its_oldest: bool,
    breaker: String,
    last_error: Option<String>,
    is_held: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ParkedSeen {
    label: Label,
    state: &'static str,
    attempts: u32,
    kind: String,
    reason: String,
    is_due: bool,
    has_payload: bool,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SharesSeen {
    partitions: u16,
    members: BTreeSet<MemberSeen>,
    free: u16,
    settling: u16,
    settles: bool,
    dead: u16,
    recut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MemberSeen {
    name: String,
    owned: u16,
    partitions_max: u16,
    leaving: bool,
    reaches: Option<bool>,
}

impl SharesSeen {
    /// Answers whether as many settle. All that share a place may settle with one of them: that is
    /// a store's own affair, and so is what follows from it.
    pub(super) fn assert_agrees(&self, reference: &Self) -> bool {
        let settled = |shares: &Self| Self {
            free: shares.free + shares.settling,
            settling: 0,
            settles: false,
            ..shares.clone()
        };
        same("shares", &settled(self), &settled(reference));
        let as_many = self.settling == reference.settling;
        if as_many {
            same("shares", self, reference);
        }
        assert!(
            self.settling >= reference.settling,
            "settling\n    of the store: {self:?}\n    of the reference: {reference:?}"
        );
        as_many
    }
}

impl Observation {
    /// Answers whether as much settles.
    pub(super) fn assert_agrees(&self, reference: &Self) -> bool {
        same("relays", &self.relays, &reference.relays);
        same("destinations", &self.destinations, &reference.destinations);
        same("events set aside", &self.parked, &reference.parked);
        let names = |seen: &Self| seen.shares.keys().cloned().collect::<Vec<_>>();
        same("destinations with shares", &names(self), &names(reference));
        same("hand-overs", &self.hand_overs, &reference.hand_overs);
        for (of, (told, _)) in &self.pending {
            let (least, most) = reference.pending[of];
            assert!(
                (least..=most).contains(told),
                "pending of {of:?}: {told}, by the reference {least} to {most}"
            );
        }
        let shares = self.shares.values().zip(reference.shares.values());
        shares.fold(true, |alike, (shares, same)| {
            shares.assert_agrees(same) && alike
        })
    }
}

fn same<T: PartialEq + Debug>(what: &str, subject: &T, reference: &T) {
    assert!(
        subject == reference,
        "{what}\n    of the store: {subject:?}\n    of the reference: {reference:?}"
    );
}

pub(super) async fn observe(driver: &Driver, world: &World) -> Observation {
    let status = world.store.status().await.expect("a status");
    let mut relays = BTreeMap::new();
    for relay in &status.relays {
        relays.insert(relay.name.clone(), relay_seen(relay));
    }
    let ahead: BTreeSet<&Label> = driver.shadows.values().flat_map(|s| &s.ahead).collect();
    let most = status.pending + ahead.len() as u64;
    let mut pending = BTreeMap::from([(None, (status.pending, most))]);
    let mut destinations = BTreeMap::new();
    for row in &status.destinations {
        let shadow = driver.shadows.get(&row.name);
        let ahead = shadow.map_or(0, |shadow| shadow.ahead.len() as u64);
        let range = (row.pending, row.pending + ahead);
        pending.insert(Some(row.name.clone()), range);
        destinations.insert(row.name.clone(), destination_seen(row));
    }
    let mut shares = BTreeMap::new();
    for name in DESTINATIONS {
        if driver.shadows.contains_key(name) {
            let seen = world.store.shares(name).await.expect("shares");
            shares.insert(name.to_owned(), driver.shares_seen(seen));
        }
    }
    Observation {
        relays,
        destinations,
        parked: parked(driver, world).await,
        shares,
        hand_overs: hand_overs(world).await,
        pending,
    }
}

fn relay_seen(relay: &RelayStatus) -> RelaySeen {
    // The shares of a fenced relay are nobody's business, but for those that are still to be
    // revoked.
    let served = relay
        .shares
        .iter()
        .filter(|share| relay.state != "fenced" || share.partitions > 0);
    let shares: Vec<_> = served
        .map(|share| {
            let name = share.destination.clone();
            (name, share.partitions, share.epoch > 0, share.reaches)
        })
        .collect();
    RelaySeen {
        state: relay.state.clone(),
        partitions: relay.partitions,
        leaving: relay.leaving && !shares.is_empty(),
        shares,
    }
}

fn destination_seen(row: &DestinationStatus) -> DestinationSeen {
    DestinationSeen {
        address: row.address.clone(),
        state: row.state.as_str(),
        paused_places: row.paused_places.clone(),
        pending_exact: row.pending_exact,
        parked: row.parked,
        dead: row.dead,
        blocked_keys: row.blocked_keys,
        has_its_oldest: row.oldest_pending_age.is_some() == (row.pending > 0),
        breaker: row.breaker.clone(),
        last_error: row.last_error.clone(),
        is_held: row.relay.is_some(),
    }
}

async fn parked(
    driver: &Driver,
    world: &World,
) -> BTreeMap<(String, Option<String>), Vec<ParkedSeen>> {
    let mut all: BTreeMap<_, Vec<ParkedSeen>> = BTreeMap::new();
    let states = [
        ParkedState::Parked,
        ParkedState::Dead,
        ParkedState::Skipped,
        ParkedState::Discarded,
        ParkedState::Delivered,
    ];
    for state in states {
        let filter = ParkedFilter {
            state: Some(state),
            ..ParkedFilter::default()
        };
        let rows = world.store.parked(&filter, ALL).await;
        for row in rows.expect("events set aside") {
            assert_eq!(row.state, state, "the filter's state");
            let label = driver.label_of(row.event.id());
            let key = (
                row.destination.clone(),
                driver.locked_order_key(&row.destination, label),
            );
            all.entry(key).or_default().push(parked_seen(&row, label));
        }
    }
    for rows in all.values_mut() {
        rows.sort();
    }
    all
}

fn parked_seen(row: &ParkedEvent, label: Label) -> ParkedSeen {
    let named = row.event.text(Field::CorrelationId).map(str::to_owned);
    assert_eq!(named, Some(label.to_string()), "the copy of the event");
    ParkedSeen {
        label,
        state: row.state.as_str(),
        attempts: row.attempts,
        kind: row.kind.clone(),
        reason: row.reason.clone(),
        is_due: row.due_at.is_some(),
        has_payload: row.event.payload().is_some(),
    }
}

/// An act on a destination: whose, which, and on how many partitions.
async fn hand_overs(world: &World) -> Vec<(String, Option<String>, Option<String>, String)> {
    let lines = world.store.hand_overs(ALL).await.expect("the audit");
    let mut lines: Vec<_> = lines
        .into_iter()
        .map(|line| {
            let begins_with_a_count = line.detail.starts_with(|c: char| c.is_ascii_digit());
            let count = line.detail.split(' ').next().unwrap_or_default();
            let detail = if begins_with_a_count { count } else { "" }.to_owned();
            (line.action, line.relay, line.destination, detail)
        })
        .collect();
    lines.sort();
    lines
}

impl Driver {
    pub(super) fn shares_seen(&self, shares: Shares) -> SharesSeen {
        let members = shares.members.into_iter().map(|member| MemberSeen {
            name: member.name,
            owned: member.owned,
            partitions_max: member.partitions_max,
            leaving: member.leaving,
            reaches: member.reaches,
        });
        SharesSeen {
            partitions: shares.partitions,
            members: members.collect(),
            free: shares.free,
            settling: shares.settling,
            settles: shares.settled_in.is_some(),
            dead: shares.dead,
            recut: shares.recut,
        }
    }
}
