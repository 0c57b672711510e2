//! The facts of a run, step by step: the trace that checkers judge.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

/// Which destination of a run.
pub type DestinationIndex = usize;

/// One fact. Facts of the database and of the broker are noted where they become true, not where a
/// relay hears of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// An event was committed. Events of one key come in their commit order.
    Committed {
        /// Its id.
        id: Uuid,
        /// Its topic.
        topic: &'static str,
        /// Its key.
        key: Option<Arc<str>>,
        /// The business row's own number, which the payload carries.
        n: u64,
        /// The writer's transaction.
        transaction: u64,
        /// Whether its writer held a lock on the key before it emitted.
        serialised: bool,
    },
    /// The server that survived a crash does not have this committed event: its commit was not
    /// flushed, or not shipped.
    LostByTheServer {
        /// Its id.
        id: Uuid,
    },
    /// A relay's lane took an event over.
    Submitted {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
        /// The claim's epoch.
        epoch: u64,
        /// The relay's registration.
        registration: Uuid,
    },
    /// A broker took responsibility for an event: consumers see it.
    Delivered {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
        /// Its key, as it arrived.
        key: Option<Arc<str>>,
        /// The number in its payload.
        n: u64,
    },
    /// A broker refused an event for its own sake.
    Refused {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
    },
    /// A relay is about to store that an attempt with an event has failed.
    AttemptFailed {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
        /// The broker did not refuse it; it failed alone, time and again.
        alone: bool,
    },
    /// A broker that acknowledges before it has flushed lost an event in its own crash.
    ForgottenByTheBroker {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
    },
    /// A relay was granted a claim.
    Claimed {
        /// Where.
        place: DestinationIndex,
        /// Its epoch.
        epoch: u64,
        /// The partitions, as cells of the finest cut.
        partitions: Vec<u16>,
        /// The relay's registration.
        registration: Uuid,
        /// The database's life when it was asked for: how many crashes it had seen.
        life: u64,
        /// How many claims were known then: the answers of others may have overtaken this one.
        claims: u64,
    },
    /// A statement of a claim changed something: a cursor, a marker, a parked copy.
    Moved {
        /// Where.
        place: DestinationIndex,
        /// The claim's epoch.
        epoch: u64,
        /// The claim's partitions, likewise.
        partitions: Vec<u16>,
        /// The database's life when the claim was made.
        claimed_in: u64,
        /// Its life when the statement was sent.
        life: u64,
        /// How many claims had been granted by then.
        claims: u64,
        /// Its name.
        what: &'static str,
    },
    /// A relay read events for the main group of a claim.
    Read {
        /// Where.
        place: DestinationIndex,
        /// The claim's epoch.
        epoch: u64,
        /// The relay's registration.
        registration: Uuid,
        /// How many.
        events: u64,
    },
    /// An advance took events behind the stored cursor, or behind a marker.
    Stored {
        /// Where.
        place: DestinationIndex,
        /// The claim's epoch.
        epoch: u64,
        /// The relay's registration.
        registration: Uuid,
        /// The finished events.
        ids: Vec<Uuid>,
        /// How many that the claim's main group has read are behind the cursor now.
        passed: u64,
    },
    /// A relay is about to set an event aside: the store may do so though the relay never hears it.
    MayBeSetAside {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
    },
    /// Events were set aside: parked or skipped.
    SetAside {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
        /// Its key.
        key: Option<Arc<str>>,
        /// Whether its key goes on without it.
        skipped: bool,
    },
    /// A relay is about to store that it leaves an event behind: status may know it before the
    /// relay hears so.
    MayBeLeftBehind {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
    },
    /// A parked event was left behind.
    LeftBehind {
        /// Where.
        place: DestinationIndex,
        /// The event.
        id: Uuid,
    },
    /// A clock was set, or a process stood still before a write: repeats may have any shape from
    /// here on.
    RepeatsMayShuffle,
    /// The database crashed, or failed over.
    DatabaseDied {
        /// Whether advances that it had answered may be gone.
        forgets: bool,
    },
    /// Somebody asks for the status.
    StatusAsked,
    /// The status was answered.
    StatusAnswered {
        /// Where.
        place: DestinationIndex,
        /// Reported: not finished.
        pending: u64,
        /// Reported: set aside and still waiting.
        parked: u64,
    },
    /// A relay was killed: its registration will be found dead.
    Killed {
        /// Its registration, if it had one.
        registration: Option<Uuid>,
    },
    /// From here on nothing fails any more.
    Healed,
    /// Nothing is owed any more.
    Drained,
    /// A relay died although all is well, and others live.
    LastDeath,
    /// Other relays deliver the events of that one again.
    TakenOver,
    /// From here on the broker cannot stand a key, or one event of it, and nothing else is wrong.
    Poisoned {
        /// The key.
        key: Arc<str>,
        /// Events of others take no longer than this.
        delay_max: At,
    },
    /// A place is away from here on, and nothing else is wrong.
    Away {
        /// Where.
        place: DestinationIndex,
        /// Events for other places take no longer than this.
        delay_max: At,
    },
    /// The database's own records at the end.
    Audit {
        /// Take-overs in its audit.
        take_overs: u64,
        /// Fencings in its audit.
        fences: u64,
        /// Events in the parked table, whatever their state.
        parked: Vec<(DestinationIndex, Uuid)>,
    },
}

impl Seen {
    /// The event that somebody decided never to deliver, if this says so, and where.
    pub(crate) fn left_behind(&self) -> Option<(DestinationIndex, Uuid)> {
        match *self {
            Self::LeftBehind { place, id }
            | Self::SetAside {
                place,
                id,
                skipped: true,
                ..
            } => Some((place, id)),
            _ => None,
        }
    }
}

/// A fact and when it became true, since the run began.
pub type At = Duration;
