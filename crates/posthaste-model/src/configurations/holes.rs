//! Scenarios of a log with holes.

use super::{Control, Explored, Scenario};
use crate::holes::{Faults, Holes, Kind, Transaction, Without};

const A: Transaction = Transaction {
    keys: &[0],
    may_roll_back: false,
    prepares: false,
};
const B: Transaction = Transaction { keys: &[1], ..A };
const AB: Transaction = Transaction { keys: &[0, 1], ..A };
const PERHAPS_B: Transaction = Transaction {
    may_roll_back: true,
    ..B
};
const PREPARED_B: Transaction = Transaction {
    prepares: true,
    ..PERHAPS_B
};
const NONE: Faults = Faults {
    crashes: 0,
    promotions: 0,
    blind: 0,
};

fn holes(writers: &'static [Transaction], kind: Kind, faults: Faults) -> Holes {
    Holes {
        writers,
        kind,
        page: 2,
        faults,
        without: None,
    }
}

pub(super) fn scenarios() -> Vec<Scenario> {
    use Kind::{MariaDb, Mysql};
    let scenario = |name, holes, long| Scenario {
        name,
        explored: Explored::Holes(holes),
        long,
    };
    let crash = Faults { crashes: 1, ..NONE };
    let promotion = Faults {
        promotions: 1,
        ..NONE
    };
    let blind = Faults { blind: 1, ..NONE };
    vec![
        scenario(
            "holes: 3 transactions, 4 events of 2 keys, 1 may be rolled back, pages of 2",
            holes(&[AB, PERHAPS_B, A], Mysql, NONE),
            false,
        ),
        scenario(
            "holes: the same, pages of 1",
            Holes {
                page: 1,
                ..holes(&[AB, PERHAPS_B, A], Mysql, NONE)
            },
            false,
        ),
        scenario(
            "holes: MySQL, 1 of 2 transactions is prepared (XA), 1 crash",
            holes(&[PREPARED_B, A], Mysql, crash),
            false,
        ),
        scenario(
            "holes: MariaDB, 1 of 2 transactions is prepared (XA), 1 crash",
            holes(&[PREPARED_B, A], MariaDb, crash),
            false,
        ),
        scenario(
            "holes: 3 transactions, 1 crash",
            holes(&[A, PERHAPS_B, A], MariaDb, crash),
            false,
        ),
        scenario(
            "holes: 3 transactions, 1 promotion of a replica",
            holes(&[A, PERHAPS_B, A], Mysql, promotion),
            false,
        ),
        scenario(
            "holes: 3 transactions, the instrument is blind once",
            holes(&[A, PERHAPS_B, A], Mysql, blind),
            false,
        ),
        scenario(
            "holes: MySQL, 2 of 3 transactions are prepared (XA), 1 crash",
            holes(&[PREPARED_B, PREPARED_B, A], Mysql, crash),
            true,
        ),
        scenario(
            "holes: MariaDB, 2 of 3 transactions are prepared (XA), 1 crash",
            holes(&[PREPARED_B, PREPARED_B, A], MariaDb, crash),
            true,
        ),
        scenario(
            "holes: MariaDB, 1 of 3 transactions is prepared, the instrument is blind once, 1 \
             crash",
            holes(&[PREPARED_B, A, A], MariaDb, Faults { blind: 1, ..crash }),
            true,
        ),
    ]
}

pub(super) fn controls() -> Vec<Control> {
    let control = |name, without, holes| Control {
        name,
        explored: Explored::Holes(Holes {
            without: Some(without),
            ..holes
        }),
    };
    let two = || holes(&[B, A], Kind::Mysql, NONE);
    let prepared = || holes(&[PREPARED_B, A], Kind::MariaDb, NONE);
    let blind = || holes(&[B, A], Kind::Mysql, Faults { blind: 1, ..NONE });
    let crash = || holes(&[A, B], Kind::Mysql, Faults { crashes: 1, ..NONE });
    let promotion = || {
        let faults = Faults {
            promotions: 1,
            ..NONE
        };
        holes(&[A, B], Kind::Mysql, faults)
    };
    vec![
        control(
            "holes: only what lies behind is read",
            Without::Holes,
            two(),
        ),
        control("holes: they are closed at once", Without::Proof, two()),
        control(
            "holes: a sample is begun before the read that shows the hole",
            Without::SampleBehindRead,
            two(),
        ),
        control(
            "holes: they are closed without another read",
            Without::ReadBehindSample,
            two(),
        ),
        control(
            "holes: prepared transactions are not waited for",
            Without::Prepared,
            prepared(),
        ),
        control(
            "holes: prepared transactions are listed before the locks",
            Without::LocksFirst,
            prepared(),
        ),
        control(
            "holes: a blind instrument shows nobody",
            Without::Canary,
            blind(),
        ),
        control(
            "holes: an instrument that was blind is trusted without a lock",
            Without::LockAfterBlindness,
            blind(),
        ),
        control(
            "holes: the place is kept over the loss of a connection",
            Without::PlaceOfTheServer,
            promotion(),
        ),
        control(
            "holes: an event is delivered before it is durable",
            Without::Fence,
            crash(),
        ),
    ]
}
