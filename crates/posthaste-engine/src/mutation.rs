//! Rules that a test can leave out, one at a time, to see that its checkers miss them.
//!
//! Without the feature `mutations` [`planted`] is a constant, and nothing of this is compiled. With it a rule is
//! left out by [`leave_out`] alone, on one thread, for one call: there is no name, flag or variable by which a
//! program's user could.

/// A rule that is left out. Each variant tells where: in what production runs, or, for rules that a statement keeps,
/// in the simulated statement that stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// The cursor advances before the answer: what was handed to a lane counts as accepted. The engine's pipeline.
    AdvanceBeforeTheAnswer,
    /// No epoch check, nor what is asserted beside it (owner, fence, lease): a zombie's statements are obeyed. The
    /// simulated guard (`guard.sql`).
    NoEpochCheck,
    /// A retry out of order: what a lane did not take goes behind what waits, not back to its place. The engine's
    /// window.
    RetryOutOfOrder,
    /// An attempt is burned by an outage: an event is set aside because its destination was away. The engine's
    /// pipeline.
    AttemptBurnedByAnOutage,
    /// A suspect keeps its turn: what a lane failed over is the first of the next one. The engine's pipeline.
    SuspectGoesFirst,
    /// The cursor passes a parked event before that is durable: nobody waits for the copy. The relay's runner.
    CursorPastAParkedEvent,
    /// The deadline of a lease is measured by the wall clock, which is set. The relay's lease.
    DeadlineByWallClock,
    /// The connection is kept on abort: the next lane sends at once, while bytes of the last one are under way. The
    /// engine's pipeline and the relay's runner.
    ConnectionKeptOnAbort,
    /// The epoch is raised before the fence: the owner whose lease is over is fenced a second later, unless it has
    /// renewed by then. The simulated claim (`fence_expired.sql`, `revoke.sql`).
    EpochBeforeTheFence,
    /// A join at the wrong `high`: where the side read's target was, though the main group has moved on. The
    /// engine's side read.
    JoinAtTheWrongHigh,
    /// The incarnation is ignored: a cursor in memory outlives a crash of the database. The store's claim, the
    /// simulated guard and header (`guard.sql`, `header.sql`).
    IncarnationIgnored,
    /// The floor is taken from the same poll, which proves nothing. The PostgreSQL store's sweep.
    FloorFromTheSamePoll,
    /// A straggler is given the new low's floor. The PostgreSQL store's sweep.
    StragglerTakesTheNewFloor,
    /// The coverage of a moved partition is missing for one transaction: its row comes in the next one, half a second
    /// later. The simulated claim (`claim_split.sql`).
    CoverageMissing,
    /// Retention reads the floor before it has its lock. The simulated deeds (`retention_truncate.sql`,
    /// `retention_delete.sql`).
    FloorBeforeTheLock,
    /// A second event of a key is taken after its first one failed on the lane. The engine's record of failed keys,
    /// by which receivers refuse.
    SecondAfterAFailure,
    /// Truncation without the check inside the lock: what was seen before the lock decides. The simulated deeds, as
    /// above.
    TruncationUnchecked,
    /// Repeats are suppressed by position, not by id. The simulated broker, for the progress that the sink for Kafka
    /// keeps.
    SuppressedByPosition,
    /// No deadline of a store call: an answer that never comes is waited for. The relay's bounded store.
    NoDeadlineOfAStoreCall,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::AdvanceBeforeTheAnswer,
        Self::NoEpochCheck,
        Self::RetryOutOfOrder,
        Self::AttemptBurnedByAnOutage,
        Self::SuspectGoesFirst,
        Self::CursorPastAParkedEvent,
        Self::DeadlineByWallClock,
        Self::ConnectionKeptOnAbort,
        Self::EpochBeforeTheFence,
        Self::JoinAtTheWrongHigh,
        Self::IncarnationIgnored,
        Self::FloorFromTheSamePoll,
        Self::StragglerTakesTheNewFloor,
        Self::CoverageMissing,
        Self::FloorBeforeTheLock,
        Self::SecondAfterAFailure,
        Self::TruncationUnchecked,
        Self::SuppressedByPosition,
        Self::NoDeadlineOfAStoreCall,
    ];
}

#[cfg(feature = "mutations")]
pub use switch::{leave_out, planted};

/// Whether the rule is left out on this thread. Never.
#[cfg(not(feature = "mutations"))]
#[must_use]
pub const fn planted(_: Mutation) -> bool {
    false
}

#[cfg(feature = "mutations")]
mod switch {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static PLANTED: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Whether the rule is left out on this thread.
    #[must_use]
    pub fn planted(mutation: Mutation) -> bool {
        PLANTED.get() == Some(mutation)
    }

    /// Leaves the rule out while `work` runs, on this thread alone.
    pub fn leave_out<T>(mutation: Mutation, work: impl FnOnce() -> T) -> T {
        /// Puts it back, after a panic too.
        struct Back(Option<Mutation>);

        impl Drop for Back {
            fn drop(&mut self) {
                PLANTED.set(self.0);
            }
        }

        let back = Back(PLANTED.replace(Some(mutation)));
        let done = work();
        drop(back);
        done
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_rule_is_left_out_for_one_call_on_one_thread() {
            let (this, other) = (Mutation::NoEpochCheck, Mutation::CoverageMissing);
            let seen = leave_out(this, || {
                let elsewhere = std::thread::spawn(move || planted(this));
                (planted(this), planted(other), elsewhere.join().unwrap())
            });
            assert_eq!(seen, (true, false, false));
            let panicked = std::panic::catch_unwind(|| leave_out(this, || panic!("as planned")));
            assert!(panicked.is_err() && !planted(this));
        }
    }
}
