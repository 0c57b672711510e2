//! Faults of a relay, of the database, of the destination, or of the load.

use std::fmt;

/// How often a file is rotated as one fault.
pub(crate) const ROTATIONS: u64 = 50;

/// Declares the faults once: their names are what reports say.
macro_rules! faults {
    ($($(#[$doc:meta])+ $name:ident = $words:literal,)+) => {
        /// Something that goes wrong, or that is seldom.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])+ $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $words,)+
                })
            }
        }
    };
}

faults! {
    /// `kill -9`.
    Kill = "relay killed",
    /// SIGSTOP beyond the lease, then SIGCONT: it goes on where it stood.
    Freeze = "relay stopped beyond its lease",
    /// One is killed while another stands still, so that a third one has to take over from both.
    Two = "relay killed while another is stopped",
    /// No way to the database beyond the lease; the broker is in reach.
    CutDatabase = "relay cut off from the database",
    /// No way to the broker beyond the lease; the database is in reach.
    CutBroker = "relay cut off from the broker",
    /// A relay's connections to the database stay open and are never answered again; new ones are
    /// served.
    SilentDatabase = "connections to the database silent for good",
    /// The same with those to the broker.
    SilentBroker = "connections to the broker silent for good",
    /// SIGTERM.
    Stop = "relay stopped in order",
    /// The server ends all connections of relays.
    EndBackends = "relays' backends ended",
    /// The database's server, stopped like a crash.
    Crash = "database crashed",
    /// The database's server, stopped in order and started again.
    Restart = "database restarted",
    /// Row-level security hides the outbox's rows from the relays for a while.
    RowSecurity = "row-level security switched on",
    /// New sessions of the relays' role begin with settings that do not suit their statements, for
    /// a while.
    Settings = "odd settings of the relays' role",
    /// A transaction on a hot standby keeps its snapshot and reads the outbox while rows are
    /// removed.
    StandbyReader = "long reader on a standby",
    /// `kill -9`.
    BrokerKill = "broker killed",
    /// SIGTERM.
    BrokerStop = "broker restarted",
    /// SIGSTOP beyond the lease, then SIGCONT.
    BrokerPause = "broker stood still",
    /// The file may not grow.
    DiskFull = "disk full",
    /// The file's folder is moved away, and back.
    NoFolder = "folder away",
    /// The file is moved away while it is written, read to its end, and removed.
    Rotation = "file rotated",
    /// A relay is told another file. It stands by while the one that writes the former lives, and
    /// takes over when that is killed; a relay with another kind of destination is refused.
    Elsewhere = "relays told another file",
    /// A topic is deleted that events go to, and Kafka's progress topic.
    TopicsDeleted = "topics deleted",
    /// A relay with its clock an hour ahead dies, and the others have the true time.
    ClockSetBack = "clock set back by an hour",
    /// An event that its destination refuses, with others behind it.
    Poison = "poison event",
    /// A transaction begins that stays open, or the one that is open commits.
    Long = "long transaction",
    /// One transaction with more events than fit into a relay's memory.
    Giant = "giant transaction",
    /// A process that writes to SQLite is killed in the midst of it.
    WriterKill = "writer killed",
}

impl Fault {
    /// Windows that it may repeat at the most, of this many relays (I4).
    #[must_use]
    pub fn windows(self, relays: usize) -> u64 {
        let all = relays as u64;
        match self {
            Self::Stop
            | Self::Poison
            | Self::Long
            | Self::Giant
            | Self::WriterKill
            | Self::StandbyReader => 0,
            // The line that was being written when the file went stands in both.
            Self::Rotation => ROTATIONS,
            Self::Kill | Self::Freeze | Self::ClockSetBack | Self::Elsewhere => 1,
            // The lane ends with the lease, and what a network kept may come besides.
            Self::Two
            | Self::CutDatabase
            | Self::CutBroker
            | Self::SilentDatabase
            | Self::SilentBroker => 2,
            Self::EndBackends | Self::Crash | Self::Restart => all,
            // Forgotten progress is what each relay has in flight; a refused event ends its lane.
            Self::DiskFull | Self::NoFolder | Self::RowSecurity | Self::TopicsDeleted => all,
            // Backends are ended twice: when the settings are made and when they are reset.
            Self::Settings => 2 * all,
            // The events that it had taken and not answered, and once more those that a lane sent
            // while it went.
            Self::BrokerKill | Self::BrokerStop | Self::BrokerPause => 2 * all,
        }
    }

    /// How many processes it ends by `kill -9`.
    #[must_use]
    pub fn kills(self) -> u64 {
        let kills = [
            Self::Kill,
            Self::Two,
            Self::BrokerKill,
            Self::WriterKill,
            Self::ClockSetBack,
            Self::Elsewhere,
        ];
        u64::from(kills.contains(&self))
    }

    /// How many processes it stops by SIGSTOP.
    #[must_use]
    pub fn standstills(self) -> u64 {
        u64::from([Self::Freeze, Self::Two, Self::BrokerPause].contains(&self))
    }
}
