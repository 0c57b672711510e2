//! Why a schema is not there, by what its owner does about it.

use posthaste_engine::{Outcome, RejectionKind};

/// Why a schema is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The registry has no schema that serves for the event.
    Refused(RejectionKind, String, &'static str),
    /// The registry answers nothing of use for now.
    Away(String, &'static str),
}

impl Fault {
    /// The registry cannot be reached.
    pub(super) fn away(fault: String) -> Self {
        Self::Away(fault, "bring it back, or correct `schema_registry`")
    }

    /// The outcome of an event that needs the schema.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Refused(kind, fault, mend) => Outcome::rejected(kind, format!("{fault}; {mend}")),
            Self::Away(fault, mend) => Outcome::later(format!("{fault}; {mend}")),
        }
    }

    /// The fault, and the way to mend it.
    pub(super) fn told(self) -> (String, String) {
        let (Self::Refused(_, fault, mend) | Self::Away(fault, mend)) = self;
        (fault, mend.to_owned())
    }
}
