//! Scenarios in which every promise holds, and rules without which one of them breaks.

mod holes;
mod retention;

use posthaste_engine::{KeyOrder, rule::Rule};

use crate::{
    checker::{Found, explore},
    holes::Holes,
    memories::Memories,
    polling::{Polling, Query},
    relay::Bounds,
    retention::Keeping,
    scenario::{End, Faults, Grain, Pace, Promise, System, Transaction},
};

/// A scenario with its name.
#[derive(Debug)]
pub struct Scenario {
    /// Its subject and its bounds.
    pub name: &'static str,
    /// The machine that is explored.
    pub explored: Explored,
    long: bool,
}

/// A rule that is left out, so that a promise must be found broken.
#[derive(Debug)]
pub struct Control {
    /// Which one.
    pub name: &'static str,
    /// The machine that is explored.
    pub explored: Explored,
}

/// The machine that is explored.
#[derive(Debug)]
pub enum Explored {
    /// Writers, relays and a broker.
    Mechanism(System),
    /// Writers, destinations and retention.
    Retention(Keeping),
    /// Writers, and a reader of a log with holes.
    Holes(Holes),
    /// Writers, and relays that read in another way.
    Polling(Polling),
}

impl Explored {
    /// The rule that is left out.
    #[must_use]
    pub fn left_out(&self) -> Option<Rule> {
        match self {
            Self::Mechanism(system) => system.left_out,
            Self::Retention(keeping) => keeping.left_out,
            Self::Holes(_) | Self::Polling(_) => None,
        }
    }

    /// Visits all states, until a promise is broken.
    #[must_use]
    pub fn explore(&self) -> Found {
        match self {
            Self::Mechanism(system) => explore(system),
            Self::Retention(keeping) => explore(keeping),
            Self::Holes(holes) => explore(holes),
            Self::Polling(polling) => explore(polling),
        }
    }
}

/// One event of key `a`, its number drawn long before the lock.
const LONG_A: Transaction = Transaction {
    keys: &[0],
    end: End::Commits,
    pace: Pace::Numbered,
};
const A: Transaction = Transaction {
    keys: &[0],
    end: End::Commits,
    pace: Pace::Locking,
};
const B: Transaction = Transaction {
    keys: &[1],
    end: End::Commits,
    pace: Pace::Locking,
};
const AA: Transaction = Transaction {
    keys: &[0, 0],
    end: End::Commits,
    pace: Pace::Locking,
};
const AB: Transaction = Transaction {
    keys: &[0, 1],
    end: End::Commits,
    pace: Pace::Locking,
};
const A_AT_ONCE: Transaction = Transaction {
    pace: Pace::AtOnce,
    ..A
};
const B_AT_ONCE: Transaction = Transaction {
    pace: Pace::AtOnce,
    ..B
};
const AA_AT_ONCE: Transaction = Transaction {
    pace: Pace::AtOnce,
    ..AA
};
const AB_AT_ONCE: Transaction = Transaction {
    pace: Pace::AtOnce,
    ..AB
};
const ROLLED_BACK: Transaction = Transaction {
    keys: &[1],
    end: End::RollsBack,
    pace: Pace::Locking,
};
const PERHAPS: Transaction = Transaction {
    keys: &[1],
    end: End::Any,
    pace: Pace::Locking,
};

fn system(grain: Grain, relays: usize, writers: Vec<Vec<Transaction>>) -> System {
    System {
        writers,
        relays,
        bounds: Bounds {
            page: 2,
            window: 4,
            order: KeyOrder::OneAtATime,
            sets_aside: false,
            places: 1,
        },
        faults: Faults::default(),
        grain,
        left_out: None,
        promises: Promise::ALL.to_vec(),
        memories: Memories::default(),
    }
}

fn reading(writers: Vec<Vec<Transaction>>, page: usize, faults: Faults) -> System {
    let mut system = system(Grain::Reading, 1, writers);
    system.bounds.page = page;
    system.faults = faults;
    system
}

fn delivery(writers: Vec<Vec<Transaction>>, relays: usize, faults: Faults) -> System {
    let mut system = system(Grain::Delivery, relays, writers);
    system.faults = faults;
    system
}

/// To a receiver that itself refuses what lies behind a failure.
fn pipelined(writers: Vec<Vec<Transaction>>, relays: usize, faults: Faults) -> System {
    let mut system = delivery(writers, relays, faults);
    system.bounds.order = KeyOrder::Pipelined;
    system
}

fn faults(crashes: u8, pauses: u8, cuts: u8, database: u8) -> Faults {
    Faults {
        crashes,
        pauses,
        cuts,
        failures: 0,
        refusals: 0,
        laters: 0,
        turns: 0,
        database,
    }
}

/// To a broker that refuses one record for good.
fn setting_aside(writers: Vec<Vec<Transaction>>, relays: usize, faults: Faults) -> System {
    let mut system = system(Grain::SettingAside, relays, writers);
    system.bounds.sets_aside = true;
    system.faults = Faults {
        refusals: 1,
        ..faults
    };
    system
}

/// Of each of two keys, so that one side read brings both back.
fn two_refusals(faults: Faults) -> System {
    let mut system = setting_aside(vec![vec![AB_AT_ONCE, AB_AT_ONCE]], 1, faults);
    system.faults.refusals = 2;
    system
}

/// To two places, which put off so many records.
fn at_places(writers: Vec<Vec<Transaction>>, relays: usize, laters: u8, faults: Faults) -> System {
    let mut system = setting_aside(writers, relays, faults);
    system.bounds.places = 2;
    system.faults.refusals = 0;
    system.faults.laters = laters;
    // A place that nothing new comes for is tried again at its third turn, and forgotten.
    system.faults.turns = 3;
    system
}

/// The same, to a receiver that itself refuses what lies behind one that was put off.
fn pipelined_at_places(
    writers: Vec<Vec<Transaction>>,
    relays: usize,
    laters: u8,
    faults: Faults,
) -> System {
    let mut system = at_places(writers, relays, laters, faults);
    system.bounds.order = KeyOrder::Pipelined;
    system
}

/// One record that the broker does not take for now, as well.
fn and_a_failure(faults: Faults) -> Faults {
    Faults {
        failures: 1,
        ..faults
    }
}

/// Scenarios in which every promise holds, the large ones only where `POSTHASTE_TEST_LONG` asks for
/// them, as it does of other tests: neither empty nor `0`.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let long_form = std::env::var_os("POSTHASTE_TEST_LONG")
        .is_some_and(|value| !value.is_empty() && value != "0");
    let mut scenarios = every_scenario();
    scenarios.extend(retention::scenarios());
    scenarios.extend(holes::scenarios());
    scenarios.retain(|scenario| long_form || !scenario.long);
    scenarios
}

fn every_scenario() -> Vec<Scenario> {
    let quick = || {
        let rolled_back = Transaction {
            pace: Pace::AtOnce,
            ..ROLLED_BACK
        };
        vec![vec![A], vec![B_AT_ONCE, A_AT_ONCE], vec![rolled_back]]
    };
    let slow = || vec![vec![LONG_A], vec![B_AT_ONCE, A_AT_ONCE], vec![ROLLED_BACK]];
    let short = |name, system| Scenario {
        name,
        explored: Explored::Mechanism(system),
        long: false,
    };
    let long = |name, system| Scenario {
        long: true,
        ..short(name, system)
    };
    vec![
        short(
            "reading: 2 writers of one key, 1 relay",
            reading(vec![vec![LONG_A], vec![A]], 2, Faults::default()),
        ),
        short(
            "reading: a transaction of 2 events in pages of 1, 1 relay that is killed once",
            reading(vec![vec![AB]], 1, faults(1, 0, 0, 0)),
        ),
        long(
            "reading: a transaction of 2 events in pages of 1 beside one that may be rolled back",
            reading(vec![vec![AB], vec![PERHAPS]], 1, Faults::default()),
        ),
        short(
            "database crash: a transaction after one that was rolled back, 1 relay",
            reading(vec![vec![ROLLED_BACK, A_AT_ONCE]], 2, faults(0, 0, 0, 1)),
        ),
        long(
            "database crash: 2 writers, 1 relay",
            reading(vec![vec![A], vec![B]], 2, faults(0, 0, 0, 1)),
        ),
        long(
            "both: 3 writers, 2 keys, 4 transactions (1 rolled back, 1 over two others), 2 relays, \
             1 crash, 1 pause",
            delivery(quick(), 2, faults(1, 1, 0, 0)),
        ),
        long(
            "both, without faults, each writer step by step",
            delivery(slow(), 2, Faults::default()),
        ),
        long(
            "both, each writer step by step",
            delivery(slow(), 2, faults(1, 1, 0, 0)),
        ),
        short(
            "delivery: 3 events of 2 keys, 2 relays, 1 crash, 1 pause, 1 lost answer",
            delivery(vec![vec![A, AB]], 2, faults(1, 1, 1, 0)),
        ),
        long(
            "both, with 1 lost answer as well",
            delivery(quick(), 2, faults(1, 1, 1, 0)),
        ),
        short(
            "pipelined: 3 events of 2 keys, 2 relays, 1 crash, 1 lost answer, 1 failure",
            pipelined(
                vec![vec![A_AT_ONCE, AB_AT_ONCE]],
                2,
                and_a_failure(faults(1, 0, 1, 0)),
            ),
        ),
        short(
            "setting aside: 3 events of 2 keys, 2 relays, 1 refusal, 1 crash",
            setting_aside(vec![vec![A_AT_ONCE, AB_AT_ONCE]], 2, faults(1, 0, 0, 0)),
        ),
        short(
            "setting aside, pipelined: 3 events of a key, 2 relays, 1 refusal, 1 crash",
            {
                let writers = vec![vec![AA_AT_ONCE, A_AT_ONCE]];
                let mut system = setting_aside(writers, 2, faults(1, 0, 0, 0));
                system.bounds.order = KeyOrder::Pipelined;
                system
            },
        ),
        short(
            "setting aside: 4 events of 2 keys, both read beside the main group at once, 1 relay, \
             2 refusals",
            two_refusals(Faults::default()),
        ),
        short(
            "places: 4 events of 2 keys, each to a place of its own, 1 relay, 1 is put off",
            at_places(vec![vec![AB_AT_ONCE, AB_AT_ONCE]], 1, 1, Faults::default()),
        ),
        short(
            "places, pipelined: 3 events of a key, 2 places, 1 relay, 1 is put off",
            pipelined_at_places(vec![vec![AA_AT_ONCE, A_AT_ONCE]], 1, 1, Faults::default()),
        ),
        long(
            "places, pipelined: the same, 1 crash",
            pipelined_at_places(vec![vec![AA_AT_ONCE, A_AT_ONCE]], 1, 1, faults(1, 0, 0, 0)),
        ),
        long(
            "setting aside: the same, 1 crash",
            two_refusals(faults(1, 0, 0, 0)),
        ),
        long(
            "setting aside: 4 events of 2 keys, 2 relays, 1 refusal, 1 crash, 1 lost answer",
            setting_aside(
                vec![vec![A_AT_ONCE, AB_AT_ONCE, A_AT_ONCE]],
                2,
                faults(1, 0, 1, 0),
            ),
        ),
        long(
            "pipelined: 4 events of 2 keys, 2 relays, 1 crash, 1 pause, 1 lost answer, 1 failure",
            pipelined(
                vec![vec![A, AB], vec![A_AT_ONCE]],
                2,
                and_a_failure(faults(1, 1, 1, 0)),
            ),
        ),
        long(
            "reading: 2 writers, 3 transactions, pages of 1, 1 crash of the relay",
            reading(vec![vec![LONG_A, B], vec![AB]], 1, faults(1, 0, 0, 0)),
        ),
    ]
}

/// Rules without which a promise breaks.
#[must_use]
pub fn controls() -> Vec<Control> {
    let without = |rule, promises: &[Promise], mut system: System| {
        system.left_out = Some(rule);
        system.promises = promises.to_vec();
        system
    };
    let polling = |query, relays, writers| Polling {
        writers: system(Grain::Reading, 0, writers),
        query,
        relays,
    };
    let polled = |name, polling| Control {
        name,
        explored: Explored::Polling(polling),
    };
    let broken = |name, system| Control {
        name,
        explored: Explored::Mechanism(system),
    };
    // The promises that a consumer sees.
    let seen = &[Promise::Loss, Promise::Order, Promise::Replay][..];
    let one = || vec![vec![A]];
    let no_settle = delivery(vec![vec![AA_AT_ONCE]], 2, faults(1, 0, 0, 0));
    let mut controls = vec![
        polled(
            "seq > last",
            polling(Query::AfterLast, 1, vec![vec![A], vec![B]]),
        ),
        polled(
            "xid < xmin order by xid",
            polling(Query::BelowXmin, 1, vec![vec![LONG_A], vec![A]]),
        ),
        polled(
            "SKIP LOCKED with two relays",
            polling(Query::SkipLocked, 2, vec![vec![A, A]]),
        ),
        broken(
            "an unproven floor",
            without(
                Rule::FloorOfEarlierPoll,
                &Promise::ALL,
                reading(one(), 2, Faults::default()),
            ),
        ),
        broken(
            "a straggler given the new low's floor",
            without(
                Rule::StragglerKeepsItsFloor,
                &Promise::ALL,
                reading(vec![vec![A], vec![B]], 2, Faults::default()),
            ),
        ),
        broken(
            "the incarnation ignored",
            without(
                Rule::IncarnationIsChecked,
                seen,
                reading(vec![vec![ROLLED_BACK], vec![A]], 2, faults(0, 0, 0, 1)),
            ),
        ),
        broken(
            "a lease without an epoch",
            without(
                Rule::EpochIsChecked,
                seen,
                delivery(vec![vec![AA_AT_ONCE]], 2, faults(1, 1, 0, 0)),
            ),
        ),
        broken(
            "a lease without a deadline (longer than the publish time-out)",
            without(
                Rule::SendingEndsWithLease,
                seen,
                delivery(vec![vec![AA_AT_ONCE]], 2, faults(0, 1, 0, 0)),
            ),
        ),
        broken(
            "no settle time",
            without(Rule::SettleTimeIsWaitedFor, seen, no_settle),
        ),
        broken(
            "the cursor passes a refused event before its copy and marker are durable",
            without(
                Rule::CursorWaitsForParkedCopy,
                seen,
                setting_aside(vec![vec![AA_AT_ONCE]], 1, faults(1, 0, 0, 0)),
            ),
        ),
        broken(
            "a refused event leaves no marker",
            without(
                Rule::ParkedEventLeavesMarker,
                seen,
                setting_aside(vec![vec![AA_AT_ONCE]], 1, faults(1, 0, 0, 0)),
            ),
        ),
        broken(
            "a key joins before its main group stands still",
            without(
                Rule::JoinWhereMainGroupStands,
                seen,
                setting_aside(vec![vec![A_AT_ONCE, A_AT_ONCE]], 1, Faults::default()),
            ),
        ),
        broken(
            "pipelined, and the receiver takes what follows a failure",
            without(
                Rule::ReceiverRefusesAfterFailure,
                seen,
                pipelined(vec![vec![AA_AT_ONCE]], 1, and_a_failure(Faults::default())),
            ),
        ),
        broken(
            "what follows a passed over event in its key goes to another place",
            without(
                Rule::PassedOverIsNotOvertaken,
                seen,
                pipelined_at_places(vec![vec![AA_AT_ONCE]], 1, 1, Faults::default()),
            ),
        ),
        broken(
            "pipelined, and the receiver refuses only as long as the lane lives",
            without(
                Rule::RefusalOutlivesLane,
                seen,
                pipelined(vec![vec![AA_AT_ONCE]], 1, and_a_failure(Faults::default())),
            ),
        ),
    ];
    controls.extend(retention::controls());
    controls.extend(holes::controls());
    controls
}
