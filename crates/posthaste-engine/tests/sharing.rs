//! Many relays that follow the advice about their shares, in virtual time, around one table of
//! owners.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeMap, time::Duration};

use posthaste_engine::{HostIdentity, Member, Moment, ShareStep, Shares, Sharing, Want};
use uuid::Uuid;

const PARTITIONS: u16 = 1_024;
const LEASE: Duration = Duration::from_secs(15);
const HEARTBEAT: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_millis(2_500);
/// How soon a relay that reads sees that the shares have changed.
const POLL: Duration = Duration::from_millis(250);
/// How long it takes to finish what is in flight before a claim, at the most.
const DRAIN: Duration = Duration::from_millis(100);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        limit * u32::try_from(self.0 >> 48).unwrap() / (1 << 16)
    }
}

#[derive(Clone)]
struct Place {
    owner: Option<usize>,
    last_owner: Option<usize>,
    settled_at: Duration,
    moves: usize,
}

struct Enlisted {
    partitions_max: u16,
    leaving: bool,
    lease_until: Duration,
}

/// The rows of a store: they alone decide who owns what.
struct Table {
    places: Vec<Place>,
    /// By number of the relay; a number is one life.
    members: BTreeMap<usize, Enlisted>,
    version: i64,
}

impl Table {
    fn owned(&self, relay: usize) -> u16 {
        let places = self.places.iter();
        u16::try_from(places.filter(|p| p.owner == Some(relay)).count()).unwrap()
    }

    fn is_live(&self, relay: usize, now: Duration) -> bool {
        self.members
            .get(&relay)
            .is_some_and(|m| m.lease_until > now)
    }

    fn shares(&self, now: Duration) -> Shares {
        let mut shares = Shares {
            version: self.version,
            partitions: PARTITIONS,
            ..Shares::default()
        };
        let mut owned: BTreeMap<usize, u16> = BTreeMap::new();
        for place in &self.places {
            let wait = place.settled_at.saturating_sub(now);
            match place.owner {
                Some(owner) if self.is_live(owner, now) => *owned.entry(owner).or_default() += 1,
                Some(_) => shares.dead += 1,
                None if wait.is_zero() => shares.free += 1,
                None => {
                    shares.settling += 1;
                    shares.settled_in = Some(shares.settled_in.unwrap_or(wait).min(wait));
                }
            }
        }
        let live = self.members.iter().filter(|(_, m)| m.lease_until > now);
        let member = |(relay, enlisted): (&usize, &Enlisted)| Member {
            registration: registration(*relay),
            name: format!("relay-{relay}"),
            host: HostIdentity::default(),
            lease_left: enlisted.lease_until.saturating_sub(now),
            owned: owned.get(relay).copied().unwrap_or(0),
            partitions_max: enlisted.partitions_max,
            leaving: enlisted.leaving,
            reaches: Some(true),
        };
        shares.members = live.map(member).collect();
        shares
    }

    fn free(&mut self, relay: usize, keep: usize, settled_at: Duration) {
        let places = self.places.iter_mut();
        for place in places.filter(|p| p.owner == Some(relay)).skip(keep) {
            place.owner = None;
            place.settled_at = place.settled_at.max(settled_at);
            self.version += 1;
        }
    }

    fn revoke(&mut self, by: usize, now: Duration) {
        let dead = |relay: &usize| *relay != by && !self.is_live(*relay, now);
        let dead: Vec<usize> = self.members.keys().copied().filter(dead).collect();
        for relay in dead {
            self.free(relay, 0, now + SETTLE);
            self.members.remove(&relay);
            self.version += 1;
        }
    }

    fn claim(&mut self, relay: usize, want: Want, now: Duration) {
        self.revoke(relay, now);
        let others = self
            .places
            .iter()
            .any(|p| p.owner.is_some_and(|o| o != relay));
        let wanted = match want {
            Want::AtMost(wanted) => usize::from(wanted),
            Want::All if others => 0,
            Want::All => self.places.len(),
        };
        self.free(relay, wanted, now);
        let owned = usize::from(self.owned(relay));
        let may = |p: &&mut Place| p.owner.is_none() && (owned == 0 || p.settled_at <= now);
        let places = self.places.iter_mut().filter(may);
        for place in places.take(wanted.saturating_sub(owned)) {
            place.owner = Some(relay);
            place.moves += usize::from(place.last_owner.is_some_and(|last| last != relay));
            place.last_owner = Some(relay);
            self.version += 1;
        }
    }
}

fn registration(relay: usize) -> Uuid {
    Uuid::from_u128(relay as u128)
}

enum Event {
    /// The lease is renewed, and the answer tells the shares.
    Beat(usize),
    /// A read tells the version.
    Poll(usize),
    Look(usize),
    /// The relay acts upon its view, some time later.
    Act(usize, Shares),
    /// Nothing is in flight any more.
    Claim(usize, Want),
}

struct Relay {
    sharing: Sharing,
    runs: bool,
    /// Something is under way: an answer that is acted upon late, or a drain.
    busy: bool,
    seen_version: i64,
    look_at: Option<Duration>,
}

struct World {
    now: Duration,
    table: Table,
    relays: Vec<Relay>,
    queue: BTreeMap<(Duration, u64), Event>,
    queued: u64,
    dice: Dice,
    /// How old a view is, at the most, when it is acted upon.
    staleness: Duration,
    together: bool,
}

impl World {
    fn new(seed: u64, staleness: Duration) -> Self {
        let place = Place {
            owner: None,
            last_owner: None,
            settled_at: Duration::ZERO,
            moves: 0,
        };
        let table = Table {
            places: vec![place; usize::from(PARTITIONS)],
            members: BTreeMap::new(),
            version: 0,
        };
        Self {
            now: Duration::ZERO,
            table,
            relays: Vec::new(),
            queue: BTreeMap::new(),
            queued: 0,
            dice: Dice(seed),
            staleness,
            together: false,
        }
    }

    /// That many relays, one after the other, and time to share out.
    fn settled(seed: u64, staleness: Duration, relays: usize) -> Self {
        let mut world = Self::new(seed, staleness);
        for _ in 0..relays {
            world.join(u16::MAX);
            world.run(seconds(1));
        }
        world.run(seconds(300));
        world.assert_balanced();
        for place in &mut world.table.places {
            place.moves = 0;
        }
        world
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    fn join(&mut self, partitions_max: u16) -> usize {
        let relay = self.relays.len();
        self.relays.push(Relay {
            sharing: Sharing::new(registration(relay), HEARTBEAT, self.together),
            runs: true,
            busy: false,
            seen_version: 0,
            look_at: None,
        });
        let enlisted = Enlisted {
            partitions_max,
            leaving: false,
            lease_until: self.now + LEASE,
        };
        self.table.members.insert(relay, enlisted);
        self.table.version += 1;
        let now = self.now;
        self.at(now, Event::Beat(relay));
        self.at(now, Event::Poll(relay));
        relay
    }

    /// Killed: its lease goes on, and nobody renews it.
    fn kill(&mut self, relay: usize) {
        self.relays[relay].runs = false;
    }

    /// Stopped: announced, drained, gone.
    fn stop(&mut self, relay: usize) {
        self.table.members.get_mut(&relay).unwrap().leaving = true;
        self.table.version += 1;
        self.run(DRAIN);
        self.relays[relay].runs = false;
        let now = self.now;
        self.table.free(relay, 0, now);
        self.table.members.remove(&relay);
        self.table.version += 1;
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.handle(event);
        }
        self.now = until;
    }

    fn handle(&mut self, event: Event) {
        let relay = match &event {
            Event::Beat(relay) | Event::Poll(relay) | Event::Look(relay) => *relay,
            Event::Act(relay, _) | Event::Claim(relay, _) => *relay,
        };
        if !self.relays[relay].runs {
            return;
        }
        let now = self.now;
        match event {
            Event::Beat(_) => {
                let member = self.table.members.get_mut(&relay);
                member.expect("nobody fences a live relay").lease_until = now + LEASE;
                // Three quarters of the time, or up to all of it.
                let next = HEARTBEAT * 3 / 4 + self.dice.below(HEARTBEAT / 4);
                self.at(now + next, Event::Beat(relay));
                self.look(relay);
            }
            Event::Poll(_) => {
                self.at(now + POLL, Event::Poll(relay));
                let news = self.table.version > self.relays[relay].seen_version;
                if news && self.staleness.is_zero() {
                    self.look(relay);
                }
            }
            Event::Look(_) => {
                if self.relays[relay].look_at == Some(now) {
                    self.look(relay);
                }
            }
            Event::Act(_, shares) => {
                self.relays[relay].busy = false;
                self.act(relay, &shares);
            }
            Event::Claim(_, want) => {
                self.relays[relay].busy = false;
                self.table.claim(relay, want, now);
                self.assert_bounds_are_kept();
                let shares = self.table.shares(now);
                self.act(relay, &shares);
            }
        }
    }

    fn look(&mut self, relay: usize) {
        if self.relays[relay].busy {
            return;
        }
        self.relays[relay].busy = true;
        let shares = self.table.shares(self.now);
        self.relays[relay].seen_version = shares.version;
        let later = self.now + self.dice.below(self.staleness);
        self.at(later, Event::Act(relay, shares));
    }

    fn act(&mut self, relay: usize, shares: &Shares) {
        let (now, moment) = (self.now, Moment(self.now));
        let me = &mut self.relays[relay];
        let step = me.sharing.next(shares, moment);
        me.look_at = me.sharing.look_at(shares, moment).map(|at| at.0);
        if let Some(at) = me.look_at {
            self.at(at, Event::Look(relay));
        }
        match step {
            ShareStep::Stay => {}
            ShareStep::Revoke => {
                self.table.revoke(relay, now);
                self.look(relay);
            }
            ShareStep::Claim(want) => {
                self.relays[relay].busy = true;
                let drained = now + self.dice.below(DRAIN);
                self.at(drained, Event::Claim(relay, want));
            }
            ShareStep::Withdraw => panic!("everybody reaches the broker"),
        }
    }

    /// A relay owns no more than it wants, whatever it has seen.
    fn assert_bounds_are_kept(&self) {
        for (relay, member) in &self.table.members {
            let owned = self.table.owned(*relay);
            assert!(owned <= member.partitions_max, "relay {relay}: {owned}");
        }
    }

    fn assert_all_owned(&self) {
        let shares = self.table.shares(self.now);
        let waiting = (shares.free, shares.settling, shares.dead);
        assert_eq!(waiting, (0, 0, 0), "at {:?}", self.now);
    }

    /// Everything is owned, and in equal parts.
    fn assert_balanced(&self) {
        self.assert_all_owned();
        let owned: Vec<u16> = self
            .table
            .shares(self.now)
            .members
            .iter()
            .map(|m| m.owned)
            .collect();
        let (min, max) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
        assert!(max - min <= 1, "{owned:?} at {:?}", self.now);
    }

    /// Moves since the last call. None moves twice, unless somebody acted upon what was no longer
    /// so.
    fn moves(&mut self) -> usize {
        let fresh = self.staleness.is_zero();
        let mut moves = 0;
        for place in &mut self.table.places {
            assert!(place.moves <= 1 || !fresh, "{} moves", place.moves);
            moves += std::mem::take(&mut place.moves);
        }
        moves
    }

    fn oldest(&self) -> usize {
        *self.table.members.keys().next().unwrap()
    }
}

/// At most three tenths more than had to move.
fn assert_few(moves: usize, ideal: usize) {
    assert!(
        moves * 10 <= ideal * 13,
        "{moves} moves, {ideal} are needed"
    );
}

fn one_goes_and_one_comes(seed: u64, staleness: Duration, killed: impl Fn(usize) -> bool) {
    let mut world = World::settled(seed, staleness, 8);
    let half = seconds(30) + staleness * 12;
    for minute in 0..30 {
        let (goes, owners) = (world.oldest(), world.table.members.len());
        let owned = usize::from(world.table.owned(goes));
        let found_by = if killed(minute) {
            world.kill(goes);
            // The promise: 1.1 times the lease and what has to settle.
            LEASE * 11 / 10 + SETTLE
        } else {
            world.stop(goes);
            seconds(1)
        };
        let found_by = found_by + staleness * 5;
        world.run(found_by);
        world.assert_all_owned();
        world.run(half - found_by);
        assert_few(world.moves(), owned);
        world.assert_balanced();
        world.join(u16::MAX);
        world.run(half);
        world.assert_balanced();
        assert_few(world.moves(), usize::from(PARTITIONS) / owners);
        assert_eq!(world.table.members.len(), owners);
    }
}

#[test]
fn each_minute_one_is_stopped_and_one_comes() {
    for seed in 1..=2 {
        one_goes_and_one_comes(seed, Duration::ZERO, |_| false);
    }
}

#[test]
fn each_minute_one_is_killed_and_one_comes() {
    for seed in 1..=2 {
        one_goes_and_one_comes(seed, Duration::ZERO, |_| true);
    }
}

/// No two relays see the same, and none sees the present.
#[test]
fn views_of_a_heartbeat_ago_do_no_harm() {
    for seed in 1..=2 {
        one_goes_and_one_comes(seed, HEARTBEAT, |minute| minute % 2 == 0);
    }
}

#[test]
fn what_is_shared_out_stays_where_it_is() {
    for staleness in [Duration::ZERO, HEARTBEAT] {
        let mut world = World::settled(7, staleness, 7);
        world.run(seconds(3_600));
        assert_eq!(world.moves(), 0);
    }
}

#[test]
fn all_start_at_once() {
    let mut world = World::new(3, HEARTBEAT);
    for _ in 0..8 {
        world.join(u16::MAX);
    }
    world.run(seconds(120));
    world.assert_balanced();
}

#[test]
fn bounds_are_kept_and_others_take_the_rest() {
    let mut world = World::new(11, Duration::ZERO);
    let small: Vec<usize> = (0..3).map(|_| world.join(50)).collect();
    let large: Vec<usize> = (0..2).map(|_| world.join(u16::MAX)).collect();
    world.run(seconds(300));
    world.assert_all_owned();
    for relay in &small {
        assert_eq!(world.table.owned(*relay), 50);
    }
    for relay in &large {
        assert_eq!(world.table.owned(*relay), (PARTITIONS - 150) / 2);
    }
    // Without those that take the rest, the rest waits; nobody takes more than it wants.
    for relay in large {
        world.stop(relay);
    }
    world.run(seconds(120));
    let shares = world.table.shares(world.now);
    assert_eq!((shares.free, shares.members.len()), (PARTITIONS - 150, 3));
    world.join(u16::MAX);
    world.run(seconds(30));
    world.assert_all_owned();
}

/// A relay that comes and goes all the time is given nothing.
#[test]
fn a_relay_that_flaps_moves_nothing() {
    let mut world = World::settled(5, Duration::ZERO, 7);
    for _ in 0..60 {
        let flaps = world.join(u16::MAX);
        world.run(seconds(8));
        world.stop(flaps);
        world.run(seconds(2));
        world.assert_all_owned();
    }
    assert_eq!(world.moves(), 0);
    world.run(seconds(60));
    world.assert_balanced();
}

/// A relay that stays long enough to be given partitions takes them along once each time.
#[test]
fn a_relay_that_flaps_slowly_moves_its_share() {
    let mut world = World::settled(6, Duration::ZERO, 7);
    let share = usize::from(PARTITIONS) / 8;
    for _ in 0..20 {
        let flaps = world.join(u16::MAX);
        world.run(seconds(30));
        assert_few(world.moves(), share);
        world.kill(flaps);
        world.run(seconds(30));
        assert_few(world.moves(), share);
        world.assert_balanced();
    }
}

#[test]
fn what_is_owned_together_has_one_owner() {
    let mut world = World::new(9, Duration::ZERO);
    world.together = true;
    for _ in 0..4 {
        world.join(u16::MAX);
    }
    for round in 0..12 {
        world.run(seconds(30));
        world.assert_all_owned();
        let owners = world.table.shares(world.now).members;
        let owners: Vec<u16> = owners.iter().map(|m| m.owned).filter(|&o| o > 0).collect();
        assert_eq!(owners, [PARTITIONS]);
        let owner = world.table.places[0].owner.unwrap();
        match round % 2 {
            0 => world.stop(owner),
            _ => world.kill(owner),
        }
        world.join(u16::MAX);
    }
}
