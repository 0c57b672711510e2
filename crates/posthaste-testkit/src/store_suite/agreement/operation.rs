//! The operations, and how a seed becomes a sequence of them.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::store_suite::Capability;

/// How much is to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The first sequence's seed; the others follow it.
    pub first_seed: u64,
    /// How many sequences.
    pub sequences: usize,
    /// Operations of each.
    pub operations: usize,
    /// Whether the database is crashed in them.
    pub crashes: bool,
    /// After how many operations that did something the two are compared; a failing sequence is
    /// shortened with a comparison after each.
    pub compare_every: usize,
    /// Whether the calling thread alone does all of it, on which a rule may be left out. No fixture
    /// of a server can: its calls block.
    pub one_thread: bool,
    /// Attempts to make a failing sequence shorter.
    pub shorten_tries: u32,
}

/// One thing that somebody does. Numbers choose among what there is when it is done, so that any
/// part of a sequence is a sequence; an operation that finds nothing to work on does nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    /// A writer writes an event, in the transaction that it has open or in a new one.
    Write {
        writer: u8,
        event: Shape,
    },
    /// A writer writes several and commits, having taken back those behind a savepoint, if one is
    /// set.
    Transaction {
        event: Shape,
        count: u8,
        taken_back_from: Option<u8>,
        commit: bool,
    },
    Savepoint {
        writer: u8,
    },
    RollbackTo {
        writer: u8,
    },
    Commit {
        writer: u8,
    },
    Rollback {
        writer: u8,
    },
    Register {
        slot: u8,
    },
    Renew {
        slot: u8,
    },
    /// The relay's lease is over, and nobody has noticed.
    Expire {
        slot: u8,
    },
    Fence {
        by: u8,
        dead: u8,
    },
    AnnounceLeaving {
        slot: u8,
    },
    Leave {
        slot: u8,
        unsettled: bool,
    },
    Withdraw {
        slot: u8,
        destination: u8,
        unsettled: bool,
    },
    Claim {
        slot: u8,
        destination: u8,
        want: u8,
        settle: bool,
        unsettled: bool,
        address: u8,
    },
    Revoke {
        slot: u8,
        destination: u8,
        settle: bool,
    },
    Read {
        holding: u8,
        events: u8,
        bytes: bool,
    },
    Advance {
        holding: u8,
        count: u8,
        to_the_end: bool,
    },
    Park {
        holding: u8,
        which: u8,
        count: u8,
        fate: Fate,
    },
    Due {
        holding: u8,
        limit: u8,
    },
    Settle {
        holding: u8,
        which: u8,
        delivered: bool,
        fate: Fate,
    },
    /// Goes on with the side read of a released key, and joins it where it can.
    SideRead {
        holding: u8,
        key: u8,
        events: u8,
        take: u8,
        park: Option<Fate>,
    },
    Report {
        holding: u8,
        breaker: u8,
    },
    FencesTaken {
        holding: u8,
    },
    /// A relay that lost its claim goes on as if it had not noticed.
    Zombie {
        which: u8,
        call: u8,
    },
    Act {
        destination: u8,
        by: u8,
        which: u8,
        action: u8,
    },
    SetDestination {
        destination: u8,
        state: u8,
    },
    /// Retention and operators' views, with nothing under way.
    Housekeep,
    /// The outbox keeps delivered events no longer.
    KeepNothing,
    Crash,
}

/// The shape of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) key: u8,
    /// Bytes of payload, in steps of 100; none: a tombstone.
    pub(super) size: Option<u8>,
    pub(super) headers: u8,
}

/// The intended fate of an event that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    RetryNow,
    RetryLater,
    Dead,
    Skip,
}

impl Operation {
    /// Its kind, for counting.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Write { .. } => "write",
            Self::Transaction { .. } => "transaction",
            Self::Savepoint { .. } => "savepoint",
            Self::RollbackTo { .. } => "roll back to savepoint",
            Self::Commit { .. } => "commit",
            Self::Rollback { .. } => "roll back",
            Self::Register { .. } => "register",
            Self::Renew { .. } => "renew",
            Self::Expire { .. } => "expire",
            Self::Fence { .. } => "fence",
            Self::AnnounceLeaving { .. } => "announce leaving",
            Self::Leave { .. } => "leave",
            Self::Withdraw { .. } => "withdraw",
            Self::Claim { .. } => "claim",
            Self::Revoke { .. } => "revoke",
            Self::Read { .. } => "read",
            Self::Advance { .. } => "advance",
            Self::Park { .. } => "park",
            Self::Due { .. } => "due",
            Self::Settle { .. } => "settle",
            Self::SideRead { .. } => "side read",
            Self::Report { .. } => "report",
            Self::FencesTaken { .. } => "fences taken",
            Self::Zombie { .. } => "zombie",
            Self::Act { .. } => "act",
            Self::SetDestination { .. } => "set destination",
            Self::Housekeep => "housekeep",
            Self::KeepNothing => "keep nothing",
            Self::Crash => "crash",
        }
    }
}

/// The sequence of this seed.
pub(super) fn sequence(seed: u64, plan: &Plan, capabilities: &[Capability]) -> Vec<Operation> {
    let mut dice = SmallRng::seed_from_u64(seed);
    // Something to work with.
    let mut operations = vec![
        Operation::Register { slot: 0 },
        Operation::Claim {
            slot: 0,
            destination: 0,
            want: 3,
            settle: false,
            unsettled: false,
            address: 0,
        },
    ];
    let together = capabilities.contains(&Capability::OpenTogether);
    while operations.len() < plan.operations {
        let operation = any(&mut dice, plan);
        let open = matches!(
            operation,
            Operation::Write { .. }
                | Operation::Savepoint { .. }
                | Operation::RollbackTo { .. }
                | Operation::Commit { .. }
                | Operation::Rollback { .. }
        );
        // One writer at a time: it keeps everybody else waiting while its transaction is open.
        if together || !open {
            operations.push(operation);
        }
    }
    operations
}

fn shape(dice: &mut SmallRng) -> Shape {
    Shape {
        key: dice.random_range(0..8),
        size: dice.random_bool(0.95).then(|| dice.random_range(0..20)),
        headers: dice.random_range(0..3),
    }
}

fn fate(dice: &mut SmallRng) -> Fate {
    match dice.random_range(0..6) {
        0..3 => Fate::RetryNow,
        3 => Fate::RetryLater,
        4 => Fate::Dead,
        _ => Fate::Skip,
    }
}

fn any(dice: &mut SmallRng, plan: &Plan) -> Operation {
    match dice.random_range(0..100) {
        0..20 => writing(dice),
        20..30 => ownership(dice),
        30..92 => holding(dice),
        92..97 => Operation::Act {
            destination: dice.random(),
            by: dice.random(),
            which: dice.random(),
            action: dice.random(),
        },
        97 => Operation::SetDestination {
            destination: dice.random(),
            state: dice.random(),
        },
        98 if plan.crashes && dice.random_bool(0.5) => Operation::Crash,
        98 if dice.random_bool(0.3) => Operation::KeepNothing,
        _ => Operation::Housekeep,
    }
}

fn writing(dice: &mut SmallRng) -> Operation {
    let writer = dice.random_range(0..3);
    match dice.random_range(0..24) {
        0..11 => Operation::Write {
            writer,
            event: shape(dice),
        },
        11..16 => Operation::Transaction {
            event: shape(dice),
            count: dice.random_range(1..6),
            taken_back_from: dice.random_bool(0.3).then(|| dice.random_range(0..6)),
            commit: dice.random_bool(0.85),
        },
        16..18 => Operation::Savepoint { writer },
        18 => Operation::RollbackTo { writer },
        19..23 => Operation::Commit { writer },
        _ => Operation::Rollback { writer },
    }
}

fn ownership(dice: &mut SmallRng) -> Operation {
    let slot = dice.random_range(0..3);
    let destination = dice.random();
    match dice.random_range(0..24) {
        0..3 => Operation::Register { slot },
        3 => Operation::Renew { slot },
        4 => Operation::Expire { slot },
        5 => Operation::Fence {
            by: slot,
            dead: dice.random_range(0..3),
        },
        6 => Operation::AnnounceLeaving { slot },
        7 => Operation::Leave {
            slot,
            unsettled: dice.random_bool(0.3),
        },
        8 => Operation::Withdraw {
            slot,
            destination,
            unsettled: dice.random_bool(0.3),
        },
        9 => Operation::Revoke {
            slot,
            destination,
            settle: dice.random_bool(0.3),
        },
        _ => Operation::Claim {
            slot,
            destination,
            want: dice.random_range(0..6),
            settle: dice.random_bool(0.3),
            unsettled: dice.random_bool(0.2),
            address: u8::from(dice.random_bool(0.1)),
        },
    }
}

fn holding(dice: &mut SmallRng) -> Operation {
    let holding = dice.random();
    match dice.random_range(0..58) {
        0..13 => Operation::Read {
            holding,
            events: dice.random_range(1..8),
            bytes: dice.random_bool(0.2),
        },
        13..23 => Operation::Advance {
            holding,
            count: dice.random_range(0..8),
            to_the_end: dice.random_bool(0.5),
        },
        23..28 => Operation::Park {
            holding,
            which: dice.random(),
            count: dice.random_range(1..3),
            fate: fate(dice),
        },
        28..34 => Operation::Due {
            holding,
            limit: dice.random_range(1..5),
        },
        34..44 => Operation::Settle {
            holding,
            which: dice.random(),
            delivered: dice.random_bool(0.6),
            fate: fate(dice),
        },
        44..54 => Operation::SideRead {
            holding,
            key: dice.random(),
            events: dice.random_range(1..5),
            take: dice.random_range(0..6),
            park: dice.random_bool(0.2).then(|| fate(dice)),
        },
        54 => Operation::Report {
            holding,
            breaker: dice.random(),
        },
        55 => Operation::FencesTaken { holding },
        _ => Operation::Zombie {
            which: dice.random(),
            call: dice.random(),
        },
    }
}
