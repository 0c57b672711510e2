//! The steps of writers, a server and a reader of holes.

use std::fmt;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A writer begins to write.
    Begin(usize),
    /// It draws the number of its next event, with the event's key locked.
    Insert(usize),
    /// XA prepares its transaction.
    Prepare(usize),
    /// The session of a prepared transaction ends.
    Detach(usize),
    /// Its rows become visible.
    Commit(usize),
    /// It lets go of its locks.
    Release(usize),
    /// It is rolled back.
    RollBack(usize),
    /// The reader connects, and loads its place.
    Open,
    /// It reads a page, and delivers it.
    Read,
    /// It lists the locks for writing.
    ListLocks,
    /// It lists the prepared transactions.
    ListPrepared,
    /// It asks for a lock that is granted while nobody writes.
    Ask,
    /// The lock is granted.
    Grant,
    /// It stores its place.
    Advance,
    /// The server is killed. So many of its last commits are lost; and perhaps the counter.
    Crash {
        /// Commits that survive.
        left: usize,
        /// The counter is as it was when something was last made durable.
        counts_again: bool,
    },
    /// A replica that has so many commits takes the server's place.
    Promote(usize),
    /// The instrument is switched off, and on.
    Switch,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(w) => write!(f, "W{w} begins to write"),
            Self::Insert(w) => write!(f, "W{w} draws a number"),
            Self::Prepare(w) => write!(f, "W{w} prepares (XA)"),
            Self::Detach(w) => write!(f, "W{w}'s session ends"),
            Self::Commit(w) => write!(f, "W{w} commits: its rows are visible"),
            Self::Release(w) => write!(f, "W{w} lets go of its locks"),
            Self::RollBack(w) => write!(f, "W{w} rolls back"),
            Self::Open => write!(f, "the relay connects"),
            Self::Read => write!(f, "it reads and delivers"),
            Self::ListLocks => write!(f, "it lists the locks"),
            Self::ListPrepared => write!(f, "it lists the prepared transactions"),
            Self::Ask => write!(f, "it asks for a lock"),
            Self::Grant => write!(f, "the lock is granted"),
            Self::Advance => write!(f, "it stores its place"),
            Self::Crash { left, counts_again } => {
                let counter = if *counts_again { ", counts again" } else { "" };
                write!(f, "the server is killed: {left} commits are left{counter}")
            }
            Self::Promote(left) => write!(f, "a replica with {left} commits is promoted"),
            Self::Switch => write!(f, "the instrument is switched"),
        }
    }
}
