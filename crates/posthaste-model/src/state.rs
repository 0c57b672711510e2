//! A state of everything, and what tells it from others.

use std::sync::Arc;

use posthaste_engine::rule::Rule;
use posthaste_stores::postgres::model::{Number, Position, Standing};

use crate::{
    aside::{Aside, CopyState},
    database::{Database, Event, Row},
    relay::Memory,
    scenario::{Faults, Grain, Promise, System},
};

/// A record on its way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) ticket: u64,
    pub(crate) event: Event,
    /// It was submitted after the local deadline.
    pub(crate) late: bool,
    /// It follows one of its key that was refused, and was submitted before that was heard.
    pub(crate) refused: bool,
}

/// The broker's answer about the record with this ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Accepted(u64),
    /// Not now.
    Failed(u64),
    /// Never.
    Refused(u64),
    /// Its place takes nothing for now.
    PutOff(u64),
    /// It follows one that failed.
    Behind(u64),
}

/// Where a writer stands in its program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Writer {
    pub(crate) done: usize,
    /// Its transaction, and how many events it has emitted.
    pub(crate) open: Option<(u64, usize)>,
}

/// A relay that has claimed.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) memory: Arc<Memory>,
    pub(crate) epoch: u64,
    pub(crate) token: u64,
    /// Handed to the network.
    pub(crate) bytes: Vec<Sent>,
    /// Answers on their way back.
    pub(crate) answers: Vec<Heard>,
    /// A record of the lane failed: the receiver takes nothing that follows it.
    pub(crate) refusing: bool,
    /// Keys of which the broker refused a record on this lane, until the relay has heard of it.
    pub(crate) refused_keys: Vec<u8>,
    /// A control: what is taken for parked, and is not yet.
    pub(crate) parking: Vec<(Event, Position, CopyState)>,
    /// Nothing may be sent before the bytes of others are gone.
    pub(crate) unsettled: bool,
    /// Its lease is over, by its own clock too.
    pub(crate) expired: bool,
    /// The number of the advance under way, once it has one.
    pub(crate) advance: Option<u64>,
}

impl Claim {
    /// The relay has heard of a failure. If it was the last one, records that are submitted from
    /// here on follow none that it does not know of: a record behind a failed one has failed, too.
    pub(crate) fn heard_of_a_failure(&mut self) {
        let mut answers = self.answers.iter();
        let more = answers.any(|answer| !matches!(answer, Heard::Accepted(_)));
        if !more && !self.bytes.iter().any(|sent| sent.refused) {
            self.refused_keys.clear();
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Relay {
    #[default]
    Idle,
    /// The sequence's value was received; the claim follows.
    Claiming(i64),
    Running(Box<Claim>),
    Paused(Box<Claim>),
}

impl Relay {
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Running(claim) | Self::Paused(claim) => Some(claim),
            _ => None,
        }
    }

    pub(crate) fn running(&mut self) -> Option<&mut Claim> {
        match self {
            Self::Running(claim) => Some(claim),
            _ => None,
        }
    }
}

/// An advance whose sender is gone: it is executed at some time.
#[derive(Debug, Clone)]
pub(crate) struct LateAdvance {
    pub(crate) to: Position,
    pub(crate) epoch: u64,
    pub(crate) token: u64,
}

/// A key, as consumers saw it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Key {
    /// Its events in the order of their commits.
    pub(crate) order: Vec<Event>,
    /// Delivered for the first time.
    pub(crate) first: usize,
    /// Up to here went the last delivery.
    pub(crate) last: usize,
    /// Left behind by an operator.
    pub(crate) skipped: Vec<Event>,
}

impl Key {
    /// An operator leaves the event behind.
    pub(crate) fn skip(&mut self, event: Event) {
        self.skipped.push(event);
        self.skipped.sort_unstable();
        self.pass_skipped();
    }

    /// Nobody waits for what was left behind.
    pub(crate) fn pass_skipped(&mut self) {
        let Self {
            order,
            first,
            last,
            skipped,
        } = self;
        for at in [first, last] {
            while order.get(*at).is_some_and(|event| skipped.contains(event)) {
                *at += 1;
            }
        }
    }
}

/// A state of everything.
#[derive(Debug, Clone)]
pub struct State {
    pub(crate) database: Database,
    pub(crate) writers: Vec<Writer>,
    pub(crate) relays: Vec<Relay>,
    /// Bytes of lanes that are gone.
    pub(crate) orphans: Vec<Vec<Sent>>,
    pub(crate) late: Vec<LateAdvance>,
    pub(crate) keys: Vec<Key>,
    pub(crate) aside: Aside,
    pub(crate) left: Faults,
    pub(crate) repeats: usize,
    pub(crate) broken: Option<Promise>,
}

impl State {
    /// Whether the cursor row is nobody's, or that of a relay that is dead or whose lease may be
    /// over.
    pub(crate) fn may_claim(&self) -> bool {
        // The claim waits for the row's lock.
        let advancing = self.relays.iter().filter_map(Relay::claim);
        let locked = advancing.into_iter().any(|claim| claim.advance.is_some());
        let lives = self.database.owner.is_some_and(|owner| {
            let epoch = self.database.epoch;
            matches!(&self.relays[owner], Relay::Running(claim) if claim.epoch == epoch)
        });
        !locked && !lives
    }

    /// The relay forgets everything: its bytes may still arrive, its advance may still be executed.
    pub(crate) fn forget(&mut self, system: &System, r: usize) {
        let relay = std::mem::take(&mut self.relays[r]);
        let (Relay::Running(claim) | Relay::Paused(claim)) = relay else {
            return;
        };
        if let Some(to) = claim.memory.advancing_to() {
            self.late.push(LateAdvance {
                to,
                epoch: claim.epoch,
                token: claim.token,
            });
        }
        self.orphan(system, claim.refusing, claim.bytes);
    }

    /// Bytes of an aborted lane may still arrive, but for those that the receiver refuses.
    pub(crate) fn orphan(&mut self, system: &System, refusing: bool, bytes: Vec<Sent>) {
        let refused = refusing && !system.without(Rule::RefusalOutlivesLane);
        let bytes = bytes.into_iter().filter(|sent| !sent.refused);
        let bytes: Vec<Sent> = bytes.collect();
        if !bytes.is_empty() && !refused {
            self.orphans.push(bytes);
            self.orphans.sort();
        }
    }

    pub(crate) fn breaks(&mut self, system: &System, promise: Promise) {
        if system.checks(promise) && self.broken.is_none() {
            self.broken = Some(promise);
        }
    }

    /// Nothing is left to do.
    pub(crate) fn is_drained(&self, system: &System) -> bool {
        let finished = (self.writers.iter().zip(&system.writers))
            .all(|(writer, program)| writer.done == program.len());
        let behind =
            |row: &Row| self.database.stored.standing(row.xid, row.seq) == Standing::Behind;
        finished
            && self.aside.is_empty()
            && self
                .keys
                .iter()
                .all(|key| key.first == key.order.len() && key.last == key.first)
            && self.database.mvcc.rows.values().all(behind)
    }
}

impl System {
    /// Before anything has happened.
    pub(crate) fn first_state(&self) -> State {
        let keys = self.writers.iter().flatten().flat_map(|t| t.keys.iter());
        let keys = keys.max().map_or(0, |&key| usize::from(key) + 1);
        State {
            database: Database::default(),
            writers: vec![Writer::default(); self.writers.len()],
            relays: vec![Relay::Idle; self.relays],
            orphans: Vec::new(),
            late: Vec::new(),
            keys: vec![Key::default(); keys],
            aside: Aside::default(),
            left: self.faults,
            repeats: 0,
            broken: None,
        }
    }

    /// All that decides what follows, relays without their names.
    pub(crate) fn described(&self, state: &State) -> Vec<Number> {
        let mut numbers = Vec::with_capacity(200);
        let State {
            database,
            writers,
            relays: _,
            orphans,
            late,
            keys,
            aside,
            left,
            repeats,
            broken,
        } = state;
        database.describe(self.faults.database > 0, &mut |n| numbers.push(n));
        let name = |event: Event| {
            let key = self.key_of(event);
            let of_key = &keys[usize::from(key)];
            // By its place behind the first deliveries, so that what is over is forgotten.
            let at = of_key.order.iter().position(|&other| other == event);
            Number::Plain(at.map_or(u64::from(event), |at| {
                1_000 * u64::from(key + 1) + (of_key.order.len() - at) as u64
            }))
        };
        for row in database.mvcc.rows.values() {
            numbers.extend([
                Number::Seq(row.seq),
                Number::Xid(row.xid),
                name(row.event),
                Number::Plain((!database.mvcc.is_open(row.xid)).into()),
            ]);
        }
        if self.grain == Grain::SettingAside {
            aside.describe(&name, &mut numbers);
            for key in keys {
                numbers.push(Number::Plain(key.skipped.len() as u64));
                numbers.extend(key.skipped.iter().map(|&event| name(event)));
            }
        }
        for (w, writer) in writers.iter().enumerate() {
            numbers.push(Number::Plain((self.writers[w].len() - writer.done) as u64));
            if let Some((xid, emitted)) = writer.open {
                numbers.extend([Number::Xid(xid), Number::Plain(emitted as u64)]);
            }
        }
        for key in keys {
            let (all, first) = (key.order.len(), key.order.len() - key.first);
            numbers.push(Number::Plain(first as u64));
            numbers.push(Number::Plain((all - key.last) as u64));
        }
        numbers.extend(left.counts().map(|count| Number::Plain(count.into())));
        if self.checks(Promise::Repeats) {
            numbers.push(Number::Plain(*repeats as u64));
        }
        let sent = |sent: &Sent| {
            let flags = u64::from(sent.late) + 2 * u64::from(sent.refused);
            [name(sent.event), Number::Plain(flags)]
        };
        for bytes in orphans {
            numbers.push(Number::Plain(bytes.len() as u64));
            numbers.extend(bytes.iter().flat_map(sent));
        }
        for late in late {
            late.to.describe(&mut |n| numbers.push(n));
            let ours = late.epoch == database.epoch && late.token == database.token;
            numbers.push(Number::Plain(ours.into()));
        }
        let mut relays: Vec<Vec<Number>> = (0..self.relays)
            .map(|r| self.describe_relay(state, r, &sent))
            .collect();
        relays.sort();
        numbers.extend(relays.into_iter().flatten());
        numbers.push(Number::Plain(broken.map_or(0, |broken| broken as u64 + 1)));
        numbers
    }

    pub(crate) fn describe_relay(
        &self,
        state: &State,
        r: usize,
        sent: &impl Fn(&Sent) -> [Number; 2],
    ) -> Vec<Number> {
        let plain = Number::Plain;
        let mut numbers = vec![plain((state.database.owner == Some(r)).into())];
        let claim = match &state.relays[r] {
            Relay::Idle => {
                numbers.push(plain(0));
                return numbers;
            }
            Relay::Claiming(proven) => {
                numbers.extend([plain(1), Number::Seq(*proven)]);
                return numbers;
            }
            Relay::Running(claim) => {
                numbers.push(plain(2));
                claim
            }
            Relay::Paused(claim) => {
                numbers.push(plain(3));
                claim
            }
        };
        let Claim {
            memory,
            epoch,
            token,
            bytes,
            answers,
            refusing,
            refused_keys,
            parking,
            unsettled,
            expired,
            advance,
        } = &**claim;
        if *expired && self.left_out.is_none() {
            // It reads and submits nothing more, and its advance is refused: only its bytes are
            // left.
            numbers.push(plain((*refusing).into()));
            numbers.extend(bytes.iter().flat_map(sent));
            return numbers;
        }
        let flags = [
            *epoch == state.database.epoch,
            *token == state.database.token,
            *unsettled,
            *expired,
            *refusing,
            advance.is_some(),
        ];
        numbers.extend(flags.map(|flag| plain(flag.into())));
        numbers.extend(advance.map(Number::Xid));
        numbers.push(plain(bytes.len() as u64));
        for bytes in bytes {
            numbers.push(plain(bytes.ticket));
            numbers.extend(sent(bytes));
        }
        numbers.extend(refused_keys.iter().map(|&key| plain(key.into())));
        numbers.push(plain(parking.len() as u64));
        numbers.push(plain(answers.len() as u64));
        for answer in answers {
            let (kind, ticket) = match *answer {
                Heard::Accepted(ticket) => (0, ticket),
                Heard::Failed(ticket) => (1, ticket),
                Heard::Behind(ticket) => (2, ticket),
                Heard::Refused(ticket) => (3, ticket),
                Heard::PutOff(ticket) => (4, ticket),
            };
            numbers.extend([plain(kind), plain(ticket)]);
        }
        numbers.extend_from_slice(memory.numbers());
        numbers
    }
}
