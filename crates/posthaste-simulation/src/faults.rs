//! The faults of a run, and the places of the mechanism that it can reach.

use std::fmt;

use crate::listed::listed;

listed! {
    /// A fault, or something that the world does to the relays. Each one that happens is counted.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Injection {
        /// A relay's process is killed.
        RelayKilled,
        /// A relay's process stands still for a while, often beyond its lease, and goes on.
        RelayStopped,
        /// A relay is asked to end.
        PlannedStop,
        /// A relay cannot reach the database.
        CutFromDatabase,
        /// A relay cannot reach the broker.
        CutFromBroker,
        /// A call to the database is refused, and nothing is done.
        CallRefused,
        /// A call is done, and its answer is lost.
        AnswerLost,
        /// An answer comes late.
        AnswerSlow,
        /// A statement arrives late.
        StatementLate,
        /// A call is never answered, whether or not it was done: its connection stays open and is
        /// silent for good.
        NeverAnswered,
        /// A lane breaks before a batch was handed to the network.
        LaneCut,
        /// A batch is taken, and its acknowledgement is lost.
        AckLost,
        /// No acknowledgement comes, and no error either.
        HalfOpen,
        /// An acknowledgement comes late.
        AckSlow,
        /// A process stands still between the test of its deadline and the write.
        WriteStalled,
        /// The broker refuses an event for its own sake.
        Rejected,
        /// The broker refuses an event alone, without a reason of its own.
        Nacked,
        /// The broker takes the events of a batch in another order.
        Scattered,
        /// The broker puts off an event: the queue of its topic is full for a while.
        QueueFull,
        /// The broker leaves an event unanswered, as all of its topic for a while.
        QueueSilent,
        /// The broker is away for a while.
        BrokerOutage,
        /// The broker crashes: its connections break, and a forgetful one loses what it had just
        /// acknowledged.
        BrokerCrash,
        /// The database crashes.
        DatabaseCrash,
        /// The database fails over to a standby that has all that commits waited for.
        FailOver,
        /// The database fails over to a standby that lags behind.
        LaggingFailOver,
        /// All connections to the database are ended.
        ConnectionsEnded,
        /// The database cannot be reached by anybody for a while.
        DatabaseAway,
        /// The database's clock is set.
        DatabaseClockStep,
        /// A relay's clock is set.
        RelayClockStep,
        /// A relay's clock runs too fast or too slow for its life.
        RelayClockDrift,
        /// A writer rolls back.
        Rollback,
        /// A writer takes back a part of its transaction.
        SavepointRollback,
        /// A commit does not wait until it is flushed.
        UnflushedCommit,
        /// A transaction stays open for seconds.
        LongTransaction,
        /// Many events in one transaction.
        Burst,
        /// An operator pauses a destination, or one of its topics.
        Pause,
        /// An operator has dead events tried again.
        Retry,
        /// An operator leaves parked events behind.
        Skip,
        /// The number of partitions is changed.
        Repartition,
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

listed! {
    /// A place of the mechanism that runs must come to: a fault that never meets it proves nothing
    /// there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Reached {
        /// A transaction was open at a poll that had begun before a later one.
        StragglerInXip,
        /// A page ended inside a snapshot difference.
        CutDifference,
        /// A released key joined the main group again.
        Join,
        /// An event left a relay's memory because its queue was full.
        LeftForItsPlace,
        /// A relay took over while a key was blocked.
        TakeOverWhileParked,
        /// The database began a new life while relays held claims.
        IncarnationChange,
        /// A repeat was suppressed by the progress that a broker keeps, or by its id.
        SuppressedRepeat,
        /// Retention removed events while a key was blocked.
        TruncationBesideBlockedKey,
        /// Numbers of transactions that a crash had taken back were issued to others.
        NumbersAgain,
        /// Values of the sequence that a crash had taken back were given to other events.
        ValuesAgain,
        /// A statement changed something when nobody waited for its answer any more.
        UnheardStatement,
        /// A zombie's statement was refused.
        FencedStatement,
        /// A fenced lane's bytes were refused by the broker.
        FencedBytes,
        /// Bytes of a lane that was gone arrived.
        LateBytes,
    }
}
