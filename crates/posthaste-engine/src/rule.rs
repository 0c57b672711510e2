//! Rules that a test can leave out, one at a time, to see that its checkers miss them.
//!
//! This is the only list of them. Without the feature `leave-out-rules` [`left_out`] is a constant,
//! and nothing else of this is compiled. With it a rule is left out by [`leave_out`] alone, on one
//! thread, for one call: no name, flag or variable lets a program's user do it.

/// A rule that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An event counts as accepted only when the lane has answered so.
    CursorWaitsForAnswers,
    /// A statement tests epoch, owner, fence and lease.
    EpochIsChecked,
    /// An event that a lane did not take goes back to its place, not behind those that wait.
    RetryKeepsItsPlace,
    /// An event is not parked because its destination is away.
    OutageBurnsNoAttempt,
    /// The event over which a lane failed is sent after others, not first on the next lane.
    SuspectGoesLast,
    /// The cursor passes a parked event when its copy is durable.
    CursorWaitsForParkedCopy,
    /// A lease's deadline is measured by the boot-time clock, which nobody sets.
    DeadlineByBootClock,
    /// An aborted lane's connection ends, and the next lane waits for the settle time.
    AbortEndsConnection,
    /// A claim fences the former owner before it raises the epoch.
    FenceBeforeEpoch,
    /// A key joins where the main group stands still, not where the side read's target was.
    JoinWhereMainGroupStands,
    /// A cursor in memory ends with the database's incarnation.
    IncarnationIsChecked,
    /// A poll's floor was received by an earlier poll.
    FloorOfEarlierPoll,
    /// A transaction that is new in `xip(low)` keeps the former floor.
    StragglerKeepsItsFloor,
    /// A moved partition has a row with its place in the transaction that moves it.
    MovedPartitionIsCovered,
    /// Retention reads the floor while it has its lock.
    FloorReadUnderLock,
    /// A receiver refuses an event that follows a failed one of its key.
    ReceiverRefusesAfterFailure,
    /// Truncation tests again, under its lock, what it saw before.
    TruncationChecksUnderLock,
    /// A repeat is recognised by its id, not by its position.
    RepeatsSuppressedById,
    /// A call to a store ends at a deadline.
    StoreCallHasDeadline,
    /// A relay submits nothing once its lease is over.
    SendingEndsWithLease,
    /// A new owner waits until the former owner's bytes have arrived or are gone.
    SettleTimeIsWaitedFor,
    /// A parked event leaves a marker for its key.
    ParkedEventLeavesMarker,
    /// A receiver refuses an event that follows a failed one after its lane has ended, too.
    RefusalOutlivesLane,
    /// Truncation waits for open transactions that have written into the leaf.
    TruncationWaitsForWriters,
    /// Retention's floor counts the places of block markers.
    FloorCountsMarkers,
    /// A destination is created under the retention lock.
    DestinationCreatedUnderLock,
    /// An event that a mark store has handed out is forgotten by a read that is sent after the
    /// answer that marked it.
    HandedOutUntilLaterRead,
    /// A mark store leaves events of blocked keys out of its pages.
    BlockedKeysFillNoPage,
    /// A place that takes nothing gets one event at a time.
    PlaceIsHeldBack,
    /// Each probe of a place, or of a destination that refuses everything, is another event.
    ProbesRotate,
    /// Events that follow a passed over one in its key are passed over, too.
    PassedOverIsNotOvertaken,
    /// Events that wait long for their place leave the window.
    LongWaitLeavesWindow,
    /// Only so many keys are blocked.
    BlockedKeysAreBounded,
    /// A destination that refuses everything parks ever more slowly.
    StepsOfRefusalsDouble,
    /// Events that were refused, and may not be parked, are sent behind the others.
    RefusedGoLast,
    /// The first event that a place leaves unanswered is put off alone.
    SilentEventGoesAlone,
    /// A place that leaves another event unanswered is held back.
    SilentPlaceIsHeldBack,
    /// One event of a key is under way where the sink asks for it.
    OneOfAKeyAtATime,
}

/// Whether the rule is left out on this thread. Never.
#[cfg(not(feature = "leave-out-rules"))]
#[must_use]
pub const fn left_out(_: Rule) -> bool {
    false
}

#[cfg(feature = "leave-out-rules")]
pub use {
    switch::{leave_out, left_out},
    table::Carrier,
};

#[cfg(feature = "leave-out-rules")]
mod table {
    use Carrier::{Broker, MarkStore, Model, Production, Statements};

    use super::Rule;

    /// The code that keeps a rule, and that a test can therefore run without it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Carrier {
        /// Code that production runs.
        Production,
        /// Simulated statements, each of which stands for one of these shipped ones.
        Statements(&'static [&'static str]),
        /// The memory store in mark mode, as every mark store is to do it.
        MarkStore,
        /// A simulated broker.
        Broker,
        /// The database, network or broker of the model checker.
        Model,
    }

    const RETENTION: Carrier = Statements(&["retention_truncate.sql", "retention_delete.sql"]);

    impl Rule {
        /// All of them.
        pub const ALL: [Self; 38] = [
            Self::CursorWaitsForAnswers,
            Self::EpochIsChecked,
            Self::RetryKeepsItsPlace,
            Self::OutageBurnsNoAttempt,
            Self::SuspectGoesLast,
            Self::CursorWaitsForParkedCopy,
            Self::DeadlineByBootClock,
            Self::AbortEndsConnection,
            Self::FenceBeforeEpoch,
            Self::JoinWhereMainGroupStands,
            Self::IncarnationIsChecked,
            Self::FloorOfEarlierPoll,
            Self::StragglerKeepsItsFloor,
            Self::MovedPartitionIsCovered,
            Self::FloorReadUnderLock,
            Self::ReceiverRefusesAfterFailure,
            Self::TruncationChecksUnderLock,
            Self::RepeatsSuppressedById,
            Self::StoreCallHasDeadline,
            Self::SendingEndsWithLease,
            Self::SettleTimeIsWaitedFor,
            Self::ParkedEventLeavesMarker,
            Self::RefusalOutlivesLane,
            Self::TruncationWaitsForWriters,
            Self::FloorCountsMarkers,
            Self::DestinationCreatedUnderLock,
            Self::HandedOutUntilLaterRead,
            Self::BlockedKeysFillNoPage,
            Self::PlaceIsHeldBack,
            Self::ProbesRotate,
            Self::PassedOverIsNotOvertaken,
            Self::LongWaitLeavesWindow,
            Self::BlockedKeysAreBounded,
            Self::StepsOfRefusalsDouble,
            Self::RefusedGoLast,
            Self::SilentEventGoesAlone,
            Self::SilentPlaceIsHeldBack,
            Self::OneOfAKeyAtATime,
        ];

        /// The rule in words, as the documentation has it, and the code that keeps it.
        const fn row(self) -> (&'static str, &'static [Carrier]) {
            match self {
                Self::CursorWaitsForAnswers => ("the cursor waits for the answer", &[Production]),
                Self::EpochIsChecked => {
                    ("the epoch is checked", &[Statements(&["guard.sql"]), Model])
                }
                Self::RetryKeepsItsPlace => ("a retry keeps its place", &[Production]),
                Self::OutageBurnsNoAttempt => ("an outage burns no attempt", &[Production]),
                Self::SuspectGoesLast => {
                    ("what a lane failed over goes behind others", &[Production])
                }
                Self::CursorWaitsForParkedCopy => (
                    "the cursor passes a parked event once its copy is durable",
                    &[Production, Model],
                ),
                Self::DeadlineByBootClock => {
                    ("deadlines are by the boot-time clock", &[Production])
                }
                Self::AbortEndsConnection => (
                    "a connection ends with its lane, and the next one waits for the settle time",
                    &[Production],
                ),
                Self::FenceBeforeEpoch => (
                    "the fence comes before the epoch",
                    &[Statements(&["fence_expired.sql", "revoke.sql"])],
                ),
                Self::JoinWhereMainGroupStands => (
                    "a key joins where its main group has read to",
                    &[Production],
                ),
                Self::IncarnationIsChecked => (
                    "the incarnation is checked",
                    &[Production, Statements(&["guard.sql", "header.sql"]), Model],
                ),
                Self::FloorOfEarlierPoll => ("a floor is of an earlier poll", &[Production]),
                Self::StragglerKeepsItsFloor => ("a straggler keeps its floor", &[Production]),
                Self::MovedPartitionIsCovered => (
                    "a moved partition is covered in the same transaction",
                    &[Statements(&["claim_split.sql"])],
                ),
                Self::FloorReadUnderLock => (
                    "retention reads the floor behind its lock",
                    &[RETENTION, Model],
                ),
                Self::ReceiverRefusesAfterFailure => (
                    "a receiver refuses what follows a failure",
                    &[Production, Model],
                ),
                Self::TruncationChecksUnderLock => {
                    ("truncation checks inside its lock", &[RETENTION, Model])
                }
                Self::RepeatsSuppressedById => ("repeats are suppressed by id", &[Broker]),
                Self::StoreCallHasDeadline => {
                    ("every call to a store has a deadline", &[Production])
                }
                Self::SendingEndsWithLease => ("sending ends with the lease", &[Model]),
                Self::SettleTimeIsWaitedFor => ("the settle time is waited for", &[Model]),
                Self::ParkedEventLeavesMarker => ("a parked event leaves a marker", &[Model]),
                Self::RefusalOutlivesLane => ("a refusal outlives its lane", &[Model]),
                Self::TruncationWaitsForWriters => ("truncation waits for open writers", &[Model]),
                Self::FloorCountsMarkers => ("the floor counts block markers", &[Model]),
                Self::DestinationCreatedUnderLock => (
                    "a destination is created under the retention lock",
                    &[Model],
                ),
                Self::HandedOutUntilLaterRead => (
                    "what was handed out is forgotten by a read sent after its mark's answer",
                    &[MarkStore],
                ),
                Self::BlockedKeysFillNoPage => {
                    ("events of blocked keys fill no page", &[MarkStore])
                }
                Self::PlaceIsHeldBack => ("a place that takes nothing is held back", &[Production]),
                Self::ProbesRotate => ("probes rotate", &[Production]),
                Self::PassedOverIsNotOvertaken => (
                    "what follows a passed over event in its key waits",
                    &[Production, Model],
                ),
                Self::LongWaitLeavesWindow => (
                    "what waits long for its place leaves the window",
                    &[Production],
                ),
                Self::BlockedKeysAreBounded => ("blocked keys are bounded", &[Production]),
                Self::StepsOfRefusalsDouble => (
                    "a destination that refuses everything parks ever more slowly",
                    &[Production],
                ),
                Self::RefusedGoLast => ("what was refused goes behind what was not", &[Production]),
                Self::SilentEventGoesAlone => (
                    "the first silent event of a place goes alone",
                    &[Production],
                ),
                Self::SilentPlaceIsHeldBack => (
                    "a place with a second silent event is held back",
                    &[Production],
                ),
                Self::OneOfAKeyAtATime => (
                    "one event of a key is under way where a sink keeps no order",
                    &[Production],
                ),
            }
        }

        /// The rule in words, as the documentation has it.
        #[must_use]
        pub const fn words(self) -> &'static str {
            self.row().0
        }

        /// The code that keeps it.
        #[must_use]
        pub const fn carriers(self) -> &'static [Carrier] {
            self.row().1
        }

        /// Whether the simulation can run without it.
        #[must_use]
        pub fn is_in_simulation(self) -> bool {
            self.carriers().iter().any(|&carrier| carrier != Model)
        }
    }
}

#[cfg(feature = "leave-out-rules")]
mod switch {
    use std::cell::Cell;

    use super::Rule;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Whether the rule is left out on this thread.
    #[must_use]
    pub fn left_out(rule: Rule) -> bool {
        LEFT_OUT.get() == Some(rule)
    }

    /// Leaves the rule out while `work` runs, on this thread alone.
    pub fn leave_out<T>(rule: Rule, work: impl FnOnce() -> T) -> T {
        /// Puts the former state back, after a panic too.
        struct Back(Option<Rule>);

        impl Drop for Back {
            fn drop(&mut self) {
                LEFT_OUT.set(self.0);
            }
        }

        let back = Back(LEFT_OUT.replace(Some(rule)));
        let done = work();
        drop(back);
        done
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_rule_is_left_out_for_one_call_on_one_thread() {
            let (this, other) = (Rule::EpochIsChecked, Rule::MovedPartitionIsCovered);
            let seen = leave_out(this, || {
                let elsewhere = std::thread::spawn(move || left_out(this));
                (left_out(this), left_out(other), elsewhere.join().unwrap())
            });
            assert_eq!(seen, (true, false, false));
            let panicked = std::panic::catch_unwind(|| leave_out(this, || panic!("as planned")));
            assert!(panicked.is_err() && !left_out(this));
        }
    }
}
