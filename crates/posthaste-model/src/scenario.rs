//! A scenario: the writers' programs, how many relays and faults there are, and the rule that is
//! left out.

use posthaste_engine::rule::Rule;

use crate::{database::Event, memories::Memories, relay::Bounds};

/// A promise of the design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// I1: a committed event that was not delivered is behind the stored cursor, or hidden from it.
    Loss,
    /// I2: something was published that did not commit.
    Phantom,
    /// I3: first deliveries of a key left the order of its commits.
    Order,
    /// I3: a repeat is no contiguous replay.
    Replay,
    /// I4: more was repeated than the faults allow.
    Repeats,
    /// I8: progress moved under an epoch or incarnation that is not the newest, or went back.
    Authority,
    /// The answer of the database was refused as unsound.
    Soundness,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Loss,
        Self::Phantom,
        Self::Order,
        Self::Replay,
        Self::Repeats,
        Self::Authority,
        Self::Soundness,
    ];

    /// How the checker names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "I1 nothing is lost",
            Self::Phantom => "I2 nothing is invented",
            Self::Order => "I3 first deliveries keep the order of the commits",
            Self::Replay => "I3 repeats are contiguous replays",
            Self::Repeats => "I4 repeats are bounded by the window",
            Self::Authority => "I8 only the newest epoch moves progress, and never back",
            Self::Soundness => "no answer is refused as unsound",
        }
    }
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// It commits.
    Commits,
    /// It is rolled back.
    RollsBack,
    /// Either.
    Any,
}

/// A transaction of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The keys of its events, in order.
    pub keys: &'static [u8],
    /// How it ends.
    pub end: End,
    /// The parts that are steps of their own.
    pub pace: Pace,
}

/// How much of a transaction happens at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pace {
    /// All of it.
    AtOnce,
    /// It gets its number, locks its first key and inserts; then it goes on.
    Locking,
    /// It has its number before it locks its first key.
    Numbered,
}

/// How many faults there may be of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A relay loses its memory: killed, or cut off from the database in the middle of a statement.
    pub crashes: u8,
    /// A relay is stopped for as long as anybody likes, then goes on.
    pub pauses: u8,
    /// Answers of the broker are lost and the lane is aborted; its bytes may still arrive.
    pub cuts: u8,
    /// The broker does not take a record for now, nor, where the receiver keeps order, what follows
    /// it on the lane.
    pub failures: u8,
    /// The broker refuses a record for good.
    pub refusals: u8,
    /// The place of a record takes nothing for now, and the lane goes on.
    pub laters: u8,
    /// No fault: the waits of places end.
    pub turns: u8,
    /// The database crashes.
    pub database: u8,
}

impl Faults {
    /// Those after which something may be repeated.
    pub(crate) fn sum(self) -> usize {
        let [repeating @ .., _refusals, _laters, _turns] = self.counts();
        repeating.iter().map(|&count| usize::from(count)).sum()
    }

    pub(crate) fn counts(self) -> [u8; 8] {
        let Self {
            crashes,
            pauses,
            cuts,
            failures,
            refusals,
            laters,
            turns,
            database,
        } = self;
        [
            crashes, pauses, cuts, failures, database, refusals, laters, turns,
        ]
    }
}

/// The parts that are steps of their own, and so may be torn from the step before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grain {
    /// The snapshot of a poll and its rows, the number of a transaction and its commit, the sending
    /// of an advance; what was read is delivered at once.
    Reading,
    /// Submitting, delivering, answering, executing an advance. A poll is one step, and the next
    /// one follows the answer to an advance.
    Delivery,
    /// Delivering and answering, and each change of the store and each step of a side read as a
    /// whole.
    SettingAside,
}

/// The machine that is explored.
#[derive(Debug, Clone)]
pub struct System {
    /// The transactions of each writer, one after the other.
    pub writers: Vec<Vec<Transaction>>,
    /// Relays.
    pub relays: usize,
    /// How much they read.
    pub bounds: Bounds,
    /// Faults at the most.
    pub faults: Faults,
    /// The parts that are steps of their own.
    pub grain: Grain,
    /// The rule that is left out.
    pub left_out: Option<Rule>,
    /// The promises that are checked.
    pub promises: Vec<Promise>,
    /// The memories of relays, shared by all states.
    pub memories: Memories,
}

/// The names of the keys.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

impl System {
    /// The events of all programs: of which key each one is.
    pub(crate) fn event(&self, writer: usize, transaction: usize, at: usize) -> (Event, u8) {
        let before = |w: usize, t: usize| -> usize {
            self.writers[w][..t]
                .iter()
                .map(|transaction| transaction.keys.len())
                .sum()
        };
        let writers: usize = (0..writer).map(|w| before(w, self.writers[w].len())).sum();
        let number = writers + before(writer, transaction) + at;
        let key = self.writers[writer][transaction].keys[at];
        (u8::try_from(number).unwrap_or(u8::MAX), key)
    }

    /// The events of all programs.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> + use<> {
        let transactions = self.writers.iter().flatten();
        let events: usize = transactions.map(|transaction| transaction.keys.len()).sum();
        0..u8::try_from(events).unwrap_or(u8::MAX)
    }

    pub(crate) fn key_name(&self, event: Event) -> &'static str {
        self.name_of_key(self.key_of(event))
    }

    pub(crate) fn name_of_key(&self, key: u8) -> &'static str {
        KEYS[usize::from(key)]
    }

    pub(crate) fn key_named(&self, name: &str) -> u8 {
        let key = KEYS.iter().position(|key| *key == name);
        key.and_then(|key| u8::try_from(key).ok())
            .unwrap_or(u8::MAX)
    }

    pub(crate) fn key_of(&self, event: Event) -> u8 {
        let transactions = self.writers.iter().flatten();
        let keys: Vec<u8> = transactions
            .flat_map(|transaction| transaction.keys.iter().copied())
            .collect();
        keys[usize::from(event)]
    }

    pub(crate) fn checks(&self, promise: Promise) -> bool {
        self.promises.contains(&promise)
    }

    pub(crate) fn without(&self, rule: Rule) -> bool {
        self.left_out == Some(rule)
    }
}
