//! The steps of retention and of those beside it.

use std::fmt;

use crate::action::Action as Written;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A writer's.
    Write(Written),
    /// The destination is claimed.
    Claim(usize),
    /// It polls or reads on, and delivers what comes.
    Read(usize),
    /// It advances.
    Advance(usize),
    /// The first destination sets a marker where its cursor stands.
    Mark,
    /// The creator of a destination takes the retention lock, ...
    LockToCreate,
    /// ... inserts it ...
    Insert,
    /// ... and commits.
    Create,
    /// Retention looks.
    Look,
    /// It takes its locks.
    Lock,
    /// It does not get them, or nothing is due any more.
    Leave,
    /// It looks once more, under them.
    Decide,
    /// The rows that are due go.
    Remove,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(action) => action.fmt(f),
            Self::Claim(d) => write!(f, "destination {d} is claimed"),
            Self::Read(d) => write!(f, "destination {d} reads and delivers"),
            Self::Advance(d) => write!(f, "destination {d} advances"),
            Self::Mark => write!(f, "destination 0 blocks key a"),
            Self::LockToCreate => write!(f, "somebody sets out to create destination 1"),
            Self::Insert => write!(f, "its row is inserted"),
            Self::Create => write!(f, "its creation commits"),
            Self::Look => write!(f, "retention looks: something is due"),
            Self::Lock => write!(f, "retention takes its locks"),
            Self::Leave => write!(f, "retention leaves it"),
            Self::Decide => write!(f, "retention looks once more, under its locks"),
            Self::Remove => write!(f, "the rows go"),
        }
    }
}
